"""Files of coding agents, such as their settings: reading, formatting, and atomic writing."""

import json
import os
import stat
from pathlib import Path
from typing import Any

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
        raise ValueError(f"the name {duplicate!r} appears twice in one object")
    return found
