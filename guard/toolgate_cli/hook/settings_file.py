"""A coding agent's settings: somebody else's file, in which everything stays but what is ours."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from toolgate._files import replace_file


class SettingsFileError(Exception):
    """The file cannot be read or written; the message is one line that says what to do."""


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a settings file says; nothing where there is none.

    Raises:
        SettingsFileError: it is no JSON object, or cannot be read: nobody knows what would be lost.
    """
    content = read_text(path)
    try:
        found = json.loads(content, object_pairs_hook=_once) if content.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SettingsFileError(f"{str(path)!r} is no JSON ({error}); put it right first") from None
    if not isinstance(found, dict):
        raise SettingsFileError(f"{str(path)!r} is no JSON object; put it right first")
    return found


def read_text(path: Path) -> str:
    """Return what a file says; nothing where there is none.

    Raises:
        SettingsFileError: it cannot be read.
    """
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(path.stat().st_mode):
            raise SettingsFileError(f"cannot read {str(path)!r}: it is no ordinary file")
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"cannot read {str(path)!r}: {error}") from error


def text_of(settings: dict[str, Any]) -> str:
    """Return settings as they are written."""
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    # Half of a character can stand there as an escape only.
    is_whole = not any("\ud800" <= char <= "\udfff" for char in text)
    return (text if is_whole else json.dumps(settings, indent=2)) + "\n"


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Put settings in place, as `put_text`.

    Raises:
        SettingsFileError: it cannot be done.
    """
    put_text(path, text_of(settings))


def put_text(path: Path, text: str) -> None:
    """Put a file in place, whole or not at all; a link stays one, and who may read the file stays as it was.

    Raises:
        SettingsFileError: it cannot be done.
    """
    try:
        # What a link leads to is the file that is meant: settings are often kept elsewhere and linked.
        real = Path(os.path.realpath(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        mode = real.stat().st_mode & 0o777 if real.exists() else None
        with replace_file(real, created=0o666, mode=mode) as file:
            file.write(text.encode())
    except OSError as error:
        raise SettingsFileError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return found
