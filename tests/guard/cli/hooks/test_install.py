"""The guard in somebody's settings file: what is theirs stays, and what is the guard's comes and goes."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.hooks.claude_code import DISABLING_VARIABLES
from toolgate_cli.hooks.commands import installed_command

THEIRS: dict[str, Any] = {
    "permissions": {"allow": ["Bash(ls)"], "note": "größer"},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "/usr/bin/true"}]},
            {"matcher": "Read", "hooks": []},
        ],
        "Stop": [{"hooks": [{"type": "command", "command": "toolgate hook claude-code"}]}],
        "Notification": [],
    },
    "model": "opus",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TOOLGATE_")]:
        monkeypatch.delenv(name)
    for name in ("CLAUDE_CONFIG_DIR", *DISABLING_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["hook", *words])
    assert done.exit_code == code, done.output
    return done.output


def settings_of(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def guards(settings: dict[str, Any], event: str) -> list[dict[str, Any]]:
    found = [hook for group in settings["hooks"].get(event, []) for hook in group["hooks"]]
    return [hook for hook in found if hook["command"] in {"toolgate", installed_command()}]


def test_what_is_written_fails_closed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tool is asked about by a command without a shell, failures block, and no key is written."""
    monkeypatch.setenv("TOOLGATE_API_KEY", "ak_" + "s" * 37)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", "agent-1")
    run(
        "install",
        "--url",
        "https://gateway.example.com",
        "--hold-timeout",
        "600",
        "--tool-action",
        "Bash=a.b",
    )
    content = (project / ".claude" / "settings.json").read_text()
    found = json.loads(content)
    assert [group["matcher"] for group in found["hooks"]["PreToolUse"]] == ["*"]
    (hook,) = guards(found, "PreToolUse")
    assert (hook["type"], hook["onFailure"]) == ("command", "block")
    assert hook["timeout"] > 600
    assert hook["command"] == "toolgate"
    assert hook["args"][:2] == ["hook", "claude-code"]
    text = " ".join(hook["args"])
    for words in ("--url https://gateway.example.com", "--agent agent-1", "--tool-action Bash=a.b", "600"):
        assert words in text
    assert len(guards(found, "PostToolUse")) == len(guards(found, "PostToolUseFailure")) == 1
    assert "ssss" not in content


def test_everything_else_stays_and_comes_back(project: Path) -> None:
    """Installed once or twice the file is the same; uninstalled it is what it was, in the order it had."""
    file = project / "mine.json"
    file.write_text(json.dumps(THEIRS, indent=2, ensure_ascii=False) + "\n")
    file.chmod(0o640)
    before = file.read_text()
    run("install", "--file", str(file))
    once = file.read_text()
    assert len(guards(settings_of(file), "PreToolUse")) == 1
    assert settings_of(file)["hooks"]["PreToolUse"][:2] == THEIRS["hooks"]["PreToolUse"]
    run("install", "--file", str(file))
    assert file.read_text() == once
    run("install", "--file", str(file), "--on-hold", "tell")
    (hook,) = guards(settings_of(file), "PreToolUse")
    assert hook["args"][3] == "tell"
    run("uninstall", "--file", str(file))
    assert file.read_text() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in project.iterdir()] == ["mine.json"]
    assert "nothing is installed" in run("uninstall", "--file", str(file))


def test_a_hook_beside_ours_in_one_group_stays(project: Path) -> None:
    """Whoever put their own hook beside the guard's keeps it."""
    file = project / "mine.json"
    run("install", "--file", str(file))
    found = settings_of(file)
    own = {"type": "command", "command": "/opt/toolgate/notify"}
    found["hooks"]["PostToolUse"][0]["hooks"].append(own)
    file.write_text(json.dumps(found))
    run("uninstall", "--file", str(file))
    assert settings_of(file) == {"hooks": {"PostToolUse": [{"matcher": "*", "hooks": [own]}]}}


def test_where_it_goes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's file, the one that is not committed, the user's, and where Claude Code is told to have it."""
    run("install", "--local")
    assert [each.name for each in (project / ".claude").iterdir()] == ["settings.local.json"]
    run("install", "--user")
    assert (project.parent / "home" / ".claude" / "settings.json").exists()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project.parent / "config"))
    run("install", "--user")
    assert (project.parent / "config" / "settings.json").exists()
    assert "exclude each other" in run("install", "--user", "--local", code=1)


def test_printed_nothing_is_written(project: Path) -> None:
    """`--print` shows the very file, and leaves everything as it is."""
    shown = run("install", "--print")
    assert list(project.iterdir()) == []
    run("install")
    assert (project / ".claude" / "settings.json").read_text() == shown


def test_a_link_stays_one(project: Path) -> None:
    """Settings that are kept elsewhere and linked are changed there."""
    kept = project / "dotfiles.json"
    kept.write_text("{}")
    link = project / "settings.json"
    link.symlink_to(kept)
    run("install", "--file", str(link))
    assert link.is_symlink()
    assert guards(settings_of(kept), "PreToolUse")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not valid JSON"),
        ('{"hooks": {}} // mine', "not valid JSON"),
        ('{"model": "a", "model": "b"}', "twice"),
        ("[]", "not a JSON object"),
        ('{"hooks": []}', "'hooks'"),
        ('{"hooks": {"PreToolUse": {}}}', "'PreToolUse'"),
        ('{"hooks": {"PreToolUse": [{"matcher": "*"}]}}', "'PreToolUse'"),
        ('{"disableAllHooks": true}', "disableAllHooks"),
        ('{"env": {"CLAUDE_CODE_SIMPLE": "1"}}', "CLAUDE_CODE_SIMPLE"),
        ('{"env": {"CLAUDE_CODE_SAFE_MODE": true}}', "CLAUDE_CODE_SAFE_MODE"),
    ],
)
def test_what_cannot_be_read_is_left_as_it_was(project: Path, content: str, why: str) -> None:
    """A file that is not understood, or would switch the guard off, is refused and not touched."""
    file = project / "mine.json"
    file.write_text(content)
    assert why in run("install", "--file", str(file), code=1)
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("other", "content"),
    [
        ("../home/.claude/settings.json", '{"disableAllHooks": true}'),
        ("../home/.claude/settings.json", '{"env": {"CLAUDE_CODE_SIMPLE": "1"}}'),
        (".claude/settings.local.json", '{"disableAllHooks": true}'),
    ],
)
def test_where_other_settings_switch_hooks_off_nothing_is_guarded(
    project: Path, other: str, content: str
) -> None:
    """Settings that count beside these would have the guard be there and never asked: they are named."""
    file = project / other
    file.parent.mkdir(parents=True)
    file.write_text(content)
    said = run("install", code=1)
    assert "disables all hooks" in said
    assert file.name in said
    assert not (project / ".claude" / "settings.json").exists()
    file.write_text('{"disableAllHooks": false, "env": {"CLAUDE_CODE_SIMPLE": "0"}}')
    assert "disableSkillShellExecution" in run("install")


def test_where_the_environment_switches_hooks_off_nothing_is_guarded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of the shell's that Claude Code would be started with is named, and a wrong one of the guard's is."""
    monkeypatch.setenv("CLAUDE_CODE_SAFE_MODE", "1")
    assert "CLAUDE_CODE_SAFE_MODE" in run("install", code=1)
    monkeypatch.delenv("CLAUDE_CODE_SAFE_MODE")
    monkeypatch.setenv("TOOLGATE_TIMEOUT", "nan")
    assert "TOOLGATE_TIMEOUT" in run("install", code=1)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--on-hold", "ask"), 2),
        (("--hold-timeout", "0"), 2),
        (("--tool-action", "Bash"), 2),
        (("--url", "gateway"), 1),
    ],
)
def test_what_the_hook_would_refuse_is_not_installed(
    project: Path, words: tuple[str, ...], code: int
) -> None:
    """Options that would block every call are refused when they are written, not at the first call."""
    run("install", *words, code=code)
    assert list(project.iterdir()) == []
