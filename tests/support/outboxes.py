"""Files of an outbox folder, read from outside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def outbox_file(folder: Path) -> Path:
    """Return the only file of a folder."""
    [found] = folder.glob("*.db")
    return found


def stored(folder: Path) -> list[tuple[int, str]]:
    """Return state and body of all entries in a folder."""
    found: list[tuple[int, str]] = []
    for file in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(file)) as connection:
            found += connection.execute("SELECT state, body FROM entries ORDER BY id").fetchall()
    return found
