"""Settings of the outbox: `TOOLGATE_OUTBOX` and `TOOLGATE_OUTBOX_*`."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolgate.errors import ConfigurationError

__all__ = ["MEMORY", "Place", "load_place"]

#: value of `TOOLGATE_OUTBOX` that keeps log entries in memory only
MEMORY: Final = "memory"
#: SQLite's name for a database in memory; as value of `TOOLGATE_OUTBOX` it has the same effect as `memory`
_SQLITE_MEMORY: Final = ":memory:"
#: suffix of the outbox file in version 0.1. The outbox is now a folder, so this suffix is removed from the path in
#: `TOOLGATE_OUTBOX`
_FILE_SUFFIX: Final = ".db"

_ROWS: Final = 100_000
_BYTES: Final = 256 * 1024 * 1024
_EXIT_SECONDS: Final = 3.0
_LONGEST_EXIT: Final = 3_600


@dataclass(frozen=True, slots=True)
class Place:
    """Settings of an outbox: its folder and limits.

    Attributes:
        path: The folder, or None if entries are kept in memory only.
        own_folder: Whether `path` is the default folder. In this case only Toolgate uses the parent folder of `path`.
        full_sync: Whether a call waits until its entry is on the disk, so that the entry survives a power loss.
        rows: Maximum number of entries in the folder.
        size: Maximum number of bytes in the folder.
        exit_seconds: Maximum seconds that the process waits at its end for entries to be sent.
    """

    path: Path | None
    own_folder: bool = False
    full_sync: bool = False
    rows: int = _ROWS
    size: int = _BYTES
    exit_seconds: float = _EXIT_SECONDS


def load_place(outbox: str | os.PathLike[str] | None = None) -> Place:
    """Return the outbox settings from the environment. If `outbox` is given, it replaces `TOOLGATE_OUTBOX`.

    Raises:
        ConfigurationError: A setting is invalid; the message contains its name and the fix.
    """
    given = outbox if outbox is not None else os.environ.get("TOOLGATE_OUTBOX")
    if given is not None and not isinstance(given, (str, os.PathLike)):
        raise ConfigurationError(
            f"outbox is {given!r}; pass the path of a folder, or {MEMORY!r} to keep entries in memory alone"
        )
    own_folder = not given
    path = (
        None if given in {MEMORY, _SQLITE_MEMORY} else (_default() if not given else Path(given).expanduser())
    )
    if path is not None and path.suffix == _FILE_SUFFIX:
        path = path.with_suffix("")
    return Place(
        path=None if path is None else path.absolute(),
        own_folder=own_folder,
        full_sync=_full_sync(),
        rows=_whole("TOOLGATE_OUTBOX_ROWS", _ROWS),
        size=_whole("TOOLGATE_OUTBOX_BYTES", _BYTES),
        exit_seconds=_seconds("TOOLGATE_OUTBOX_EXIT", _EXIT_SECONDS),
    )


def _default() -> Path:
    return _state_folder() / "toolgate" / "outbox"


def _state_folder() -> Path:
    named = os.environ.get("XDG_STATE_HOME", "")
    # The XDG standard requires that relative paths are ignored.
    if named and Path(named).is_absolute():
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        raise ConfigurationError(
            "there is no home folder to keep the outbox in; set TOOLGATE_OUTBOX to the path of a folder"
        ) from None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return home / ".local" / "state"


def _full_sync() -> bool:
    given = os.environ.get("TOOLGATE_OUTBOX_SYNC") or "normal"
    if given not in {"normal", "full"}:
        raise ConfigurationError(
            f"TOOLGATE_OUTBOX_SYNC is {given!r}; use 'normal', or 'full' to survive power loss"
        )
    return given == "full"


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(sys.maxsize)) else 0
    if not 0 < number < sys.maxsize:
        raise ConfigurationError(f"{name} is {text!r}; set it to a whole number above 0, like {default}")
    return number


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_EXIT:
        raise ConfigurationError(
            f"{name} is {text!r}; set it to seconds from 0 to {_LONGEST_EXIT}, like {default}"
        )
    return seconds
