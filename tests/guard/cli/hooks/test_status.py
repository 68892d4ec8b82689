"""`toolgate frameworks` on Claude Code: whether it would ask the guard in this folder, and what stands in the way."""

import json
import os
from pathlib import Path
from typing import Any

import claude_agent_sdk._cli_version
import pytest
from support.elsewhere import alone, claude
from support.frameworks.claude_cli import claude_program
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.hooks.claude_code import OLDEST, TESTED
from toolgate_integrations import _registry


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_registry, "survey", list)
    return alone(tmp_path, monkeypatch)


def settings(project: Path, name: str, **changes: Any) -> None:
    file = project / ".claude" / name
    found = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**found, **changes}))


def install(*words: str) -> None:
    assert CliRunner().invoke(app, ["hook", "install", *words]).exit_code == 0


def told(*words: str) -> dict[str, Any]:
    """What is said of it; the status says whether it asks the guard."""
    ended = CliRunner().invoke(app, ["frameworks", "--json", *words])
    assert ended.stderr == ""
    (one,) = json.loads(ended.stdout)
    assert one["framework"] == "claude-code"
    assert ended.exit_code == (not one["guarded"] and not one["ignored"])
    assert bool(one["cure"]) != one["guarded"]
    return dict(one)


def test_where_it_is_not_nothing_is_said(project: Path) -> None:
    """No program on PATH, and no settings."""
    assert CliRunner().invoke(app, ["frameworks", "--json"]).stdout == "[]\n"


def test_the_real_one(project: Path) -> None:
    """Its version is asked of the program itself, and is the one that is tested with."""
    (project.parent / "bin" / "claude").symlink_to(claude_program())
    found = told()
    assert found["version"] == TESTED == claude_agent_sdk._cli_version.__cli_version__
    assert (found["state"], found["cure"]) == ("no hooks", "toolgate hook install")
    install("--user")
    assert told()["state"] == "covered"
    assert sorted(path.name for path in project.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--local",), ("--user",), ("--http",)])
def test_installed_it_is_covered(project: Path, words: tuple[str, ...]) -> None:
    """In whichever file of those that count here, by command or over HTTP."""
    claude(project.parent)
    install(*words)
    found = told()
    assert (found["plugin"], found["from"], found["tested"]) == ("toolgate hook claude-code", OLDEST, TESTED)
    assert found["state"] == "covered"


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("2.1.294", "too old"),
        ("2.1.9", "too old"),
        ("2.1.295", "covered"),
        ("2.9.0", "untested"),
        ("3.0.0", "too new"),
        ("none", "unknown"),
    ],
)
def test_its_version(project: Path, version: str, state: str) -> None:
    """Before the oldest a failing hook lets tools run; what a later series does nobody knows."""
    claude(project.parent, version)
    install()
    assert told()["state"] == state


def test_settings_without_a_program(project: Path) -> None:
    """A colleague may have it: what the project's settings say counts."""
    settings(project, "settings.json", model="opus")
    assert told()["state"] == "no hooks"
    install()
    assert (told()["state"], told()["version"]) == ("covered", None)


def test_what_switches_hooks_off(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, where it outweighs what says otherwise."""
    claude(project.parent)
    install()
    user = project.parent / "home"
    settings(user, "settings.json", disableAllHooks=True)
    assert told()["state"] == "disabled"
    settings(project, "settings.json", disableAllHooks=False)
    assert told()["state"] == "covered"
    settings(project, "settings.local.json", disableAllHooks=True)
    assert "disableAllHooks" in told()["says"]
    (project / ".claude" / "settings.local.json").unlink()
    monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "1")
    assert "CLAUDE_CODE_SIMPLE" in told()["says"]
    settings(user, "settings.json", env={"CLAUDE_CODE_SIMPLE": "0", "CLAUDE_CODE_RESTRICTED": "0"})
    assert told()["state"] == "covered"
    monkeypatch.setenv("CLAUDE_CODE_RESTRICTED", "1")
    assert "CLAUDE_CODE_RESTRICTED" in told()["says"]


@pytest.mark.parametrize(
    ("group", "hook"),
    [({}, {"onFailure": "continue"}), ({"matcher": "Bash"}, {}), ({}, {"if": "Bash(git *)"})],
)
def test_hooks_that_were_changed_are_found_out(
    project: Path, group: dict[str, Any], hook: dict[str, Any]
) -> None:
    """One that is not asked about every tool, or whose failure is no objection, is not the guard's as installed."""
    claude(project.parent)
    install()
    file = project / ".claude" / "settings.json"
    found = json.loads(file.read_text())
    (asking,) = found["hooks"]["PreToolUse"]
    asking.update(group)
    asking["hooks"][0].update(hook)
    file.write_text(json.dumps(found))
    said = told()
    assert said["state"] == "no hooks"
    assert "settings.json" in said["says"]
    install()
    assert told()["state"] == "covered"


def test_settings_that_cannot_be_read(project: Path) -> None:
    """Nobody knows what they say."""
    claude(project.parent)
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text("{")
    assert told()["state"] == "unknown"


def test_what_is_no_file_is_not_waited_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is not opened, and a place that cannot be looked at is named."""
    (project / ".claude").mkdir()
    os.mkfifo(project / ".claude" / "settings.json")
    assert "not a regular file" in told()["says"]
    (project / ".claude" / "settings.json").unlink()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "x" * 300)
    assert "File name too long" in told()["says"]


def test_it_can_be_ignored(project: Path) -> None:
    """Whoever uses it for nothing that needs a guard says so."""
    claude(project.parent)
    assert told("--ignore", "Claude-Code")["ignored"]
    ended = CliRunner().invoke(app, ["frameworks"])
    assert ended.exit_code == 1
    assert "claude-code: no hook checks the tool calls of Claude Code in this folder" in ended.stdout
    install()
    ended = CliRunner().invoke(app, ["frameworks"])
    assert ended.stdout.endswith("1 of 1 agent frameworks can be guarded by plugins or hooks\n")
