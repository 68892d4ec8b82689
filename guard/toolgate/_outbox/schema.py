"""The outbox's file: made, opened, and held to be its user's alone."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Final, NoReturn

from toolgate._outbox.faults import Busy, OutboxFault
from toolgate._outbox.place import Place

__all__ = ["INTENT", "PARKED", "READY", "open_database"]

#: its tool may be running
INTENT: Final = 0
#: to be sent
READY: Final = 1
#: the gateway never takes it
PARKED: Final = 2

_VERSION: Final = 1
_OTHERS: Final = 0o077

_SCHEMA: Final = """
CREATE TABLE owners (id INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL);
CREATE TABLE targets (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL, fingerprint TEXT NOT NULL, environment TEXT NOT NULL,
    organization TEXT
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, owner INTEGER NOT NULL, target INTEGER NOT NULL,
    state INTEGER NOT NULL, old INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL, body TEXT NOT NULL,
    reason TEXT
);
CREATE INDEX entries_ready ON entries (owner, old, id) WHERE state = 1;
-- An entry's row counts 200 bytes beside its body.
CREATE TABLE totals (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 0, 0);
CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
    UPDATE totals SET rows = rows + 1, bytes = bytes + new.bytes + 200;
END;
CREATE TRIGGER entries_changed AFTER UPDATE OF bytes ON entries WHEN new.bytes <> old.bytes BEGIN
    UPDATE totals SET bytes = bytes + new.bytes - old.bytes;
END;
CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET rows = rows - 1, bytes = bytes - old.bytes - 200;
END;
PRAGMA user_version = 1;
"""


def open_database(place: Place) -> sqlite3.Connection:
    """Open the outbox, and make it where there is none.

    The connection waits for nobody: whoever finds the file locked tries again.

    Raises:
        OutboxFault: The place is not ours to use, or holds something else.
        sqlite3.Error: It cannot be opened.
    """
    if place.path is not None:
        _prepare(place.path, own_folder=place.own_folder)
    connection = sqlite3.connect(
        ":memory:" if place.path is None else place.path,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
    )
    try:
        # Pages that are written whole for a few hundred bytes: half of the usual size costs a third less.
        connection.execute("PRAGMA page_size = 2048")
        if place.path is not None:
            _write_ahead(connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if place.full_sync else 'NORMAL'}")
        # Its cost would be a caller's; the sender's thread does it.
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        _create(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise Busy("another process is making the outbox")


def _create(connection: sqlite3.Connection, place: Place) -> None:
    if _version(connection) == _VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if (found := _version(connection)) == 0:
            for statement in _statements():
                connection.execute(statement)
        elif found != _VERSION:
            _refuse_version(place, found)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _refuse_version(place: Place, found: int) -> NoReturn:
    raise OutboxFault(
        f"the outbox {str(place.path)!r} is of another version of toolgate ({found})",
        "use that version, or set TOOLGATE_OUTBOX to another file",
    )


def _version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


def _statements() -> list[str]:
    found: list[str] = []
    text = ""
    for line in _SCHEMA.splitlines():
        text += line + "\n"
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


def _prepare(path: Path, *, own_folder: bool) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own_folder and os.name == "posix" and path.parent.stat().st_mode & _OTHERS:
            path.parent.chmod(0o700)
        # Before SQLite makes it: its other files get the same rights.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            _refuse(path, os.fstat(descriptor))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OutboxFault(
            f"the outbox {str(path)!r} cannot be used: {error.strerror}",
            "make it a file this user may write, or set TOOLGATE_OUTBOX to another one, or to 'memory'",
        ) from error


def _refuse(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OutboxFault(f"the outbox {str(path)!r} is no file", "set TOOLGATE_OUTBOX to the path of a file")
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise OutboxFault(
            f"the outbox {str(path)!r} belongs to another user",
            "set TOOLGATE_OUTBOX to a file of this user's",
        )
    if found.st_mode & _OTHERS:
        path.chmod(0o600)
