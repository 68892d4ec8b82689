"""Toolgate's plugin for OpenCode: a JavaScript file in the folder from which OpenCode loads plugins."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolgate_cli.hooks.files import SettingsFileError, read_text

PROGRAM: Final = "opencode"
#: version of OpenCode that the plugin was tested with
TESTED: Final = "1.18.33"

_NAME: Final = Path("plugins") / "toolgate.js"
_TEMPLATE: Final = Path(__file__).with_name("opencode_plugin.js")
_PLACEHOLDER: Final = "const HOOK = "
_MARK: Final = "written by `toolgate hook install --for opencode`"
# Seconds by which the plugin's time limit for the hook exceeds the hook's own time limit. The hook uses these seconds
# to deny the call with a reason.
_MARGIN_SECONDS: Final = 10
_FALSE: Final = ("", "0", "false")


def plugin_path(*, user: bool) -> Path:
    """Return the path of the plugin: for all of the user's projects if `user` is true, else for the current folder."""
    if not user:
        return Path(".opencode") / _NAME
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "opencode" / _NAME


def render_plugin(command: str, options: list[str], time_limit: float) -> str:
    """Return the plugin's source text.

    Args:
        command: the command `toolgate`, by name or path.
        options: options of `toolgate hook opencode`.
        time_limit: the hook's own time limit in seconds.
    """
    configured = {"command": command, "words": options, "seconds": math.ceil(time_limit) + _MARGIN_SECONDS}
    lines = _TEMPLATE.read_text("utf-8").splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith(_PLACEHOLDER))
    # The JSON is valid JavaScript, because `dumps` escapes all non-ASCII characters. Without the escape, characters
    # such as U+2028 would end a line in older versions of JavaScript.
    lines[at] = _PLACEHOLDER + json.dumps(configured)
    return "\n".join(lines) + "\n"


def remove_plugin(path: Path) -> bool:
    """Remove the plugin, and return whether it was installed.

    Raises:
        SettingsFileError: the file was not written by Toolgate, or cannot be removed.
    """
    if not is_plugin(path):
        return False
    try:
        path.unlink()
    except OSError as error:
        raise SettingsFileError(f"cannot remove {str(path)!r}: {error.strerror}") from error
    return True


def check_loaded(path: Path, *, user: bool) -> None:
    """Check that OpenCode would load the plugin at this path, and no other Toolgate plugin.

    Raises:
        SettingsFileError: OpenCode would not load this plugin, or would also load another Toolgate plugin.
    """
    if (variable := _find_disabling_variable(os.environ, user=user)) is not None:
        raise SettingsFileError(f"with {variable!r} set, OpenCode does not load this plugin; unset it first")
    other = plugin_path(user=not user)
    if other.resolve() != path.resolve() and is_plugin(other):
        raise SettingsFileError(
            f"the plugin is already installed at {str(other)!r}, and two would check each call twice; "
            "uninstall it first"
        )


def is_plugin(path: Path) -> bool:
    """Return whether the file is Toolgate's plugin; False if it is missing or empty.

    Raises:
        SettingsFileError: the file has other content, or cannot be read.
    """
    content = read_text(path)
    if not content.strip():
        return False
    if _MARK not in content.splitlines()[0]:
        raise SettingsFileError(f"{str(path)!r} was not written by toolgate; move it first")
    return True


def _find_disabling_variable(env: Mapping[str, str], *, user: bool) -> str | None:
    names = ("OPENCODE_PURE", *(() if user else ("OPENCODE_DISABLE_PROJECT_CONFIG",)))
    return next((name for name in names if env.get(name, "").strip().lower() not in _FALSE), None)
