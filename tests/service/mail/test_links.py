"""Links sent by mail: invitations and password resets."""

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import execute, rows
from support.mailbox import Mailbox
from support.ports import refusing_port
from support.serving import Serving
from support.shapes import complaints, refused
from support.team import TOO_LATE, accept, audited, fresh_email, invite
from support.waiting import until

NEW = "another horse battery"
SENT = "If this e-mail address is registered, an e-mail with a link to set a new password is on its way"
USELESS = "This link was used already, has expired or was replaced by a newer one; request a new link"
PUBLIC_URL = "https://gate.example.test/toolgate"


def accepted(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()) == (202, {"detail": SENT})


def ask(url: str, email: str) -> httpx.Response:
    return httpx.post(f"{url}/auth/password-reset", json={"email": email}, timeout=30)


def confirm(url: str, token: str, password: str = NEW) -> httpx.Response:
    body = {"token": token, "new_password": password}
    return httpx.post(f"{url}/auth/password-reset/confirm", json=body, timeout=30)


def login(owner: Owner, password: str) -> int:
    body = {"email": owner.email, "password": password}
    return httpx.post(f"{owner.url}/auth/login", json=body, timeout=30).status_code


def mails_to(mailbox: Mailbox, email: str, number: int = 1) -> list[str]:
    """Wait for a number of mails to an address and return the tokens of their links."""

    def found() -> list[str]:
        texts = [mail.get_content() for mail in mailbox.mails if mail["To"] == email]
        return texts if len(texts) >= number else []

    texts = until(found)
    assert len(texts) == number
    assert all(f"{PUBLIC_URL}/console/" in text for text in texts)
    return [text.partition("#token=")[2].split()[0] for text in texts]


def reset_token(mailbox: Mailbox, owner: Owner) -> str:
    accepted(ask(owner.url, owner.email))
    return mails_to(mailbox, owner.email)[0]


def test_an_invitation_goes_by_mail_and_not_in_the_answer(anna: Owner, mailbox: Mailbox) -> None:
    """With a mail server the response contains no link; the mail does."""
    email = fresh_email()
    answer = invite(anna, email, "viewer")
    assert (answer.status_code, answer.json()["link"]) == (201, None)
    [token] = mails_to(mailbox, email)
    assert token not in answer.text
    joined = accept(anna.url, token)
    assert (joined.status_code, joined.json()["user"]["email"]) == (200, email)


def test_a_forgotten_password_is_chosen_anew(mailing: LiveGateway, anna: Owner, mailbox: Mailbox) -> None:
    """The mailed link sets the password once: 204, every token ends, the new password works, it is audited."""
    token = reset_token(mailbox, anna)
    [(kept,)] = rows(mailing, "SELECT token_hash FROM password_resets WHERE user_id = ?", anna.user["id"])
    assert len(kept) == 64
    assert kept != token
    answer = confirm(anna.url, token)
    assert (answer.status_code, answer.content) == (204, b"")
    refused(anna.http.get("/auth/me"), 401, "Not authenticated")
    assert (login(anna, NEW), login(anna, PASSWORD)) == (200, 401)
    refused(confirm(anna.url, token, "a third password"), 400, USELESS)
    assert audited(mailing, anna.user["id"]) == [("user.password_reset", anna.user["id"])]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.test"},
        {"X-Forwarded-Host": "evil.test", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.test"},
        {"Origin": "https://evil.test", "Referer": "https://evil.test/"},
    ],
    ids=["host", "forwarded", "page"],
)
def test_no_request_says_where_a_letters_link_leads(
    anna: Owner, mailbox: Mailbox, headers: dict[str, str]
) -> None:
    """Links begin with the public URL, whatever the request contains."""
    email = fresh_email()
    assert invite(anna, email).status_code == 201
    mails_to(mailbox, email)
    answer = httpx.post(
        f"{anna.url}/auth/password-reset", json={"email": anna.email}, headers=headers, timeout=30
    )
    assert answer.status_code == 202
    mails_to(mailbox, anna.email)
    letters = [mail.get_content() for mail in mailbox.mails if mail["To"] in {email, anna.email}]
    assert not any("evil" in letter for letter in letters)


def test_a_link_works_once_under_a_race(anna: Owner, mailbox: Mailbox) -> None:
    """Of ten simultaneous confirmations exactly one wins, and its password is the one that works."""
    token = reset_token(mailbox, anna)
    passwords = [f"password number {number}" for number in range(10)]
    answers = together(*[partial(confirm, anna.url, token, password) for password in passwords])
    assert Counter(answer.status_code for answer in answers) == {204: 1, 400: 9}
    [winner] = [word for word, answer in zip(passwords, answers, strict=True) if answer.status_code == 204]
    assert login(anna, winner) == 200


def test_an_expired_link_is_useless(mailing: LiveGateway, anna: Owner, mailbox: Mailbox) -> None:
    """A link works for an hour."""
    token = reset_token(mailbox, anna)
    lasts = "SELECT created_at, expires_at FROM password_resets WHERE user_id = ?"
    [(made, ends)] = rows(mailing, lasts, anna.user["id"])
    assert datetime.fromisoformat(ends) - datetime.fromisoformat(made) == timedelta(hours=1)
    execute(mailing, "UPDATE password_resets SET expires_at = ? WHERE user_id = ?", TOO_LATE, anna.user["id"])
    refused(confirm(anna.url, token), 400, USELESS)
    assert login(anna, PASSWORD) == 200


def test_a_newer_link_replaces_the_older_and_three_an_hour_are_enough(anna: Owner, mailbox: Mailbox) -> None:
    """Only the newest link works, and at most three mails an hour are sent to a user."""
    tokens: list[str] = []
    for number in range(3):
        accepted(ask(anna.url, anna.email.upper()))
        tokens = mails_to(mailbox, anna.email, number + 1)
    for _ in range(2):
        accepted(ask(anna.url, anna.email))
    another = fresh_email()
    invite(anna, another)
    mails_to(mailbox, another)
    assert mails_to(mailbox, anna.email, 3) == tokens
    for old in tokens[:2]:
        refused(confirm(anna.url, old), 400, USELESS)
    assert confirm(anna.url, tokens[2]).status_code == 204


def test_a_changed_password_ends_open_links(anna: Owner, mailbox: Mailbox) -> None:
    """A change of the password invalidates earlier links."""
    token = reset_token(mailbox, anna)
    body = {"current_password": PASSWORD, "new_password": NEW}
    assert anna.http.post("/auth/password", json=body).status_code == 200
    refused(confirm(anna.url, token, "a third password"), 400, USELESS)
    assert login(anna, NEW) == 200


def test_a_removed_users_link_is_useless(anna: Owner, mailbox: Mailbox) -> None:
    """A link does not work after its user was removed."""
    email = fresh_email()
    invite(anna, email)
    user_id = accept(anna.url, mails_to(mailbox, email)[0]).json()["user"]["id"]
    ask(anna.url, email)
    token = mails_to(mailbox, email, 2)[1]
    assert anna.http.delete(f"/api/team/{user_id}").status_code == 204
    refused(confirm(anna.url, token), 400, USELESS)


def test_nobody_learns_who_is_registered(mailing: LiveGateway, anna: Owner, mailbox: Mailbox) -> None:
    """An unknown e-mail gets the same response with the same headers, and no mail."""
    unknown = fresh_email("unknown")
    answers = [ask(anna.url, email) for email in (anna.email, unknown)]
    varying = {"date", "x-request-id"}
    told = [
        (answer.status_code, answer.content, {k: v for k, v in answer.headers.items() if k not in varying})
        for answer in answers
    ]
    assert told[0] == told[1]
    mails_to(mailbox, anna.email)
    assert unknown not in {mail["To"] for mail in mailbox.mails}


@pytest.mark.parametrize("token", ["", "x", "é" * 300])
def test_a_made_up_token_is_useless(anna: Owner, token: str) -> None:
    """An unknown token gets the same 400 as a used one."""
    refused(confirm(anna.url, token), 400, USELESS)


def test_wrong_fields_are_named_and_the_link_stays_good(anna: Owner, mailbox: Mailbox) -> None:
    """A password that is too short does not use up the link; an invalid e-mail is a 400."""
    token = reset_token(mailbox, anna)
    assert list(complaints(confirm(anna.url, token, "short"))) == ["new_password"]
    assert list(complaints(ask(anna.url, "no address"))) == ["email"]
    assert confirm(anna.url, token).status_code == 204


def test_without_mail_the_answer_says_whom_to_ask(acme: Owner) -> None:
    """Without a mail server every e-mail gets the same response, which names the operator's command."""
    known, unknown = ask(acme.url, acme.email), ask(acme.url, fresh_email())
    assert known.status_code == unknown.status_code == 202
    assert known.content == unknown.content
    assert "toolgate admin reset-password" in known.json()["detail"]


def test_a_mail_server_that_is_down_changes_no_answer(tmp_path: Path) -> None:
    """Responses do not change; the log contains the failure and the domain, and no secret."""
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        "TOOLGATE_MAIL_FROM": "toolgate@gate.example.test",
        "TOOLGATE_PUBLIC_URL": PUBLIC_URL,
        "TOOLGATE_DEFAULT_PLAN": "enterprise",
    }
    with (
        refusing_port() as port,
        Serving(
            home, extra=settings | {"TOOLGATE_SMTP_URL": f"smtp://gate:hush-hush@127.0.0.1:{port}"}
        ) as gateway,
    ):
        gateway.listening()
        with Owner(gateway.url) as owner:
            accepted(ask(gateway.url, owner.email))
            assert invite(owner).status_code == 201
            until(lambda: gateway.complaint.count("was not sent and is retried") == 2)
        log = gateway.complaint
        assert "Email('password reset' to an address at 'example.test')" in log
        assert "Email('invitation' to an address at 'example.test')" in log
        for secret in ("hush-hush", "#token", owner.email, "Traceback"):
            assert secret not in log
        gateway.process.terminate()
        assert gateway.process.wait(timeout=20) == 0
        assert "2 e-mails were not sent before the gateway stopped" in gateway.complaint
