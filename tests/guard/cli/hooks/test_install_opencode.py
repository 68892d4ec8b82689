"""The guard's plugin among OpenCode's: it comes and goes, and somebody else's file stays."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolgate_cli.app import app

PLUGIN = Path(".opencode") / "plugins" / "toolgate.js"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("TOOLGATE_", "OPENCODE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def run(verb: str, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["hook", verb, "--for", "opencode", *words])
    assert done.exit_code == code, done.output
    return done.output


def hook_of(path: Path) -> dict[str, Any]:
    (line,) = (each for each in path.read_text().splitlines() if each.startswith("const HOOK = "))
    return dict(json.loads(line.removeprefix("const HOOK = ")))


def test_what_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin starts the command on PATH, waits longer than that does, and has no key in it."""
    monkeypatch.setenv("TOOLGATE_API_KEY", "ak_" + "s" * 37)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", "agent-1")
    run(
        "install",
        "--url",
        "https://gateway.example.com",
        "--hold-timeout",
        "600",
        "--tool-action",
        "bash=a.b",
    )
    found = hook_of(project / PLUGIN)
    assert found["command"] == "toolgate"
    assert found["seconds"] > 600
    text = " ".join(found["words"])
    for words in ("--url https://gateway.example.com", "--agent agent-1", "--tool-action bash=a.b", "600"):
        assert words in text
    assert "ssss" not in (project / PLUGIN).read_text()


def test_it_comes_and_goes(project: Path) -> None:
    """Installed again it is written anew; uninstalled nothing is left of it."""
    run("install")
    run("install", "--on-hold", "tell")
    assert "tell" in hook_of(project / PLUGIN)["words"]
    assert "uninstalled from" in run("uninstall")
    assert not (project / PLUGIN).exists()
    assert "nothing is installed" in run("uninstall")


def test_where_it_goes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's plugins, the user's, and where the user's configuration is kept."""
    run("install", "--user")
    assert (project.parent / "home" / ".config" / "opencode" / "plugins" / "toolgate.js").exists()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "config"))
    run("install", "--user")
    assert (project.parent / "config" / "opencode" / "plugins" / "toolgate.js").exists()
    run("install", "--file", "mine.js")
    assert hook_of(project / "mine.js")["command"] == "toolgate"
    assert not (project / PLUGIN).exists()


def test_printed_nothing_is_written(project: Path) -> None:
    """`--print` shows the very file, and leaves everything as it is."""
    shown = run("install", "--print")
    assert list(project.iterdir()) == []
    run("install")
    assert (project / PLUGIN).read_text() == shown


def test_somebody_elses_plugin_stays(project: Path) -> None:
    """A file of that name that the guard did not write is neither overwritten nor removed."""
    (project / PLUGIN).parent.mkdir(parents=True)
    (project / PLUGIN).write_text("export const Mine = 1\n")
    for verb in ("install", "uninstall"):
        assert "not written by toolgate" in run(verb, code=1)
    assert (project / PLUGIN).read_text() == "export const Mine = 1\n"


def test_two_of_them_would_ask_twice(project: Path) -> None:
    """Where the user's plugin guards already, the project's is refused, and the other way round."""
    run("install", "--user")
    assert "uninstall the other plugin first" in run("install", code=1)
    run("uninstall", "--user")
    run("install")
    assert "uninstall the other plugin first" in run("install", "--user", code=1)


@pytest.mark.parametrize(
    ("name", "words", "refused"),
    [
        ("OPENCODE_PURE", (), True),
        ("OPENCODE_PURE", ("--user",), True),
        ("OPENCODE_DISABLE_PROJECT_CONFIG", (), True),
        ("OPENCODE_DISABLE_PROJECT_CONFIG", ("--user",), False),
    ],
)
def test_where_opencode_would_not_load_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: tuple[str, ...], refused: bool
) -> None:
    """A variable of the shell's with which OpenCode would run every tool unasked is named."""
    monkeypatch.setenv(name, "1")
    assert (name in run("install", *words, code=1 if refused else 0)) == refused
    assert (project / PLUGIN).exists() is False
    monkeypatch.setenv(name, "false")
    run("install", *words)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--on-hold", "ask"), 2),
        (("--tool-action", "bash"), 2),
        (("--url", "gateway"), 1),
        (("--local",), 1),
        (("--http",), 1),
    ],
)
def test_what_would_not_work_is_not_installed(project: Path, words: tuple[str, ...], code: int) -> None:
    """Options that would block every call, or mean nothing to OpenCode, are refused when they are written."""
    run("install", *words, code=code)
    assert list(project.iterdir()) == []
