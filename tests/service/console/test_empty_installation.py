"""First visit to a gateway without accounts."""

import re
from pathlib import Path

import pytest
from support.admin import done, refusal
from support.console import Reader
from support.gateway import PASSWORD, LiveGateway
from support.team import fresh_email

REGISTER = "/console/register"
SIGN_IN = "/console/sign-in"


def landing(reader: Reader, path: str) -> tuple[str, str]:
    """Follow redirects like a browser; return the final path and page."""
    for _ in range(5):
        answer = reader.get(path, Accept="text/html")
        if answer.status_code != 303:
            assert answer.status_code == 200, answer.text
            return path, answer.text
        path = answer.headers["Location"]
    raise AssertionError(f"redirects without an end, last to {path}")


def test_an_empty_installation_opens_registration(tmp_path: Path) -> None:
    """`/` and every page lead to registration; once an account exists, to the sign-in page."""
    with LiveGateway(tmp_path) as gateway, Reader(gateway.url) as reader, Reader(gateway.url) as later:
        for path in ("/", "/console", "/console/approvals?environment=test", SIGN_IN):
            way, page = landing(reader, path)
            assert (way, 'name="organization_name"' in page) == (REGISTER, True)
            # This link would lead back here.
            assert SIGN_IN not in page
        answer = reader.submit(
            REGISTER, email=fresh_email(), password=PASSWORD, organization_name="The first"
        )
        assert (answer.status_code, answer.headers["Location"]) == (303, "/console/start")
        assert landing(reader, "/")[0] == "/console/approvals"
        assert landing(later, "/")[0] == SIGN_IN
        assert SIGN_IN in later.page(REGISTER)


@pytest.mark.parametrize("mode", ["invite", "closed"])
def test_without_registration_the_command_is_named(tmp_path: Path, mode: str) -> None:
    """The page names a command that works; afterwards the page is gone."""
    with LiveGateway(tmp_path, env={"TOOLGATE_REGISTRATION": mode}) as gateway, Reader(gateway.url) as reader:
        way, page = landing(reader, "/")
        assert (way, "<form" in page) == (REGISTER, False)
        assert "toolgate admin create-organization NAME EMAIL" in page
        email = fresh_email()
        created, link, *_ = done(gateway, "create-organization", "Acme", email)
        assert created == f"created 'Acme' on the enterprise plan; its admin is {email}"
        token = link.partition("#token=")[2]
        answer = reader.submit("/console/password-reset", token=token, new_password=PASSWORD)
        assert answer.headers["Location"] == f"{SIGN_IN}?changed=1"
        with Reader.of(gateway.url, email) as admin:
            assert "Acme" in admin.page("/console/settings")
            answer = admin.submit("/console/settings/keys/show", token=admin.token())
            assert re.search(r"\bak_[a-z0-9]{37}\b", answer.text)
        assert landing(reader, "/")[0] == SIGN_IN
        # Registration stays closed, so no form is shown that would be refused.
        page = reader.page(REGISTER)
        assert ("<form" in page, "create-organization" in page) == (False, False)


@pytest.mark.parametrize(
    ("name", "email", "says"),
    [("", "a@example.test", "NAME"), ("Acme", "nobody", "EMAIL"), ("Acme", "", "EMAIL")],
)
def test_a_wrong_name_or_email_creates_nothing(
    gateway: LiveGateway, name: str, email: str, says: str
) -> None:
    """One line names the invalid argument."""
    assert f"toolgate: {says}: " in refusal(gateway, "create-organization", name, email)


def test_an_email_is_registered_once(gateway: LiveGateway) -> None:
    """A second organization with the same administrator is refused; the first link still works."""
    email = fresh_email()
    link = done(gateway, "create-organization", "Acme", email)[1]
    assert "E-mail already registered" in refusal(gateway, "create-organization", "Acme", email.upper())
    with Reader(gateway.url) as reader:
        token = link.partition("#token=")[2]
        answer = reader.submit("/console/password-reset", token=token, new_password=PASSWORD)
        assert answer.status_code == 303


@pytest.mark.sqlite_only("a server's secret is always set")
def test_the_command_creates_no_second_secret(gateway: LiveGateway, tmp_path: Path) -> None:
    """Run by another user, the command would encrypt keys with a secret that the gateway does not have."""
    env = {"TOOLGATE_SECRET": "", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    told = refusal(gateway, "create-organization", "Acme", fresh_email(), env=env)
    assert f"the secret file '{tmp_path}" in told
    assert "is missing" in told
    assert "TOOLGATE_SECRET" in told
    assert list(tmp_path.iterdir()) == []
