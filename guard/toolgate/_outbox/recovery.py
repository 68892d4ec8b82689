"""Recovery of entries that other processes left in the outbox folder."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from toolgate._logging import logger
from toolgate._outbox.entries import Busy, OutboxFault
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.place import Place
from toolgate._outbox.store import (
    FileLock,
    Target,
    create_file,
    delete_file,
    lock_path,
    open_file,
    outbox_files,
    read_target,
    transaction,
)

__all__ = ["adopt_files", "convert_shared_file", "retrieve_parked"]

_CHUNK: Final = 500
# Maximum number of entries to move before the sender sends its next request. Without this limit, a large file of
# another process would delay the entries of this process.
_MOST_AT_ONCE: Final = 2_000
_COLUMNS: Final = "key, state, bytes, body, reason"
_INSERT: Final = "INSERT INTO entries (key, state, bytes, body, reason) VALUES (?, ?, ?, ?, ?)"
# Files whose read error has already been logged. The error of a file is logged only once per process.
_reported: Final[set[Path]] = set()


def adopt_files(outbox: Outbox, may_adopt: Callable[[], bool]) -> tuple[int, bool] | None:
    """Move the entries of processes that have ended into the file of `outbox`, and delete the files of those processes.

    Only entries for the same gateway, organization and environment (the same target) are moved. Parked entries, which
    the gateway has rejected, stay parked: they are not sent again.

    Args:
        outbox: The outbox of this process.
        may_adopt: Function that returns whether the organization of the API key is known. Without it, targets cannot be
            compared. The function is called only if there is a file of a process that has ended.

    Returns:
        A pair: the number of entries that were moved, and whether all files were processed. If not all files were
        processed, `adopt_files` must be called again. The result is None if `may_adopt` returned False.
    """
    place = outbox.place
    if place.path is None:
        return 0, True
    moved, complete = 0, True
    with outbox.side_lock:
        try:
            with _reporting(place.path):
                convert_shared_file(place)
        except Busy:
            complete = False
        free = [file for file in outbox_files(place.path) if file != outbox.file and _is_free(file)]
    if free and not may_adopt():
        return None
    for file in free:
        left = True
        while left and moved < _MOST_AT_ONCE:
            try:
                with _reporting(file):
                    count, left = _adopt(outbox, file)
                    moved += count
                    continue
            except Busy:
                complete = False
            left = False
    return moved, complete and moved < _MOST_AT_ONCE


def retrieve_parked(outbox: Outbox) -> None:
    """Move entries that the gateway has rejected from the files of other processes into the file of `outbox`.

    Only files for the same gateway, organization and environment are read.
    """
    folder = outbox.place.path
    for file in outbox_files(folder) if folder is not None else []:
        while file != outbox.file:
            with outbox.side_lock, open_file(file) as other:
                if other is None or not outbox.target.may_send(read_target(other)):
                    break
                if not _move(outbox, other, "state = 2"):
                    break


def convert_shared_file(place: Place) -> None:
    """Move entries from the file of version 0.1, which all processes shared, into new files of this version.

    Queued entries and intents (entries without an outcome) of processes that still run version 0.1 stay in the shared
    file. The shared file is not deleted.

    Raises:
        OutboxFault: The shared file cannot be read.
    """
    if place.path is None or not (shared := place.path.with_name(f"{place.path.name}.db")).exists():
        return
    locks = shared.with_name(f"{shared.name}-owners")
    with open_file(shared, version=1) as old, contextlib.ExitStack() as stack:
        if old is None or not old.execute("SELECT EXISTS (SELECT 1 FROM entries)").fetchone()[0]:
            return
        stack.enter_context(transaction(old))
        alive: list[str] = []
        for number, token in old.execute("SELECT id, token FROM owners").fetchall():
            lock = FileLock.acquire(locks / f"{token}.lock") if locks.exists() else None
            if lock is not None:
                stack.callback(lock.release)
            elif locks.exists():
                alive.append(str(int(number)))
        # State 2 means that the gateway has rejected the entry. Such entries are moved even if the process that stored
        # them is still running.
        chosen = f"target = ? AND (state = 2 OR owner NOT IN ({','.join(alive)}))"
        for number, *values in old.execute("SELECT * FROM targets").fetchall():
            select = f"SELECT {_COLUMNS} FROM entries WHERE {chosen} ORDER BY id"  # noqa: S608 - only numbers are inserted
            if rows := old.execute(select, (number,)).fetchall():
                _, lock, new = create_file(place.path, Target(*values), place)
                stack.callback(lock.release)
                with contextlib.closing(new):
                    new.execute("PRAGMA synchronous = FULL")
                    with transaction(new):
                        new.executemany(_INSERT, rows)
                old.execute(f"DELETE FROM entries WHERE {chosen}", (number,))  # noqa: S608 - only numbers are inserted


def _adopt(outbox: Outbox, file: Path) -> tuple[int, bool]:
    with outbox.side_lock:
        lock = FileLock.acquire(lock_path(file))
        if lock is None:
            return 0, False
        count, left = 0, False
        try:
            with open_file(file) as other:
                if other is not None:
                    if not outbox.target.may_send(read_target(other)):
                        return 0, False
                    count = _move(outbox, other, "1")
                    left = bool(other.execute("SELECT EXISTS (SELECT 1 FROM entries)").fetchone()[0])
            if not left:
                delete_file(file, lock)
        finally:
            lock.release()
        return count, left


def _move(outbox: Outbox, other: sqlite3.Connection, condition: str) -> int:
    """Move up to 500 entries from the file of `other` to the file of `outbox`, and return their number.

    Each file has its own transaction. After a crash between the two commits, the entries are in both files and may be
    sent twice. Since both copies of an entry have the same Idempotency-Key, the gateway stores only one.
    """
    with transaction(other):
        rows = other.execute(
            f"SELECT id, {_COLUMNS} FROM entries WHERE {condition} ORDER BY id LIMIT ?",  # noqa: S608 - only constants are inserted
            (_CHUNK,),
        ).fetchall()
        outbox.take_in(row[1:] for row in rows)
        other.executemany("DELETE FROM entries WHERE id = ?", [row[:1] for row in rows])
    return len(rows)


def _is_free(file: Path) -> bool:
    lock = FileLock.acquire(lock_path(file))
    if lock is not None:
        lock.release()
    return lock is not None


@contextlib.contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Suppress an `OutboxFault` that the `with` block raises; log only the first one for each `path`."""
    try:
        yield
    except OutboxFault as fault:
        if path not in _reported:
            _reported.add(path)
            logger.error(
                "log entries cannot be adopted: %s", fault, extra={"toolgate_event": "record_failed"}
            )
