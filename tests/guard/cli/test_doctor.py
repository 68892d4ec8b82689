"""`toolgate doctor`: what is wrong is found, named, and cured by what it says."""

import json
import os
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.certificates import certificate_for
from support.gateway import Owner
from support.pretend_gateway import PretendGateway
from support.shell import Shell

from toolgate_cli import doctor_local as local
from toolgate_cli.credentials import login_path
from toolgate_cli.doctor_local import Finding, hide_secrets

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture
def agent_id(owner: Owner, monkeypatch: pytest.MonkeyPatch, home: Path) -> str:
    """An agent with a permission, whose settings are in the environment; nobody is logged in."""
    agent_id = owner.agent("refund-bot")
    owner.permit(agent_id, "mail.send")
    monkeypatch.setenv("TOOLGATE_URL", owner.url)
    monkeypatch.setenv("TOOLGATE_API_KEY", owner.key)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", agent_id)
    return agent_id


def findings(*options: str) -> dict[str, dict[str, Any]]:
    """What the doctor says, by what it looked at; its status says whether something is wrong."""
    ended = Shell().run("doctor", "--json", *options)
    assert ended.stderr == "", ended.stderr
    assert ended.stdout.isascii()
    found = json.loads(ended.stdout)
    assert ended.exit_code == any(one["state"] == "wrong" for one in found)
    assert all(one["cure"] for one in found if one["state"] in {"wrong", "warning"}), found
    return {one["check"]: one for one in found}


def test_a_sound_machine_is_told_so(owner: Owner, agent_id: str) -> None:
    """Nothing is wrong, nothing was recorded by looking, and the same user is a guardrail and no boundary."""
    found = findings()
    states = {name: one["state"] for name, one in found.items()}
    assert states == {
        **dict.fromkeys(("url", "key", "agent", "gateway", "clock", "key works", "agent works"), "ok"),
        **dict.fromkeys(("login", "files", "installation"), "ok"),
        "users": "warning",
    }
    assert "not a security boundary" in found["users"]["says"]
    assert owner.entries() == []
    shown = Shell().done("doctor")
    assert owner.key not in shown
    assert shown.startswith("ok       url")
    assert "→ run the gateway as another user" in shown


def test_a_former_name_of_a_setting_is_reported(agent_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_OUTBOX_EXIT", "5")
    assert findings()["settings"] == {
        "check": "settings",
        "state": "warning",
        "says": "TOOLGATE_OUTBOX_EXIT is deprecated and accepted until version 0.2",
        "cure": "set TOOLGATE_OUTBOX_FLUSH_TIMEOUT instead",
    }


def test_nothing_set_is_told(home: Path) -> None:
    """Each setting that is missing, with the variable to set."""
    found = findings()
    assert {name: found[name]["state"] for name in ("url", "key", "agent", "gateway")} == {
        "url": "wrong",
        "key": "wrong",
        "agent": "warning",
        "gateway": "unknown",
    }
    assert "TOOLGATE_URL" in found["url"]["cure"]


@pytest.mark.parametrize(
    ("variable", "value", "check", "said"),
    [
        ("TOOLGATE_URL", "gateway", "url", "not a web address"),
        ("TOOLGATE_URL", "http://gateway.example", "url", "could be read"),
        ("TOOLGATE_URL", "https://ada:hunter22@gateway.example", "url", "user or password"),
        ("TOOLGATE_URL", "http://127.0.0.1:9", "gateway", "no program listens"),
        ("TOOLGATE_URL", "https://nowhere.invalid", "gateway", "name"),
        ("TOOLGATE_API_KEY", "two words", "key", "white space"),
        ("TOOLGATE_API_KEY", "ak_" + "x" * 37, "key works", "refuses the key ak_…xxxx"),
        ("TOOLGATE_AGENT_ID", "refund-bot", "agent works", "no agent 'refund-bot'"),
        ("TOOLGATE_AGENT_ID", "x" * 300, "agent", "Invalid TOOLGATE_AGENT_ID"),
        ("TOOLGATE_TIMEOUT", "soon", "settings", "'soon'"),
        ("TOOLGATE_HTTP", "curl", "settings", "'curl'"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_found(
    agent_id: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, check: str, said: str
) -> None:
    """Named by what is wrong with it; no secret is repeated."""
    monkeypatch.setenv(variable, value)
    found = findings()
    assert found[check]["state"] == "wrong", found
    assert said in found[check]["says"]
    assert "hunter22" not in str(found)
    assert "ak_x" not in str(found)


def test_an_agent_that_may_nothing_is_told(owner: Owner, agent_id: str) -> None:
    """It is known, and switched off."""
    owner.http.put(f"/api/agents/{agent_id}", json={"status": "inactive"})
    assert findings()["agent works"]["state"] == "warning"


@pytest.mark.parametrize("action", [None, "mail.*", "calendar.*"])
def test_freeze_of_the_agents_actions_is_reported_with_the_command_that_lifts_it(
    agent_id: str, action: str | None
) -> None:
    with Owner(os.environ["TOOLGATE_URL"]) as owner, pytest.MonkeyPatch.context() as patch:
        # A new organization, because a freeze of all actions would deny the calls of the other tests.
        bot = owner.agent("refund-bot")
        for permitted in ("mail.send", "mail.read"):
            owner.permit(bot, permitted)
        patch.setenv("TOOLGATE_API_KEY", owner.key)
        patch.setenv("TOOLGATE_AGENT_ID", bot)
        assert "freezes" not in findings()
        order = {"action": action, "reason": "Wrong address"}
        made = owner.http.post("/api/freeze", json=order).json()["id"]
        if action == "calendar.*":
            assert "freezes" not in findings()
        else:
            found = findings()["freezes"]
            assert found["state"] == "warning"
            assert all(text in found["says"] for text in ("mail.", "1 more", "Wrong address"))
            assert "toolgate unfreeze FREEZE" in found["cure"]
        assert owner.http.post(f"/api/freeze/{made}/lift").status_code == 200
        assert "freezes" not in findings()
        assert owner.entries() == []
        assert owner.http.get("/api/approvals").json() == []


@pytest.fixture
def pretender(gateway: PretendGateway, monkeypatch: pytest.MonkeyPatch) -> PretendGateway:
    """What answers at the address, where a key is set."""
    monkeypatch.setenv("TOOLGATE_API_KEY", "ak_" + "x" * 37)
    gateway.answers["GET", "/health"] = (200, {"status": "ok", "version": "1"})
    gateway.headers["GET", "/health"] = {"X-API-Version": "1"}
    return gateway


@pytest.mark.parametrize("seconds", [-3600, -40, 40, 3600])
def test_a_clock_that_differs_is_found(pretender: PretendGateway, seconds: int) -> None:
    """Which way, and by how much."""
    theirs = datetime.now(UTC) + timedelta(seconds=seconds)
    pretender.headers["GET", "/health"]["Date"] = format_datetime(theirs, usegmt=True)
    clock = findings()["clock"]
    assert clock["state"] == "wrong"
    assert ("behind" if seconds > 0 else "ahead of") in clock["says"]
    assert "NTP" in clock["cure"]


@pytest.mark.parametrize("date", ["", "noon", "Thu, 32 Jan 2026 00:00:00 GMT", "9" * 50], ids=str)
def test_a_clock_that_is_not_told_is_unknown(pretender: PretendGateway, date: str) -> None:
    """What is no date is no fault of this machine's."""
    pretender.headers["GET", "/health"]["Date"] = date
    assert findings()["clock"]["state"] == "unknown"


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (200, {"status": "ok"}, "not from a Toolgate gateway"),
        (200, [], "not from a Toolgate gateway"),
        (404, {"detail": "Not Found"}, "not from a Toolgate gateway"),
        (308, {}, "redirects to https://elsewhere.example"),
    ],
    ids=str,
)
def test_a_stranger_is_not_given_the_key(
    pretender: PretendGateway, status: int, content: Any, said: str
) -> None:
    """Whatever else answers at the address is told, and no key was sent to it."""
    pretender.answers["GET", "/health"] = (status, content)
    pretender.headers["GET", "/health"]["Location"] = "https://elsewhere.example"
    found = findings()
    assert said in found["gateway"]["says"]
    assert "key works" not in found
    assert not [path for path in pretender.paths() if "/sdk/" in path]


def test_a_stranger_without_our_header_is_found(pretender: PretendGateway) -> None:
    """Many programs have a /health that is ok."""
    pretender.headers["GET", "/health"] = {}
    assert findings()["gateway"]["state"] == "wrong"


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A port that speaks TLS with a certificate of its own for localhost, and the certificate."""
    certificate, key = certificate_for("localhost", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with PretendGateway() as gateway:
        handler = gateway._server.RequestHandlerClass
    server = QuietServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_port, certificate
    server.shutdown()
    thread.join()
    server.server_close()


class QuietServer(HTTPServer):
    def handle_error(self, *_: object) -> None:
        """A handshake that a client refuses is what the tests are about."""


def test_tls_faults_are_told_apart(
    home: Path, tls_port: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, pretender: PretendGateway
) -> None:
    """An authority that nobody trusts, a certificate for another name, and a port that speaks no TLS."""
    port, certificate = tls_port
    untrusted = findings("--url", f"https://localhost:{port}")["tls"]
    assert (untrusted["state"], "SSL_CERT_FILE" in untrusted["cure"]) == ("wrong", True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    other_name = findings("--url", f"https://127.0.0.1:{port}")["tls"]
    assert "another host name" in other_name["says"]
    assert "tls" not in {
        name
        for name, one in findings("--url", f"https://localhost:{port}").items()
        if one["state"] == "wrong"
    }
    no_tls = findings("--url", pretender.url.replace("http:", "https:"))["tls"]
    assert "not use TLS" in no_tls["says"]


def test_rights_of_files_are_looked_at(home: Path, agent_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret, an outbox, a folder that others can use, and a link; chmod as told makes it well."""
    folder = login_path().parent
    folder.mkdir(parents=True)
    for name in ("secret", "outbox.db"):
        (folder / name).write_text("x")
        (folder / name).chmod(0o600)
    folder.chmod(0o700)
    assert findings()["files"]["state"] == "ok"
    elsewhere = home / "elsewhere.db"
    elsewhere.write_text("x")
    monkeypatch.setenv("TOOLGATE_OUTBOX", str(elsewhere))
    stored = home / "elsewhere" / "entries.db"
    stored.parent.mkdir()
    stored.write_text("x")
    stored.chmod(0o600)
    for path, mode in (
        (folder / "secret", 0o644),
        (folder, 0o755),
        (elsewhere, 0o620),
        (stored, 0o640),
    ):
        right = 0o700 if path.is_dir() else 0o600
        elsewhere.chmod(0o600)
        path.chmod(mode)
        found = findings()["files"]
        assert found["state"] == "wrong"
        assert f"{mode:04o}" in found["says"]
        assert found["cure"].startswith(f"chmod {right:o} {path};")
        path.chmod(right)
    (folder / "link").symlink_to(elsewhere)
    assert "symbolic link" in findings()["files"]["says"]


def test_the_login_is_looked_at(shell: Shell, owner: Owner, agent_id: str) -> None:
    """One that works beside an agent's key is a warning; one that ended, or that others can read, is wrong."""
    assert "an agent that runs as this user can use your login" in findings()["login"]["says"]
    content = login_path().read_text()
    login_path().write_text(content.replace('"token": "', '"token": "x'))
    assert "has expired or was revoked" in findings()["login"]["says"]
    login_path().write_text(content)
    login_path().chmod(0o640)
    assert "0640" in findings()["login"]["says"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("top_level.txt", "toolgate_service\n"),
        ("RECORD", "agentgate-1.0.dist-info/METADATA,,\ntoolgate_service/__init__.py,,\n"),
        ("RECORD", "toolgate_service.py,,\n"),
    ],
)
def test_another_distribution_is_found(
    agent_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str
) -> None:
    """One that brings a package of our name, with its name and how to be rid of it."""
    info = tmp_path / "site" / "agentgate-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentgate\nVersion: 1.0\n")
    (info / file).write_text(content)
    monkeypatch.syspath_prepend(str(info.parent))
    found = findings()["installation"]
    assert (found["state"], "agentgate" in found["says"]) == ("wrong", True)
    assert found["cure"].startswith("pip uninstall agentgate")


def test_another_project_called_toolgate_is_found(
    agent_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution of our name that is not ours."""
    info = tmp_path / "site" / "toolgate-9.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolgate\nVersion: 9.0\n")
    monkeypatch.syspath_prepend(str(info.parent))
    assert "belongs to another project" in next(local.find_foreign_imports()).says


@pytest.mark.parametrize(
    ("listeners", "euid", "state"),
    [
        ({1000}, 1000, "warning"),
        ({1000}, 1001, "ok"),
        ({1000}, 0, "warning"),
        (set(), 1000, "unknown"),
        (None, 1, "unknown"),
    ],
    ids=str,
)
def test_users_are_told_apart(
    agent_id: str, monkeypatch: pytest.MonkeyPatch, listeners: set[int] | None, euid: int, state: str
) -> None:
    """The same user, or one who is every user, is no boundary; another user is."""
    real = os.geteuid
    monkeypatch.setattr(local, "find_listening_users", lambda _port: listeners)
    monkeypatch.setattr(local.os, "geteuid", lambda: euid)
    from toolgate_cli.doctor_local import read_local_settings

    (found,) = local.check_users(read_local_settings(None))
    monkeypatch.setattr(local.os, "geteuid", real)
    assert found.state == state


def test_who_listens_is_seen(agent_id: str, owner: Owner) -> None:
    """The gateway of these tests is this very user's; on a port where nobody listens there is nobody."""
    port = int(owner.url.rpartition(":")[2])
    assert local.find_listening_users(port) == {os.geteuid()}
    assert local.find_listening_users(1) == set()


def test_no_finding_shows_a_secret() -> None:
    """Whoever quoted it."""
    shown = hide_secrets(Finding("x", "wrong", "a sesame b", "c sesame"), ["sesame", ""])
    assert (shown.says, shown.cure) == ("a … b", "c …")
