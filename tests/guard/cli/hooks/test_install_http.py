"""The guard in somebody's settings file as a server that is asked: what is written, and where it is refused."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.elsewhere import alone
from typer.testing import CliRunner

from toolgate._files import PrivateFileError
from toolgate_cli.app import app
from toolgate_cli.hooks.claude_code import SECRET_VARIABLE
from toolgate_cli.hooks.server import find_secret, secret_path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["hook", *words])
    assert done.exit_code == code, done.output
    return done.output


def hooks_of(project: Path) -> dict[str, Any]:
    found = json.loads((project / ".claude" / "settings.json").read_text())
    return {event: group["hooks"] for event, (group,) in found["hooks"].items()}


def test_what_is_written_fails_closed(project: Path) -> None:
    """Every tool is asked about on this machine, failures block, and the secret is named where it is not written."""
    said = run("install", "--http", "--port", "9000", "--hold-timeout", "600")
    hooks = hooks_of(project)
    assert set(hooks) == {"PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionEnd"}
    (asking,) = hooks["PreToolUse"]
    assert asking.pop("timeout") > 600
    assert asking == {
        "type": "http",
        "url": "http://127.0.0.1:9000/claude-code",
        "headers": {"Authorization": f"Bearer ${SECRET_VARIABLE}"},
        "allowedEnvVars": [SECRET_VARIABLE],
        "onFailure": "block",
    }
    secret = secret_path().read_text().strip()
    assert stat.S_IMODE(secret_path().stat().st_mode) == 0o600
    assert secret == find_secret()
    assert secret not in said + (project / ".claude" / "settings.json").read_text()
    assert f'export {SECRET_VARIABLE}="$(cat {secret_path()})"' in said
    run("install", "--http")
    assert secret_path().read_text().strip() == secret


def test_a_secret_of_ones_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is made, and none is told to be read from a file that is not there."""
    monkeypatch.setenv(SECRET_VARIABLE, "mine" * 10)
    said = run("install", "--http")
    assert f"export {SECRET_VARIABLE}=…, with the value that the variable has in this shell" in said
    assert "mine" not in said + (project / ".claude" / "settings.json").read_text()
    assert not secret_path().exists()


def test_one_takes_the_place_of_the_other_and_goes(project: Path) -> None:
    """There is one guard in a file, however it is asked, and its removal leaves nothing."""
    run("install")
    run("install", "--http")
    assert [hook["type"] for hooks in hooks_of(project).values() for hook in hooks] == ["http"] * 4
    run("install")
    assert [hook["type"] for hooks in hooks_of(project).values() for hook in hooks] == ["command"] * 3
    run("install", "--http")
    run("uninstall")
    assert (project / ".claude" / "settings.json").read_text() == "{}\n"


def test_printed_nothing_is_written(project: Path) -> None:
    """Neither the settings nor a secret."""
    assert '"type": "http"' in run("install", "--http", "--print")
    assert list(project.iterdir()) == []
    assert not secret_path().exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--http", "--agent", "agent-1"), "toolgate hook serve"),
        (("--http", "--tool-action", "Bash=a.b"), "toolgate hook serve"),
        (("--port", "9000"), "--http"),
    ],
)
def test_what_the_server_is_told_is_not_installed(project: Path, words: tuple[str, ...], why: str) -> None:
    """Options that nobody would look at are refused."""
    assert why in run("install", *words, code=1)
    assert list(project.iterdir()) == []


def test_where_a_proxy_would_be_asked_nothing_is_installed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code asks a proxy for this machine as well, whose machine is another: the variable is named."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example.com")
    assert "HTTPS_PROXY" in run("install", "--http", code=1)
    monkeypatch.setenv("NO_PROXY", "localhost, 127.0.0.1")
    run("install", "--http")
    monkeypatch.setenv("no_proxy", "localhost")
    assert "HTTPS_PROXY" in run("install", "--http", code=1)
    monkeypatch.delenv("no_proxy")
    user = project.parent / "home" / ".claude" / "settings.json"
    user.parent.mkdir(parents=True)
    user.write_text('{"env": {"http_proxy": "http://proxy.example.com:3128", "NO_PROXY": ""}}')
    assert "http_proxy" in run("install", "--http", code=1)
    run("install")


@pytest.mark.parametrize("content", ["short", "a" * 40 + " b" * 8, ""])
def test_a_secret_that_is_none_is_refused(project: Path, content: str) -> None:
    """What can be guessed, or cannot stand in a header, guards nothing."""
    secret_path().parent.mkdir(parents=True, mode=0o700)
    secret_path().write_text(content)
    secret_path().chmod(0o600)
    with pytest.raises(PrivateFileError, match="hook-secret"):
        find_secret()
    secret_path().chmod(0o644)
    with pytest.raises(PrivateFileError, match="other users"):
        find_secret()


def test_half_a_character_stays_as_it_was(project: Path) -> None:
    """It can stand in JSON as an escape, and is nothing that could be written otherwise."""
    file = project / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"a": "\\ud83d"}')
    run("install", "--http")
    run("uninstall")
    assert json.loads(file.read_text()) == {"a": "\ud83d"}
