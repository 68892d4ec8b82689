"""`toolgate login`, `logout` and `whoami`, as a user types them."""

import base64
import json
import stat
from pathlib import Path

import httpx
import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, LiveGateway, Owner

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


#: no header can carry it, and an error of the HTTP library would quote it
_BAD_TOKEN = '{"url": "http://127.0.0.1:9", "email": "a@b.test", "token": "sesame\\n"}'


@pytest.fixture
def user(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home")


def token_of(user: CommandLine) -> str:
    token: str = json.loads(user.login_file.read_text())["token"]
    return token


def status(owner: Owner, token: str) -> int:
    """What the gateway says to a token."""
    answer = httpx.get(f"{owner.url}/auth/me", headers={"Authorization": f"Bearer {token}"}, timeout=30)
    return answer.status_code


def test_only_a_cli_token_is_stored(user, owner: Owner):
    """What the login leaves is its owner's alone and of scope cli; the password is in it nowhere, the API key neither."""
    said = user.done(
        "login", "--url", f"{owner.url}/", "--email", owner.email, "--password-stdin", typed=PASSWORD
    )
    assert said == f"logged in as {owner.email} at {owner.url}\n"
    assert stat.S_IMODE(user.login_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(user.login_file.parent.stat().st_mode) == 0o700
    stored = user.login_file.read_text()
    assert PASSWORD not in stored
    assert json.loads(stored).keys() == {"url", "email", "token"}
    payload = token_of(user).split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["scope"] == "cli"
    bearer = {"Authorization": f"Bearer {token_of(user)}"}
    assert "…" in httpx.get(f"{owner.url}/api/organization", headers=bearer, timeout=30).json()["api_key"]
    assert user.done("whoami") == f"{owner.email} · Acme · {owner.url}\n"


def test_the_password_is_asked_for_unseen(user, owner: Owner):
    """At a terminal the e-mail and the password are asked for; the terminal never shows the password."""
    with user.at_terminal("login", "--url", owner.url) as terminal:
        shown = terminal.wait_for(": ")
        terminal.type(owner.email)
        shown += terminal.wait_for(f"Password of {owner.email} at {owner.url}: ")
        terminal.type(PASSWORD)
        assert terminal.end() == 0
        shown += terminal.shown
    assert "logged in as" in shown
    assert PASSWORD not in shown


def test_the_email_is_asked_for_in_vain(user):
    """Ctrl-C at the question for the e-mail ends with the status it has everywhere, and without a word."""
    with user.at_terminal("login") as terminal:
        terminal.wait_for("E-mail of your account")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Aborted" not in terminal.shown


def test_logout_ends_the_login_everywhere(user, owner: Owner):
    """The gateway takes the token no more and the file is gone; afterwards commands say what to do."""
    user.log_in(owner)
    token = token_of(user)
    assert status(owner, token) == 200
    assert user.done("logout") == "logged out\n"
    assert status(owner, token) == 401
    assert not user.login_file.exists()
    assert "toolgate login" in user.refused("logout")
    assert "toolgate login" in user.refused("whoami")


def test_a_login_that_ended_elsewhere_is_told(user, owner: Owner):
    """A revoked token gets one line that says what to do, and can still be logged out."""
    user.log_in(owner)
    httpx.post(f"{owner.url}/auth/logout", headers={"Authorization": f"Bearer {token_of(user)}"}, timeout=30)
    assert user.refused("whoami") == "your login has expired or was revoked; log in again: toolgate login"
    assert user.done("logout") == "logged out\n"
    assert not user.login_file.exists()


def test_logging_in_again_ends_the_former_login(user, owner: Owner):
    """No token is left that works and that nobody has; the gateway and the e-mail are remembered."""
    user.log_in(owner)
    former = token_of(user)
    user.done("login", "--password-stdin", typed=PASSWORD)
    assert (status(owner, former), status(owner, token_of(user))) == (401, 200)


def test_a_wrong_login_stores_nothing(user, owner: Owner):
    """One line on standard error, status 1, no file; the password is not repeated."""
    words = ("login", "--url", owner.url, "--email", owner.email)
    line = user.refused(*words, "--password-stdin", typed="not the password\n")
    assert "not the password" not in line
    assert not user.login_file.parent.exists()
    assert "--password-stdin" in user.refused(*words)
    assert "first line" in user.refused(*words, "--password-stdin", typed="\n")
    assert "--email" in user.refused("login", "--url", owner.url, "--password-stdin", typed=PASSWORD)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://gateway.example", "https"),
        ("http://127.0.0.1.evil.example:8000", "https"),
        ("gateway.example", "https://gateway.example.com"),
        ("https://ada:hunter22@gateway.example", "user or password"),
    ],
)
def test_a_password_does_not_travel_readable(user, url, word):
    """Plain http is for this machine only; what is no address is refused before a password is asked for."""
    line = user.refused(
        "login", "--url", url, "--email", "a@example.test", "--password-stdin", typed=PASSWORD
    )
    assert word in line
    assert "hunter22" not in line


def test_a_login_that_others_can_read_is_not_used(user, owner: Owner):
    """A file open to others and a link are refused in one line; logging in again replaces the first, not the second."""
    user.log_in(owner)
    user.login_file.chmod(0o644)
    assert "0644" in user.refused("whoami")
    user.log_in(owner)
    assert user.done("whoami")
    user.login_file.rename(user.home / "moved.json")
    user.login_file.symlink_to(user.home / "moved.json")
    assert "symbolic link" in user.refused("whoami")
    words = ("login", "--url", owner.url, "--email", owner.email, "--password-stdin")
    assert "symbolic link" in user.refused(*words, typed=PASSWORD)


def test_a_broken_login_is_told(user, owner: Owner):
    """A file that is no login ends in one line that names the cure, and quotes nothing of it."""
    user.log_in(owner)
    for content in ("{", "[]", '{"url": 1, "email": "sesame", "token": "sesame"}', "\xff", _BAD_TOKEN):
        user.login_file.write_text(content)
        line = user.refused("whoami")
        assert "log in again" in line
        assert "sesame" not in line


def test_without_the_gateway_nothing_is_forgotten(user, tmp_path):
    """A logout that cannot be told to the gateway says so and keeps the login, unless the file alone is meant."""
    with LiveGateway(tmp_path / "gateway") as gateway, Owner(gateway.url) as owner:
        user.log_in(owner)
        gateway.kill()
        line = user.refused("logout")
        assert "still logged in" in line
        assert token_of(user) not in line
        assert user.login_file.exists()
        assert "removed" in user.done("logout", "--here-only")
        assert not user.login_file.exists()
        gateway.start()
