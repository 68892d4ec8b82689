"""Access to the outbox files of other processes.

A process sends the entries that ended processes left in the outbox folder. The command `toolgate outbox` lists, retries
and deletes the entries of all processes.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from toolgate._outbox import Busy, OutboxFault
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.store import (
    INTENT,
    PARKED,
    READY,
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
from toolgate._settings import Place
from toolgate._telemetry import logger

__all__ = [
    "State",
    "StoredEntry",
    "adopt_files",
    "convert_shared_file",
    "drop_entries",
    "has_outbox",
    "list_entries",
    "retrieve_parked",
    "unpark_all",
]

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
            select = f"SELECT {_COLUMNS} FROM entries WHERE {chosen} ORDER BY id"  # noqa: S608 - only numbers are inserted into the SQL text
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
            f"SELECT id, {_COLUMNS} FROM entries WHERE {condition} ORDER BY id LIMIT ?",  # noqa: S608 - only constants are inserted into the SQL text
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
                "this process cannot read and send the log entries of processes that have ended: %s",
                fault,
                extra={"toolgate_event": "record_failed"},
            )


#: `running`: intent (entry without an outcome) of a running process: its tool may be running;
#: `waiting`: queued entry of a running process;
#: `orphan`: intent of a process that has ended;
#: `left`: queued entry of a process that has ended;
#: `parked`: entry that the gateway has rejected permanently
State: TypeAlias = Literal["running", "waiting", "orphan", "left", "parked"]

#: Maps a state stored in an outbox file to a pair of values of `State`. The first value applies while the process that
#: created the file is running, the second after that process has ended.
_STATES: Final[dict[int, tuple[State, State]]] = {
    INTENT: ("running", "orphan"),
    READY: ("waiting", "left"),
    PARKED: ("parked", "parked"),
}


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """Summary of an entry in the outbox; it omits the context (arguments and details of the call).

    Attributes:
        file: The outbox file that contains the entry.
        row: Row id of the entry in this file.
        key: Idempotency-Key.
        state: State of the entry and of the process that stored it, see `State`.
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        status: Status in the activity log.
        occurred_at: Time of the call.
        url: Address of the gateway that receives the entry.
        environment: `production` or `test`.
        organization: Id of the organization of the API key, or None if the gateway has not yet returned it.
        size: Size in bytes.
        reason: The gateway's reason for rejecting the entry, or None.
    """

    file: Path
    row: int
    key: str
    state: State
    action: str
    agent_id: str
    status: str
    occurred_at: str
    url: str
    environment: str
    organization: str | None
    size: int
    reason: str | None


def has_outbox(place: Place) -> bool:
    """Return whether an outbox exists on the disk: the folder, or the file that version 0.1 used."""
    path = place.path
    return path is not None and (path.exists() or path.with_name(f"{path.name}.db").exists())


def list_entries(place: Place) -> list[StoredEntry]:
    """Return all entries in the outbox folder, the oldest first.

    Raises:
        Busy: Another process is writing to a file of the folder.
        OutboxFault: A file of the folder cannot be read.
    """
    if place.path is None:
        return []
    convert_shared_file(place)
    found = [entry for file in outbox_files(place.path) for entry in _entries(file)]
    return sorted(found, key=lambda entry: entry.occurred_at)


def drop_entries(entries: Iterable[StoredEntry]) -> int:
    """Delete entries from their files, and return the number of deleted entries; keep those whose tool may be running.

    Raises:
        Busy: Another process is writing to one of the files.
        OutboxFault: One of the files cannot be written.
    """
    gone = 0
    for file, chosen in groupby(sorted(entries, key=lambda entry: entry.file), key=lambda entry: entry.file):
        # The process that created the file holds the file's lock until it ends. If the result is None, the lock is
        # held, so that process is still running.
        lock = FileLock.acquire(lock_path(file))
        try:
            with open_file(file) as connection:
                if connection is None:
                    continue
                for entry in chosen:
                    gone += connection.execute(
                        "DELETE FROM entries WHERE id = ? AND key = ? AND (state <> 0 OR ?)",
                        (entry.row, entry.key, lock is not None),
                    ).rowcount
                (left,) = connection.execute("SELECT rows FROM totals").fetchone()
            if lock is not None and not left:
                delete_file(file, lock)
        finally:
            if lock is not None:
                lock.release()
    return gone


def unpark_all(outbox: Outbox) -> int:
    """Queue all parked entries (which the gateway has rejected) again, and return their number.

    First, entries with the same target (gateway, organization and environment) are moved from the other files of the
    folder into the file of `outbox`. From files of running processes, only parked entries are moved; from files of
    processes that have ended, all entries are moved.
    """
    while (found := adopt_files(outbox, lambda: True)) is not None and found[0] and not found[1]:
        pass
    retrieve_parked(outbox)
    return outbox.unpark()


def _entries(file: Path) -> list[StoredEntry]:
    lock = FileLock.acquire(lock_path(file))
    if lock is not None:
        lock.release()
    with open_file(file) as connection:
        if connection is None:
            return []
        target = read_target(connection)
        rows = connection.execute(
            "SELECT id, key, state, bytes, reason, body FROM entries ORDER BY id"
        ).fetchall()
    found: list[StoredEntry] = []
    for row, key, state, size, reason, text in rows:
        body: dict[str, Any] = json.loads(text)
        found.append(
            StoredEntry(
                file=file,
                row=row,
                key=key,
                state=_STATES[state][lock is not None],
                action=str(body.get("action", "")),
                agent_id=str(body.get("agent_id", "")),
                status=str(body.get("status", "")),
                occurred_at=str(body.get("occurred_at", "")),
                url=target.url,
                environment=target.environment,
                organization=target.organization,
                size=size,
                reason=reason,
            )
        )
    return found
