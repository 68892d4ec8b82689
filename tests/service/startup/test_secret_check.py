"""A gateway whose secret does not open the database's keys does not start, and the message names the cure."""

import signal
import subprocess
from pathlib import Path

import pytest
from support.admin import done, refusal
from support.databases import without_warnings
from support.forking import FORK_SERVER
from support.gateway import LiveGateway, Owner
from support.serving import Serving, environment, run_serve

OTHER = "another secret, long enough for a gateway"


@pytest.fixture
def registered(tmp_path: Path) -> LiveGateway:
    """A stopped gateway with one organization."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url):
        pass
    return gateway


def _refused(ended: subprocess.CompletedProcess[str]) -> str:
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    (line,) = without_warnings(ended.stderr).splitlines()
    return line


def _serve(gateway: LiveGateway, secret: str) -> subprocess.CompletedProcess[str]:
    extra = {"TOOLGATE_DATABASE_URL": gateway.database_url, "TOOLGATE_SECRET": secret}
    return run_serve(gateway.folder, extra=extra)


def test_serve_refuses_secret_that_opens_no_key(registered: LiveGateway) -> None:
    line = _refused(_serve(registered, OTHER))
    assert "were encrypted with another secret: TOOLGATE_SECRET contains a different secret" in line
    assert (
        "set TOOLGATE_SECRET to the former secret; if you changed the secret on purpose, set TOOLGATE_SECRET_PREVIOUS"
        in line
    )
    assert OTHER not in line


def test_previous_secret_is_enough_to_start(registered: LiveGateway) -> None:
    previous = registered.env["TOOLGATE_SECRET"]
    env = {"TOOLGATE_SECRET": OTHER, "TOOLGATE_SECRET_PREVIOUS": previous}
    with LiveGateway(registered.folder, env=env) as gateway:
        assert gateway.announced


def test_any_secret_starts_database_without_keys(tmp_path: Path) -> None:
    with LiveGateway(tmp_path):
        pass
    with LiveGateway(tmp_path, env={"TOOLGATE_SECRET": OTHER}) as gateway:
        assert gateway.announced


def test_lost_secret_is_given_up_by_command(registered: LiveGateway) -> None:
    """The command discards what only the lost secret opens; then another secret starts, and the command changes nothing."""
    other = {"TOOLGATE_SECRET": OTHER}
    assert done(registered, "rotate-secret", "--discard-unreadable")[0].startswith(
        "deleted 0 encrypted values"
    )
    assert done(registered, "rotate-secret", "--discard-unreadable", env=other)[0].startswith(
        "deleted 2 encrypted values that none of the known secrets can decrypt"
    )
    assert done(registered, "rotate-secret", "--discard-unreadable", env=other)[0].startswith("deleted 0 ")
    with LiveGateway(registered.folder, env=other) as gateway, Owner(gateway.url) as owner:
        bot = owner.agent()
        owner.permit(bot, "mail.send")
        assert owner.check(bot, "mail.send").json()["allowed"] is True


def test_admin_creates_no_organization_with_wrong_secret(registered: LiveGateway) -> None:
    words = ("create-organization", "New", "new@example.test")
    assert "were encrypted with another secret" in refusal(registered, *words, env={"TOOLGATE_SECRET": OTHER})
    assert done(registered, *words)[0].startswith("created 'New'")


@pytest.mark.sqlite_only("a gateway on PostgreSQL keeps its secret in no file")
def test_missing_secret_file_is_not_replaced(tmp_path: Path) -> None:
    """Neither serve nor an admin command creates a secret that could not open the keys; config check says the same."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as serving:
        serving.listening().register()
        assert serving.ended_by(signal.SIGTERM, 10) == 0
    secret = home / ".config" / "toolgate" / "secret"
    content = secret.read_bytes()
    secret.unlink()
    line = _refused(run_serve(home))
    assert f"the secret file '{secret}' is missing" in line
    assert f"restore the former secret in '{secret}'" in line
    words = ("create-organization", "New", "new@example.test")
    assert "is missing" in _refused(FORK_SERVER.run("admin", *words, env=environment(home)))
    checked = FORK_SERVER.run("config", "check", env=environment(home))
    assert (checked.returncode, "is missing" in checked.stdout) == (1, True)
    assert list(secret.parent.iterdir()) == []
    secret.write_bytes(b"a different secret in the same file")
    assert f"'{secret}' contains a different secret" in _refused(run_serve(home))
    secret.write_bytes(content)
    with Serving(home) as serving:
        serving.listening()
