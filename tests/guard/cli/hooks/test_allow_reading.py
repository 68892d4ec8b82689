"""`toolgate hook install --allow-reading`: one permission for the tools that only read."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, LiveGateway, Owner

from toolgate_cli.hooks.agents import READING_ACTION, READING_TOOLS, add_reading_actions
from toolgate_cli.hooks.commands import installed_command

SETTINGS = Path(".claude") / "settings.json"


@pytest.fixture
def owner(live_gateway: LiveGateway) -> Iterator[Owner]:
    """An admin of an organization of the test's own."""
    with Owner(live_gateway.url) as owner:
        yield owner


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, in which commands are run."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A user of the command line with a home of their own, and toolgate on PATH."""
    line = CommandLine(tmp_path / "home")
    line.env["PATH"] = f"{Path(installed_command()).parent}{os.pathsep}{line.env['PATH']}"
    return line


def permissions(owner: Owner, agent: str) -> list[tuple[str, bool]]:
    found = owner.http.get(f"/api/agents/{agent}/permissions").json()
    return [(one["action"], one["requires_approval"]) for one in found]


def words(owner: Owner, agent: str) -> list[str]:
    return ["hook", "install", "--url", owner.url, "--agent", agent, "--allow-reading"]


def actions(project: Path) -> dict[str, str]:
    (group,) = json.loads((project / SETTINGS).read_text())["hooks"]["PreToolUse"]
    given = group["hooks"][0]["args"]
    pairs = [given[at + 1] for at, word in enumerate(given) if word == "--tool-action"]
    return dict(pair.split("=") for pair in pairs)


def test_only_tools_that_read_are_among_them() -> None:
    """Nothing that writes, runs or reaches the network; a tool that has an action keeps it."""
    assert set(READING_TOOLS["claude-code"]) == {"Read", "Glob", "Grep", "LS", "NotebookRead"}
    assert set(READING_TOOLS["opencode"]) == {"read", "glob", "grep", "list"}
    pairs = add_reading_actions("claude-code", ["Read=secrets.read", "Bash=shell.run"])
    assert pairs[:2] == ["Read=secrets.read", "Bash=shell.run"]
    assert f"Read={READING_ACTION}" not in pairs
    assert f"Grep={READING_ACTION}" in pairs


def test_an_admin_who_is_logged_in_permits_it(project: Path, line: CommandLine, owner: Owner) -> None:
    """One permission, without approval, for the named agents alone; a second installation asks for nothing."""
    agents = [owner.agent(), owner.agent(), owner.agent()]
    line.log_in(owner)
    install = [*words(owner, agents[0]), "--subagent", f"Explore={agents[1]}", "--password-stdin"]
    printed = line.done(*install, typed=f"{PASSWORD}\n")
    assert printed.count(f"may do {READING_ACTION}: approval no") == 2
    assert [permissions(owner, agent) for agent in agents] == [
        [(READING_ACTION, False)],
        [(READING_ACTION, False)],
        [],
    ]
    assert actions(project) == dict.fromkeys(READING_TOOLS["claude-code"], READING_ACTION)
    assert owner.check(agents[0], READING_ACTION, {"file_path": "/etc/hostname"}).json()["allowed"] is True
    assert owner.check(agents[0], "tools.Bash", {"command": "ls"}).json()["allowed"] is False
    printed = line.done(*install, typed="")
    assert printed.count("approval no") == 2


def test_a_wrong_password_changes_nothing(project: Path, line: CommandLine, owner: Owner) -> None:
    """No permission, and no file."""
    agent = owner.agent()
    line.log_in(owner)
    refusal = line.refused(*words(owner, agent), "--password-stdin", typed="not this one\n")
    assert refusal.startswith("nothing was changed: ")
    assert permissions(owner, agent) == []
    assert list(project.iterdir()) == []


def test_a_permission_that_is_there_is_not_loosened(project: Path, line: CommandLine, owner: Owner) -> None:
    """Where a person approves every reading, that stays, and is told."""
    agent = owner.agent()
    owner.permit(agent, READING_ACTION, requires_approval=True)
    line.log_in(owner)
    assert f"already has a permission for {READING_ACTION}: approval yes" in line.done(
        *words(owner, agent), "--password-stdin", typed=""
    )
    assert permissions(owner, agent) == [(READING_ACTION, True)]


def test_without_a_login_the_commands_are_printed(project: Path, line: CommandLine, owner: Owner) -> None:
    """As they can be pasted; so too where the login is another gateway's, and nothing is written with `--print`."""
    agent = owner.agent()
    shown = line.done(*words(owner, agent), "--print")
    assert list(project.iterdir()) == []
    printed = line.done(*words(owner, agent))
    assert f"  toolgate permissions create {agent} {READING_ACTION}\n" in printed
    assert (project / SETTINGS).read_text() == shown
    line.log_in(owner)
    elsewhere = [
        "hook",
        "install",
        "--url",
        "https://elsewhere.example.com",
        "--allow-reading",
        "--password-stdin",
    ]
    assert f"  toolgate permissions create AGENT {READING_ACTION}\n" in line.done(
        *elsewhere, typed=f"{PASSWORD}\n"
    )
    assert permissions(owner, agent) == []
