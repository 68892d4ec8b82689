"""The user's own account: password change and forgotten password."""

import pytest
from support.console import Reader, text_of
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import set_active
from support.team import Colleague, fresh_email

ACCOUNT = "/console/settings/account"
NEW = "a new correct horse"


def change(reader: Reader, current: str = PASSWORD, new: str = NEW, repeated: str | None = None) -> int:
    fields = {
        "current_password": current,
        "new_password": new,
        "repeated": new if repeated is None else repeated,
    }
    answer = reader.submit(f"{ACCOUNT}/password", token=reader.token(), **fields)
    for typed in fields.values():
        assert not typed or f'value="{typed}"' not in answer.text
    return answer.status_code


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_a_password_is_changed(acme: Owner, role: str) -> None:
    """For every role; this browser stays signed in, all other sessions end."""
    with (
        Colleague(acme, role) as colleague,
        Reader.of(acme.url, colleague.email) as here,
        Reader.of(acme.url, colleague.email) as elsewhere,
    ):
        assert colleague.email in here.page(ACCOUNT)
        assert change(here) == 303
        assert "Your password was changed" in here.page(f"{ACCOUNT}?changed=1")
        assert elsewhere.get(ACCOUNT).status_code == 303
        assert colleague.http.get("/auth/me").status_code == 401
        assert (colleague.login().status_code, colleague.login(password=NEW).status_code) == (401, 200)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"current": "not this one"}, "current_password: is not your current password"),
        ({"new": "short"}, "new_password: "),
        ({"repeated": "something else"}, "The two new passwords differ"),
    ],
)
def test_a_refused_password_changes_nothing(newcomer: Owner, fields: dict[str, str], said: str) -> None:
    """400 on the page, no password in it, and all sessions stay valid."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert change(reader, **fields) == 400
        sent = {"current_password": fields.get("current", PASSWORD), "new_password": fields.get("new", NEW)}
        sent["repeated"] = fields.get("repeated", sent["new_password"])
        answer = reader.submit(f"{ACCOUNT}/password", token=reader.token(), **sent)
        assert (answer.status_code, said in text_of(answer.text)) == (400, True)
        assert newcomer.http.get("/auth/me").status_code == 200


def test_guesses_at_the_password_are_slowed(newcomer: Owner) -> None:
    """As at sign-in, so that an open browser is no way to guess."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        codes = [change(reader, current="wrong") for _ in range(7)]
    assert codes[:5] == [400] * 5
    assert codes[-1] == 429


def test_an_inactive_organizations_users_change_passwords(gateway: LiveGateway, newcomer: Owner) -> None:
    """Its settings pages say that it is inactive."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        set_active(gateway, newcomer, active=False)
        assert "is not active" in reader.page(ACCOUNT)
        assert change(reader) == 303


def test_a_reset_request_reveals_no_account(acme: Owner, stranger: Reader) -> None:
    """Registered or not, the page is the same; without e-mail it names whom to ask."""
    assert "/console/forgotten" in stranger.page("/console/sign-in")
    stranger.page("/console/forgotten")
    answers = [stranger.submit("/console/forgotten", email=one) for one in (acme.email, fresh_email())]
    assert [one.status_code for one in answers] == [202, 202]
    assert answers[0].text == answers[1].text
    assert "sends no e-mail" in answers[0].text
    wrong = stranger.submit("/console/forgotten", email='"><script>')
    assert (wrong.status_code, "is not an e-mail address" in wrong.text) == (400, True)
    assert '"><script>' not in wrong.text
