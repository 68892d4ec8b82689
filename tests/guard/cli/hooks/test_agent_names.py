"""`toolgate hook install` takes an agent's name in the place of its id."""

from pathlib import Path

import pytest
from support.gateway import Owner
from support.shell import Shell

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, in which commands are run."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def _install(*words: str) -> tuple[str, ...]:
    return ("hook", "install", "--local", "--print", *words)


def test_names_become_ids(shell: Shell, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """By option for the agent and a kind of subagent, and by the variable."""
    coder, explorer = owner.agent("coder"), owner.agent("explorer")
    printed = shell.done(*_install("--agent", "coder", "--subagent", "Explore=explorer"))
    assert f'"{coder}"' in printed
    assert f'"Explore={explorer}"' in printed
    monkeypatch.setenv("TOOLGATE_AGENT_ID", "coder")
    assert f'"{coder}"' in shell.done(*_install("--url", owner.url))


def test_unknown_name_is_refused(shell: Shell, owner: Owner, project: Path) -> None:
    owner.agent("coder")
    assert "has no agent 'codre'" in shell.refused("hook", "install", "--agent", "codre")
    assert "write the id" in shell.refused(
        *_install("--agent", "coder", "--url", "https://other.example.com")
    )
    assert list(project.iterdir()) == []


def test_name_without_login_is_refused(home: Path, project: Path) -> None:
    line = Shell().refused(*_install("--agent", "coder", "--url", "https://gate.example.com"))
    assert "'coder' is not an agent id" in line
    assert "run: toolgate login --url https://gate.example.com, or write the id (a UUID)" in line
    assert list(project.iterdir()) == []
