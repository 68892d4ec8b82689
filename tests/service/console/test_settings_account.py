"""One's own account: the password, and the page for whoever forgot it."""

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
    """By whoever it is: this browser goes on, every other session ends, and one signs in with the new one."""
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
        ({"current": "not this one"}, "current_password: is not your password"),
        ({"new": "short"}, "new_password: "),
        ({"repeated": "something else"}, "not typed the same way twice"),
    ],
)
def test_a_password_that_is_not_changed(newcomer: Owner, fields: dict[str, str], said: str) -> None:
    """400 on the page, no password repeated in it, and every session goes on."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert change(reader, **fields) == 400
        sent = {"current_password": fields.get("current", PASSWORD), "new_password": fields.get("new", NEW)}
        sent["repeated"] = fields.get("repeated", sent["new_password"])
        answer = reader.submit(f"{ACCOUNT}/password", token=reader.token(), **sent)
        assert (answer.status_code, said in text_of(answer.text)) == (400, True)
        assert newcomer.http.get("/auth/me").status_code == 200


def test_guesses_at_the_password_are_slowed(newcomer: Owner) -> None:
    """As at signing in: a browser left open is no place to guess."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        codes = [change(reader, current="wrong") for _ in range(7)]
    assert codes[:5] == [400] * 5
    assert codes[-1] == 429


def test_a_leaked_password_is_mended_without_paying(gateway: LiveGateway, newcomer: Owner) -> None:
    """Also in an organization that is not active, which says so on every page of its settings."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        set_active(gateway, newcomer, active=False)
        assert "is not active" in reader.page(ACCOUNT)
        assert change(reader) == 303


def test_who_forgot_the_password_is_told_the_same(acme: Owner, stranger: Reader) -> None:
    """Registered or not, the page is the same; what is no address is told. Without mail it says whom to ask."""
    assert "/console/forgotten" in stranger.page("/console/sign-in")
    stranger.page("/console/forgotten")
    answers = [stranger.submit("/console/forgotten", email=one) for one in (acme.email, fresh_email())]
    assert [one.status_code for one in answers] == [202, 202]
    assert answers[0].text == answers[1].text
    assert "sends no mail" in answers[0].text
    wrong = stranger.submit("/console/forgotten", email='"><script>')
    assert (wrong.status_code, "is not an e-mail address" in wrong.text) == (400, True)
    assert '"><script>' not in wrong.text
