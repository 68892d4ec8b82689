"""A place where nobody has used a coding agent."""

import os
from pathlib import Path

import pytest

from toolgate_cli.hooks.claude_code import DISABLING_VARIABLES, TESTED

_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go into an empty project, with a home of its own, no program on PATH and nothing set; returns the project."""
    names = [name for name in os.environ if name.startswith(("TOOLGATE_", "OPENCODE_"))]
    folders = ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME")
    for name in (*names, *folders, *DISABLING_VARIABLES, *_PROXIES, *map(str.upper, _PROXIES)):
        monkeypatch.delenv(name, raising=False)
    for name in ("home", "project", "bin"):
        (folder / name).mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.chdir(folder / "project")
    return folder / "project"


def claude(folder: Path, version: str = TESTED) -> None:
    """Put a program that is Claude Code of a version, and can say no more, on the PATH of `alone`."""
    program = folder / "bin" / "claude"
    program.write_text(f"#!/bin/sh\n[ $# = 1 ] && echo '{version} (Claude Code)'\n")
    program.chmod(0o755)


def opencode(folder: Path, version: str) -> None:
    """Put a program that is OpenCode of a version, and can print no more, on the PATH of `alone`."""
    program = folder / "bin" / "opencode"
    program.write_text(f"#!/bin/sh\n[ $# = 1 ] && echo '{version}'\n")
    program.chmod(0o755)
