"""Files of coding agents: their settings, and Toolgate's plugin for OpenCode.

The plugin is a JavaScript file in the folder from which OpenCode loads plugins.
"""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolgate._files import replace_file


class SettingsFileError(Exception):
    """A file cannot be read or written; the message is one line that includes the fix."""


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of a JSON settings file, or an empty dictionary if the file does not exist.

    Raises:
        SettingsFileError: the file cannot be read, is not a JSON object, or contains an object with a repeated name.
    """
    content = read_text(path)
    try:
        settings = json.loads(content, object_pairs_hook=_unique_names) if content.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SettingsFileError(f"{str(path)!r} is not valid JSON ({error}); correct it first") from None
    if not isinstance(settings, dict):
        raise SettingsFileError(f"{str(path)!r} is not a JSON object; correct it first")
    return settings


def read_text(path: Path) -> str:
    """Return the content of a file, or an empty string if the file does not exist.

    Raises:
        SettingsFileError: the file cannot be read.
    """
    try:
        # Only regular files are read, because reading a named pipe would block.
        if not stat.S_ISREG(path.stat().st_mode):
            raise SettingsFileError(f"cannot read {str(path)!r}: it is not a regular file")
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"cannot read {str(path)!r}: {error}") from error


def format_settings(settings: dict[str, Any]) -> str:
    """Return settings as the text of a JSON file."""
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    # UTF-8 cannot encode a lone surrogate, but a JSON escape sequence can represent it. If the text contains a lone
    # surrogate, all non-ASCII characters are escaped.
    has_surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    return (json.dumps(settings, indent=2) if has_surrogate else text) + "\n"


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically; symbolic links are followed, and the file keeps its permissions.

    Raises:
        SettingsFileError: the file cannot be written.
    """
    try:
        # A settings file is often a symbolic link to a file in another folder. That file is replaced, not the link.
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else None
        with replace_file(target, created=0o666, mode=mode) as file:
            file.write(text.encode())
    except OSError as error:
        raise SettingsFileError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _unique_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        names = [name for name, _ in members]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {duplicate!r} appears twice in one JSON object")
    return found


PROGRAM: Final = "opencode"
#: version of OpenCode that the plugin was tested with
TESTED: Final = "1.18.33"

_PLUGIN: Final = Path("plugins") / "toolgate.js"
_PLUGIN_TEMPLATE: Final = Path(__file__).with_name("opencode_plugin.js")
_PLACEHOLDER: Final = "const HOOK = "
_MARK: Final = "written by `toolgate hook install --for opencode`"
# Seconds by which the plugin's time limit for the hook exceeds the hook's own time limit. The hook uses these seconds
# to deny the call with a reason.
_MARGIN_SECONDS: Final = 10
_FALSE: Final = ("", "0", "false")


def plugin_path(*, user: bool) -> Path:
    """Return the path of the plugin: for all of the user's projects if `user` is true, else for the current folder."""
    if not user:
        return Path(".opencode") / _PLUGIN
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "opencode" / _PLUGIN


def render_plugin(command: str, options: list[str], time_limit: float) -> str:
    """Return the plugin's source text.

    Args:
        command: the command `toolgate`, by name or path.
        options: options of `toolgate hook opencode`.
        time_limit: the hook's own time limit in seconds.
    """
    configured = {"command": command, "words": options, "seconds": math.ceil(time_limit) + _MARGIN_SECONDS}
    lines = _PLUGIN_TEMPLATE.read_text("utf-8").splitlines()
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
    if (variable := find_disabling_variable(os.environ, user=user)) is not None:
        raise SettingsFileError(f"with {variable!r} set, OpenCode does not load this plugin; unset it first")
    other = plugin_path(user=not user)
    if other.resolve() != path.resolve() and is_plugin(other):
        raise SettingsFileError(
            f"the plugin is already installed at {str(other)!r}, and two plugins would check each call "
            "twice; uninstall the other plugin first"
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
        raise SettingsFileError(
            f"{str(path)!r} was not written by toolgate; move it to another folder, then try again"
        )
    return True


def is_unchanged_plugin(path: Path) -> bool:
    """Return whether the file is the plugin that this version of Toolgate writes, with any options.

    Raises:
        SettingsFileError: the file was not written by Toolgate, or cannot be read.
    """
    lines = read_text(path).splitlines() if is_plugin(path) else []
    template = _PLUGIN_TEMPLATE.read_text("utf-8").splitlines()
    return len(lines) == len(template) and all(
        line == expected or (line.startswith(_PLACEHOLDER) and expected.startswith(_PLACEHOLDER))
        for line, expected in zip(lines, template, strict=True)
    )


def find_disabling_variable(env: Mapping[str, str], *, user: bool) -> str | None:
    """Return the environment variable with which OpenCode does not load the plugin, or None.

    Args:
        env: the environment variables.
        user: whether the plugin is installed for all of the user's projects.
    """
    names = ("OPENCODE_PURE", *(() if user else ("OPENCODE_DISABLE_PROJECT_CONFIG",)))
    return next((name for name in names if env.get(name, "").strip().lower() not in _FALSE), None)
