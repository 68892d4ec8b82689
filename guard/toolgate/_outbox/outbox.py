"""Outbox of one guard, which stores log entries in a file, so that they survive the end of the process."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final, TypeVar

from toolgate._capture.jsontext import Json, dumps
from toolgate._models import Entry, Intent
from toolgate._outbox import Busy, OutboxFault
from toolgate._outbox.store import (
    INTENT,
    READY,
    FileLock,
    Row,
    Target,
    connect,
    create_file,
    delete_file,
    explain,
    folder_totals,
    transaction,
    write_schema,
)
from toolgate._settings import Place
from toolgate._telemetry import logger

__all__ = ["Outbox", "StoredEntry", "entry_text"]

#: entry that was read from the outbox file of another process: key, state, bytes, body and reason
StoredEntry = tuple[str, int, int, str, str | None]

_T = TypeVar("_T")
# Seconds to wait for the lock of an outbox. Other threads hold it briefly: for a few statements, or while a commit
# waits for the disk.
_LOCK_TIMEOUT: Final = 0.05
# Number of bytes by which a log entry usually grows when the outcome of the tool call is added to it.
_OUTCOME_BYTES: Final = 192
# Number of pages (of 2 KiB each, 8 MiB in total) after which SQLite's write-ahead log is restarted.
_LONG_WAL: Final = 4_096
_UNLIMITED: Final = 2**62
_WARN_AT: Final = (0.5, 0.9)
_REARM_AT: Final = 0.4

# The statements contain states as literals and not as parameters. The index of queued entries covers only rows with
# `state = 1`, and SQLite uses it only for statements that contain exactly this condition.
_INSERT: Final = """
INSERT INTO entries (key, state, bytes, body) SELECT ?, ?, ?, ?
WHERE (SELECT rows < ? AND bytes < ? FROM totals)
RETURNING id, (SELECT rows FROM totals), (SELECT bytes FROM totals)
"""
_FINISH: Final = """
UPDATE entries SET state = 1, body = ?, bytes = max(bytes, ?) WHERE id = ? AND key = ? AND state = 0
"""
_FINISH_SAME_SIZE: Final = "UPDATE entries SET state = 1, body = ? WHERE id = ? AND key = ? AND state = 0"
_BATCH: Final = "SELECT id, key, body FROM entries WHERE old = ? AND state = 1 AND id > ? ORDER BY id LIMIT ?"
_STORE_TARGET: Final = "UPDATE target SET (url, fingerprint, environment, organization) = (?, ?, ?, ?)"
_TAKE_IN: Final = (
    "INSERT INTO entries (key, state, old, bytes, body, reason) VALUES (?, max(?, 1), 1, ?, ?, ?)"
)


class Outbox:
    """Durable queue of log entries, which stores them until the gateway has acknowledged them.

    All threads may use it; a forked child process creates its own file. Methods raise `Busy` while another thread or
    process is writing, and `OutboxFault` if entries cannot be stored.

    Args:
        place: The folder and its limits.
        target: The gateway and the organization that receive the entries.

    Attributes:
        file: Path of the outbox file; None before the first use, after `close`, or if entries are in memory only.
        side_lock: Lock that a thread holds while it uses a further SQLite connection, to this file or to another file.
            A fork waits for this lock, because a forked child must not use a connection that its parent opened.
    """

    def __init__(self, place: Place, target: Target) -> None:
        self.place = place
        self.target = target
        self.file: Path | None = None
        self.side_lock = threading.RLock()
        self._lock = threading.RLock()
        self._inside = False
        self._connection: sqlite3.Connection | None = None
        self._file_lock: FileLock | None = None
        self._others: tuple[int, int] | None = None
        self._target_stored = True
        self._warned_at = 0.0
        _outboxes.add(self)

    def __del__(self) -> None:
        if connection := self.__dict__.get("_connection"):
            # The garbage collector may delete this object and an unfinished call together, this object first. The
            # attribute is reset, so that the call can open the file again to write its log entry.
            self._connection = None
            connection.close()

    @property
    def is_open(self) -> bool:
        """Return whether the outbox has been used, and has therefore opened its file or its database in memory."""
        return self._connection is not None or self._file_lock is not None

    def learn(self, organization: str, environment: str) -> None:
        """Store the organization and environment of the API key, which a response of the gateway contained."""
        if (self.target.organization, self.target.environment) != (organization, environment):
            self.target = replace(self.target, organization=organization, environment=environment)
            self._target_stored = False

    # Methods that write to the outbox.

    def intend(self, entry: Entry) -> Intent:
        """Store an intent before a tool runs: the log entry of the call, still without an outcome."""
        body = entry_text(entry.body, entry.key)
        # The size includes space for the outcome, so that the counted bytes rarely change when the outcome is stored.
        size = len(body.encode()) + _OUTCOME_BYTES
        return Intent(self._insert(entry.key, INTENT, size, body), entry.key, os.getpid(), size)

    def add(self, entry: Entry) -> None:
        """Store an entry, and queue it to be sent."""
        body = entry_text(entry.body, entry.key)
        self._insert(entry.key, READY, len(body.encode()), body)

    def finish(self, entry: Entry, intent: Intent) -> None:
        """Replace an intent with the complete entry when the tool has ended; queue it even if the outbox is full."""
        body = entry_text(entry.body, intent.key)
        size = len(body.encode())

        def work(connection: sqlite3.Connection) -> None:
            if size > intent.size:
                done = connection.execute(_FINISH, (body, size, intent.place, intent.key))
            else:
                done = connection.execute(_FINISH_SAME_SIZE, (body, intent.place, intent.key))
            if not done.rowcount:
                # The intent is no longer in this file: another process has moved it to its own file, or it was deleted.
                # The new entry has the Idempotency-Key of the intent. If the other process sends the intent as well,
                # the gateway recognizes the key and stores only one log entry.
                connection.execute(
                    _INSERT, (intent.key, READY, size, body, _UNLIMITED, _UNLIMITED)
                ).fetchall()

        self._do(work)

    def forget(self, intent: Intent) -> None:
        """Delete an intent (a log entry stored in advance) whose tool did not run."""
        self.settle([Row(intent.place, intent.key, "")], [])

    def settle(self, rows: Sequence[Row], parked: Sequence[tuple[Row, str]]) -> None:
        """Delete the entries that the gateway has stored, and park those that it rejected: they are not sent again.

        Args:
            rows: Entries to delete.
            parked: Entries to park, each with the gateway's reason.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.executemany(
                    "DELETE FROM entries WHERE id = ? AND key = ?", [(row.id, row.key) for row in rows]
                )
                connection.executemany(
                    "UPDATE entries SET state = 2, reason = ? WHERE id = ? AND key = ?",
                    [(reason, row.id, row.key) for row, reason in parked],
                )

        self._do(work)

    def age(self) -> None:
        """Mark all queued entries as old. `Pace` delays old entries, so that current calls can use the rate limit."""
        self._do(lambda db: db.execute("UPDATE entries SET old = 1 WHERE state = 1 AND old = 0"))

    def unpark(self) -> int:
        """Queue parked entries (which the gateway has rejected) again, and return their number."""
        update = "UPDATE entries SET state = 1, old = 1, reason = NULL WHERE state = 2"
        return self._do(lambda db: db.execute(update).rowcount)

    def take_in(self, entries: Iterable[StoredEntry]) -> None:
        """Store and queue entries from another file. After this method has returned, they survive a power loss.

        Intents (entries without an outcome) are queued too. Parked entries, which the gateway has rejected, are stored
        but not queued.
        """

        def work(connection: sqlite3.Connection) -> None:
            # The caller then deletes the entries from the other file, so the copies must be on the disk first.
            connection.execute("PRAGMA synchronous = FULL")
            try:
                with transaction(connection):
                    connection.executemany(_TAKE_IN, entries)
            finally:
                if not self.place.full_sync:
                    connection.execute("PRAGMA synchronous = NORMAL")

        self._do(work)

    # Methods that read from the outbox.

    def batch(self, *, old: bool, after: int, limit: int) -> list[Row]:
        """Return up to `limit` queued entries whose row ids are above `after`, in the order of the row ids.

        If `old` is true, return only entries that are marked as old (see `age`); otherwise, return only the others.
        """
        return self._do(
            lambda db: [Row(*found) for found in db.execute(_BATCH, (old, after, limit)).fetchall()]
        )

    def waits(self) -> bool:
        """Return whether at least one entry is queued to be sent."""
        return bool(self._number("SELECT EXISTS (SELECT 1 FROM entries WHERE state = 1)"))

    def count(self) -> int:
        """Return how many entries are queued to be sent."""
        return self._number("SELECT count(*) FROM entries WHERE state = 1")

    def check_space(self) -> None:
        """Raise `OutboxFault` if no further entry can be stored."""
        # The entries in other files are counted again, because other processes may have sent some since the last count.
        self.count_others()
        rows, size = self._do(lambda db: db.execute("SELECT rows, bytes FROM totals").fetchone())
        other_rows, other_size = self._others or (0, 0)
        if rows + other_rows >= self.place.rows or size + other_size >= self.place.size:
            raise self._full(rows + other_rows)

    def count_others(self) -> None:
        """Count the entries in the other files of the folder, because the limits apply to the whole folder."""
        if self.place.path is None:
            self._others = (0, 0)
            return
        if not self.side_lock.acquire(timeout=_LOCK_TIMEOUT):
            raise Busy("another thread is reading the outbox folder")
        try:
            self._others = folder_totals(self.place.path, self.file)
        finally:
            self.side_lock.release()

    # Methods that manage the outbox file and its SQLite connection.

    def abandon(self) -> list[object]:
        """Discard the queued entries if they are only in memory, and return their actions; with a file, do nothing."""
        if self.place.path is not None:
            return []
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                return []
            bodies = connection.execute("SELECT body FROM entries WHERE state = 1").fetchall()
            connection.close()
        return [json.loads(body).get("action") for (body,) in bodies]

    def checkpoint(self) -> None:
        """Copy SQLite's write-ahead log into the file, on a separate connection so that no caller is blocked."""
        with self.side_lock:
            if self.file is None:
                return
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(self.file, timeout=0)) as other,
            ):
                moved = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if moved and moved[1] > _LONG_WAL:
                    # If callers write without a pause, SQLite never restarts the write-ahead log by itself, and the log
                    # would grow without limit. This restart blocks callers only while the few remaining pages are
                    # copied.
                    other.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def close(self) -> None:
        """Close the file, so that other processes can send its entries; delete the file if it is empty.

        While a tool of this process runs, the file stays open. Otherwise another process would send the tool's log
        entry without the outcome.
        """
        with self.side_lock, self._lock:
            connection, lock, file = self._connection, self._file_lock, self.file
            # If the file cannot be read, it may contain entries, so it is not deleted.
            is_empty = False
            if connection is None and file is not None:
                # `before_fork` has closed the connection. A new connection is needed to find out whether the file is
                # empty.
                with contextlib.suppress(sqlite3.Error):
                    connection = connect(file)
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    is_empty = connection.execute("SELECT rows = 0 FROM totals").fetchone() == (1,)
                    running = connection.execute("SELECT EXISTS (SELECT 1 FROM entries WHERE state = 0)")
                    if file is not None and running.fetchone()[0]:
                        self._connection = connection
                        return
                connection.close()
            self._connection = self._file_lock = self.file = None
            if lock is not None and file is not None:
                if is_empty:
                    delete_file(file, lock)
                else:
                    lock.release()

    def _insert(self, key: str, state: int, size: int, body: str) -> int:
        if self._others is None:
            self.count_others()

        def work(connection: sqlite3.Connection) -> list[tuple[int, int, int]]:
            rows, bytes_ = self._others or (0, 0)
            values = (key, state, size, body, self.place.rows - rows, self.place.size - bytes_)
            # `fetchall` is needed although there is at most one row: SQLite commits only after the last row was
            # fetched.
            return connection.execute(_INSERT, values).fetchall()

        found = self._do(work)
        if not found:
            # Entries in other files are counted again, because other processes may have sent some since the last count.
            self.count_others()
            found = self._do(work)
        other_rows, other_size = self._others or (0, 0)
        if not found:
            raise self._full(self._number("SELECT rows FROM totals") + other_rows)
        ((place, rows, size_before),) = found
        self._warn_when_filling(rows + 1 + other_rows, size_before + size + other_size)
        return place

    def _number(self, statement: str) -> int:
        return int(self._do(lambda db: db.execute(statement).fetchone()[0]))

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT):
            raise Busy("another thread is writing to the outbox")
        try:
            if self._inside:
                # This thread is already executing a statement. During the statement, the garbage collector ended
                # another call, which now writes its log entry. The lock does not prevent this, because it is reentrant.
                raise Busy("this thread is already writing to the outbox")
            self._inside = True
            try:
                connection = self._connection
                if connection is None or not self._target_stored:
                    connection = self._opened()
                return work(connection)
            except sqlite3.Error as error:
                raise explain(error, self.place.path or "memory") from error
            finally:
                self._inside = False
        finally:
            self._lock.release()

    def _opened(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None:
            if self.file is not None:
                connection = connect(self.file, full_sync=self.place.full_sync)
            elif self.place.path is None:
                connection = connect(None)
                write_schema(connection, self.target)
            else:
                self.file, self._file_lock, connection = create_file(self.place.path, self.target, self.place)
            self._connection = connection
        if not self._target_stored:
            target = self.target
            connection.execute(_STORE_TARGET, astuple(target))
            # If another thread has changed `target` during the statement, the new target is stored at the next use.
            self._target_stored = target is self.target
        return connection

    def _full(self, rows: int) -> OutboxFault:
        return OutboxFault(
            f"the outbox {str(self.place.path or 'memory')!r} is full: {rows:,} log entries wait to be sent",
            "check why the gateway does not accept them, or raise TOOLGATE_OUTBOX_ROWS and TOOLGATE_OUTBOX_BYTES",
            full=True,
        )

    def _warn_when_filling(self, rows: int, size: int) -> None:
        share = max(rows / self.place.rows, size / self.place.size)
        if share < _WARN_AT[0]:
            if share < _REARM_AT:
                self._warned_at = 0.0
            return
        reached = max(level for level in _WARN_AT if share >= level)
        if reached <= self._warned_at:
            return
        self._warned_at = reached
        logger.warning(
            "the outbox %r is %d %% full: %d log entries wait for the gateway; when it is full, guarded "
            "tools do not run; check why the gateway does not accept them",
            str(self.place.path or "memory"),
            round(reached * 100),
            rows,
            extra={"toolgate_event": "outbox_fills", "toolgate_entries": rows},
        )

    # Methods for forks of the process. A child must neither use nor close a connection that its parent opened.

    def before_fork(self) -> None:
        """Acquire all locks, so that no other thread uses the outbox during the fork, and close the connection."""
        self.side_lock.acquire()
        self._lock.acquire()
        if self._connection is not None and self.file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def after_fork_in_parent(self) -> None:
        """Release all locks after a fork, so that other threads can use the outbox again."""
        self._lock.release()
        self.side_lock.release()

    def after_fork_in_child(self) -> None:
        """Remove references to the parent's file, so that the child creates its own file at the next use."""
        self._lock, self.side_lock = threading.RLock(), threading.RLock()
        self._inside = False
        if self._connection is not None:
            # Native code forked the process without calling `before_fork`, so the parent's connection is still open.
            # `_inherited` keeps a reference to it, so that the garbage collector does not close it.
            _inherited.append(self._connection)
        if self._file_lock is not None:
            self._file_lock.release()
        self._connection = self._file_lock = self.file = self._others = None
        self._warned_at = 0.0


def entry_text(body: dict[str, Json], key: str) -> str:
    """Return the JSON text of an entry with this Idempotency-Key, as it is sent in the list `entries`."""
    return dumps({**body, "idempotency_key": key})


def _before_fork() -> None:
    _forking.acquire()
    # `_held` contains the outboxes whose locks are acquired here. After the fork, only their locks are released, even
    # if further outboxes were created during the fork.
    _held.extend(_outboxes)
    for outbox in _held:
        outbox.before_fork()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()
    _forking.release()


def _after_fork_in_child() -> None:
    _held.clear()
    for outbox in list(_outboxes):
        outbox.after_fork_in_child()
    if _forking.locked():
        _forking.release()


_outboxes: Final[weakref.WeakSet[Outbox]] = weakref.WeakSet()
_forking: Final = threading.Lock()
_held: Final[list[Outbox]] = []
_inherited: Final[list[sqlite3.Connection]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
