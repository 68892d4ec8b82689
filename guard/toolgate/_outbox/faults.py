"""What can keep an entry from being written down."""

from __future__ import annotations

import sqlite3
from typing import Final

__all__ = ["Busy", "OutboxFault", "explained"]

_CODE: Final = 0xFF
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class OutboxFault(Exception):
    """Entries cannot be kept.

    Args:
        reason: What is wrong.
        cure: What to do about it.
        full: Whether nothing else is wrong than that there are too many.
    """

    def __init__(self, reason: str, cure: str, *, full: bool = False) -> None:
        super().__init__(f"{reason}; {cure}")
        self.full = full
        self.reason = reason
        self.cure = cure


class Busy(Exception):
    """Somebody else is writing: to be tried again at once."""


def explained(error: sqlite3.Error, path: object) -> Exception:
    """What an error of SQLite means for whoever wants to keep an entry."""
    code = getattr(error, "sqlite_errorcode", None)
    code = None if code is None else code & _CODE
    if code in _BUSY:
        return Busy(str(error))
    name = repr(str(path))
    match code:
        case sqlite3.SQLITE_FULL:
            return OutboxFault(f"there is no room on the disk for the outbox {name}", "make room on the disk")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return OutboxFault(
                f"the outbox {name} cannot be written ({error})",
                "make it writable, or set TOOLGATE_OUTBOX to a file that is, or to 'memory'",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            # Not moved by us: entries that were never sent may be in it, and somebody must know.
            return OutboxFault(
                f"the outbox {name} is damaged or no outbox ({error})",
                "move it aside together with its -wal and -shm, and keep it: it may hold entries not sent",
            )
    return OutboxFault(
        f"the outbox {name} cannot be used ({error})",
        "look after the disk, or set TOOLGATE_OUTBOX to another file",
    )
