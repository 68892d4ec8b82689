"""Status of OpenCode in the current folder: whether Toolgate's plugin checks its tool calls."""

import os
import shutil
from pathlib import Path
from typing import Any, Final

from toolgate_cli.hooks.files import (
    PROGRAM,
    TESTED,
    SettingsFileError,
    find_disabling_variable,
    is_plugin,
    is_unchanged_plugin,
    plugin_path,
)
from toolgate_cli.hooks.status import Status, check_newer_version, may_exist, read_version

__all__ = ["PROGRAM", "TESTED", "read_status"]

#: files and folders of a project that uses OpenCode
_PROJECT_FILES: Final = (Path("opencode.json"), Path("opencode.jsonc"), Path(".opencode"))
_INSTALL: Final = f"toolgate hook install --for {PROGRAM}"


def read_status(versions: Any) -> Status | None:
    """Return the status of OpenCode in the current folder, or None if it is neither installed nor configured.

    Args:
        versions: module with the functions `order` and `series`, which compare version numbers.
    """
    program = shutil.which("opencode")
    files = (*_PROJECT_FILES, plugin_path(user=True))
    if program is None and not any(map(may_exist, files)):
        return None
    version = None if program is None else read_version(program)
    return _check_plugin(version) or _check_version(versions, version, program)


def _check_plugin(version: str | None) -> Status | None:
    """Return the status if OpenCode loads no plugin or a changed one; None if it loads the plugin of this version."""
    found: Status | None = None
    for user in (True, False):
        path = plugin_path(user=user)
        try:
            if not is_plugin(path):
                continue
            is_unchanged = is_unchanged_plugin(path)
        except SettingsFileError as error:
            found = Status(version, "unknown", str(error), _INSTALL)
            continue
        if (variable := find_disabling_variable(os.environ, user=user)) is not None:
            description = f"with {variable!r} set, OpenCode does not load the plugin in {str(path)!r}"
            found = Status(version, "disabled", description, "unset it")
        elif is_unchanged:
            return None
        else:
            description = (
                f"the plugin in {str(path)!r} was changed, or was written by another version of Toolgate"
            )
            found = Status(version, "no hooks", description, _INSTALL + (" --user" if user else ""))
    return found or Status(
        version, "no hooks", "no plugin checks the tool calls of OpenCode in this folder", _INSTALL
    )


def _check_version(versions: Any, version: str | None, program: str | None) -> Status:
    if program is None:
        return Status(
            None,
            "covered",
            (
                "the plugin checks tool calls; the version of OpenCode is unknown, because opencode is not on "
                "the PATH"
            ),
        )
    if version is None:
        return Status(None, "unknown", f"{program!r} --version prints no version", "check that command")
    if versions.order(version) < versions.order(TESTED):
        description = f"OpenCode {version} is older than {TESTED}, the version with which Toolgate was tested"
        return Status(version, "untested", description)
    newer = check_newer_version(versions, version, TESTED, f"opencode upgrade {TESTED}")
    return newer or Status(version, "covered", "tool calls are checked before they run")
