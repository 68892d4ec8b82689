"""Files that are shared in a repository contain nothing of the machine they were written on."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.hooks.claude_code import DISABLING_VARIABLES
from toolgate_cli.hooks.commands import installed_command


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, of a user without settings, where toolgate is on PATH."""
    for name in [name for name in os.environ if name.startswith(("TOOLGATE_", "OPENCODE_"))]:
        monkeypatch.delenv(name)
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", *DISABLING_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(installed_command()).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def install(*words: str) -> str:
    done = CliRunner().invoke(app, ["hook", "install", "--on-hold", "tell", *words])
    assert done.exit_code == 0, done.output
    return done.output


SHARED = [
    ((), ".claude/settings.json"),
    (("--http",), ".claude/settings.json"),
    (("--file", "team/settings.json"), "team/settings.json"),
    (("--for", "opencode"), ".opencode/plugins/toolgate.js"),
    (("--for", "opencode", "--file", "team/guard.js"), "team/guard.js"),
    (("--allow-reading",), ".claude/settings.json"),
]


@pytest.mark.parametrize(("words", "file"), SHARED)
def test_a_shared_file_names_no_path_of_this_machine(
    project: Path, words: tuple[str, ...], file: str
) -> None:
    """Neither the interpreter nor the home folder nor the project; the command is the one on PATH."""
    install(*words)
    content = (project / file).read_text()
    own = {str(project), str(project.parent), os.environ["HOME"], sys.prefix, sys.executable, sys.base_prefix}
    assert [path for path in own if path in content] == []
    assert ('"command": "toolgate"' in content) is ("--http" not in words)


@pytest.mark.parametrize(
    "words",
    [
        ("--local",),
        ("--user",),
        ("--file", "managed-settings.json"),
        ("--file", "managed-settings.d/toolgate.json"),
        ("--file", "elsewhere/settings.local.json"),
        ("--for", "opencode", "--user"),
    ],
)
def test_a_file_of_this_machine_names_this_installation(project: Path, words: tuple[str, ...]) -> None:
    """Whatever comes first in somebody's PATH: the user's own settings, those not committed, an administrator's."""
    install(*words)
    written = [path for path in project.parent.rglob("*") if path.is_file()]
    assert [path for path in written if installed_command() in path.read_text()] != []


@pytest.mark.parametrize("program", ["claude-code", "opencode"])
def test_a_command_that_is_not_on_path_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Every tool would be blocked: the reason and the cure are printed. So is another installation that comes first."""
    assert "not on your PATH" not in install("--for", program)
    monkeypatch.setenv("PATH", os.defpath)
    if shutil.which("toolgate") is None:
        assert "toolgate is not on your PATH, so every tool call is blocked" in install("--for", program)
    other = project / "bin" / "toolgate"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert f"another installation of toolgate, which is first on your PATH: {other}" in install(
        "--for", program
    )
