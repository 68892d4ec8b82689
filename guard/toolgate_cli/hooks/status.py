"""Status of Claude Code in the current folder: its settings and its version."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_cli.hooks.claude_code import (
    OLDEST,
    SCOPES,
    TESTED,
    find_coverage,
    find_effective_disabling,
    settings_path,
)
from toolgate_cli.hooks.files import SettingsFileError, read_settings

_INSTALL: Final = "toolgate hook install"
_VERSION_SECONDS: Final = 10
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


class ClaudeCodeStatus(NamedTuple):
    """Whether Claude Code checks tool calls with the gateway in the current folder.

    Attributes:
        version: its version, or None where it is not on PATH or prints none.
        state: the result in one or two words.
        description: the result in one line.
        fix: what to do, where something is to be done.
    """

    version: str | None
    state: str
    description: str
    fix: str | None = None


def read_status(versions: Any) -> ClaudeCodeStatus | None:
    """Return the status; None where Claude Code is neither installed nor configured.

    Args:
        versions: compares versions, with `order` and `series`.
    """
    program = shutil.which("claude")
    paths = {str(path): path for scope in SCOPES if _may_exist(path := settings_path(scope))}
    if program is None and not paths:
        return None
    version = None if program is None else _read_version(program)
    try:
        settings = {name: read_settings(path) for name, path in paths.items()}
    except SettingsFileError as error:
        return ClaudeCodeStatus(version, "unknown", str(error), _INSTALL)
    return _check_settings(version, settings) or _check_version(versions, version, program)


def _may_exist(path: Path) -> bool:
    """Return whether a file exists; True as well if that is unknown, since reading it then raises the reason."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _check_settings(version: str | None, settings: Mapping[str, dict[str, Any]]) -> ClaudeCodeStatus | None:
    user = settings.get(str(settings_path("user")), {})
    if (name := find_effective_disabling(os.environ, user, list(settings.values()))) is not None:
        return ClaudeCodeStatus(version, "switched off", f"{name!r} disables all hooks", "remove or unset it")
    coverage = {path: find_coverage(each) for path, each in settings.items()}
    if "full" in coverage.values():
        return None
    partial = next((path for path, found in coverage.items() if found == "partial"), None)
    if partial is None:
        return ClaudeCodeStatus(version, "no hooks", "no hook checks its tool calls here", _INSTALL)
    description = f"the hook in {partial!r} does not check every tool, or does not block tools when it fails"
    return ClaudeCodeStatus(version, "no hooks", description, _INSTALL)


def _check_version(versions: Any, version: str | None, program: str | None) -> ClaudeCodeStatus:
    if program is None:
        return ClaudeCodeStatus(
            None, "covered", "tool calls are checked; its version is unknown: claude is not on PATH"
        )
    if version is None:
        return ClaudeCodeStatus(
            None, "unknown", f"{program!r} --version prints no version", "check that command"
        )
    if versions.order(version) < versions.order(OLDEST):
        description = f"hooks can block tools on failure from version {OLDEST} on"
        return ClaudeCodeStatus(version, "too old", description, "claude update")
    if versions.order(version) <= versions.order(TESTED):
        return ClaudeCodeStatus(version, "covered", "tool calls are checked before they run")
    if versions.series(version) == versions.series(TESTED):
        return ClaudeCodeStatus(version, "untested", f"newer than {TESTED}, the newest tested version")
    description = f"tested up to {TESTED}: a later series may have changed hooks"
    return ClaudeCodeStatus(version, "too new", description, f"claude install {TESTED}")


def _read_version(program: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own program, by its path
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout) if done.returncode == 0 else None
    return None if found is None else found[0]
