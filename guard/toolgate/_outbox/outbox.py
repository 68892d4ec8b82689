"""The outbox of one guard: entries are written down before they are sent, and survive the process."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from toolgate._outbox.entries import Entry, Intent
from toolgate._outbox.faults import Busy, OutboxFault, explained
from toolgate._outbox.forks import survive_forks
from toolgate._outbox.levels import Levels
from toolgate._outbox.owners import Owner, claim, enter
from toolgate._outbox.place import Place
from toolgate._outbox.schema import INTENT, READY
from toolgate._outbox.store import Row, Store, Target

__all__ = ["Outbox"]

_T = TypeVar("_T")
# Nobody holds the lock for longer than a few statements, unless it waits for the disk.
_TURN: Final = 0.05
# What an outcome usually adds to its intent, in bytes.
_FOR_OUTCOME: Final = 192
# Connections that were open when the process was forked: closing one would harm the parent's file.
_inherited: Final[list[Store]] = []


class Outbox:
    """Keeps entries until the gateway has them. Any thread may use it, and a forked child has one of its own.

    Everything raises `Busy` when another process is writing, and `OutboxFault` when entries cannot be kept.

    Args:
        place: Where entries are kept, and how many.
        target: Where they are to be sent.
    """

    def __init__(self, place: Place, target: Target) -> None:
        self.place = place
        self.target = target
        self._lock = threading.RLock()
        # Held while a second connection is open: a fork must find none, SQLite's own locks are not made for it.
        self._tidying = threading.RLock()
        self._store: Store | None = None
        self._owner: Owner | None = None
        self._number = 0
        self._target_number = 0
        self._stuck = False
        self._inside = False
        self._levels = Levels(place)
        survive_forks(self)

    @property
    def is_open(self) -> bool:
        """Whether it has been used."""
        return self._store is not None

    def learn(self, organization: str, environment: str) -> None:
        """An answer named the organization: entries of the same key belong to it, also later ones."""
        if self.target.organization == organization and self.target.environment == environment:
            return
        with self._lock:
            self.target = Target(self.target.url, self.target.fingerprint, environment, organization)
            self._target_number = 0

    def intend(self, entry: Entry) -> Intent:
        """Write down that a tool is about to run."""
        body = entry.text()
        # Room for the outcome is counted now: nothing has to be counted anew when it fits.
        size = len(body.encode()) + _FOR_OUTCOME
        return Intent(self._insert(entry.key, body, INTENT, size), entry.key, os.getpid(), size)

    def add(self, entry: Entry) -> None:
        """Keep an entry, to be sent."""
        body = entry.text()
        self._insert(entry.key, body, READY, len(body.encode()))

    def finish(self, entry: Entry, intent: Intent) -> None:
        """Make an intent what became of it."""
        body = Entry(entry.body, intent.key).text()
        size = len(body.encode())

        def work(store: Store) -> None:
            counted = size if size > intent.size else None
            if not store.finish(self._number, intent.place, intent.key, body, counted):
                # Taken for dead meanwhile, or struck out by hand: the same key makes one log entry of both.
                owner = self._number, self._target_number
                store.insert(*owner, READY, intent.key, body, size, bounded=False)

        self._do(work)

    def forget(self, intent: Intent) -> None:
        """Strike out the intent of a tool that did not run after all."""
        self._do(lambda store: store.settle([Row(intent.place, intent.key, "")]))

    def room(self) -> None:
        """Say whether an entry can be kept.

        Raises:
            OutboxFault: It cannot.
        """
        rows, size = self._do(lambda store: store.totals())
        if rows >= self.place.rows or size >= self.place.size:
            raise self._full(rows)

    def batch(self, *, old: bool, after: int, limit: int) -> list[Row]:
        """What is to be sent next, in order."""
        return self._do(lambda store: store.batch(self._number, old=old, after=after, limit=limit))

    def settle(self, rows: list[Row], parked: list[tuple[Row, str]]) -> None:
        """The gateway has some, and never takes others."""

        def work(store: Store) -> None:
            store.settle(rows)
            if parked:
                store.park(parked)

        self._do(work)

    def waits(self) -> bool:
        """Whether something is to be sent."""
        return self._do(lambda store: store.waits(self._number))

    def count(self) -> int:
        """How many entries are to be sent."""
        return self._do(lambda store: store.count(self._number))

    def age(self) -> None:
        """What waits now has waited for long."""
        self._do(lambda store: store.age(self._number))

    def adopt(self, knows_whose: Callable[[], bool]) -> int | None:
        """Take over what dead owners left that goes where ours goes.

        Args:
            knows_whose: Finds out to which organization the key belongs, if there is something to take over.

        Returns:
            How many entries, or None if nobody could be asked.
        """
        path = self.place.path
        if path is None:
            return 0
        adopted = 0
        for number, token in self._do(lambda store: store.others(self._number)):
            if (dead := claim(path, token)) is None:
                continue
            try:
                if not knows_whose():
                    return None
                taken, gone = self._do(partial(self._take_over, number))
                adopted += taken
                if gone:
                    dead.leave()
            finally:
                dead.let_go()
        return adopted

    def unpark(self) -> int:
        """Have what was laid aside, and goes where ours goes, sent once more; returns how many entries."""
        return self._do(lambda store: store.unpark(self._number, self.target))

    def abandon(self) -> list[object]:
        """Give up what is in memory alone and was to be sent; returns the actions. A file is left as it is."""
        if self.place.path is not None or not self.is_open:
            return []
        # Whoever holds the lock does so for moments; there is no other process.
        with self._lock:
            store, self._store = self._store, None
            self._number = self._target_number = 0
            bodies = [] if store is None else store.bodies()
            if store is not None:
                store.close()
        return [json.loads(body).get("action") for body in bodies]

    def checkpoint(self) -> None:
        """Move what was written into the file itself: no caller pays for it."""
        path = self.place.path
        if path is None:
            return
        if not self.is_open:
            return
        # On a connection of its own, which holds nobody up.
        with (
            self._tidying,
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(path, timeout=0)) as other,
        ):
            moved = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if moved and moved[1] > _LONG_WAL:
                # Writers that never pause: the log is begun anew while they wait for what little is left.
                other.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def close(self) -> None:
        """Let go of the file; what is left in it is for whoever comes next."""
        with self._lock:
            store, self._store = self._store, None
            owner, self._owner = self._owner, None
            number, self._number, self._target_number = self._number, 0, 0
            gone = False
            if store is not None:
                with contextlib.suppress(sqlite3.Error):
                    gone = store.leave(number)
                store.close()
            if owner is not None:
                (owner.leave if gone else owner.let_go)()

    def _take_over(self, dead: int, store: Store) -> tuple[int, bool]:
        return store.adopt(dead, self._number, self.target), store.leave(dead)

    def _insert(self, key: str, body: str, state: int, size: int) -> int:
        def work(store: Store) -> tuple[int, int, int] | None:
            return store.insert(self._number, self._target_number, state, key, body, size)

        found = self._do(work)
        if found is None:
            raise self._full(self.place.rows)
        place, rows, size_before = found
        self._levels.seen(rows + 1, size_before + size)
        return place

    def _do(self, work: Callable[[Store], _T]) -> _T:
        if not self._lock.acquire(timeout=_TURN):
            raise Busy("another thread is writing")
        try:
            if self._inside:
                # A call that ended as garbage, collected in the midst of a statement of this very thread.
                raise Busy("this thread is writing")
            self._inside = True
            try:
                return work(self._opened())
            except sqlite3.Error as error:
                raise explained(error, self.place.path or "memory") from error
            finally:
                self._inside = False
        finally:
            self._lock.release()

    def _opened(self) -> Store:
        if self._stuck:
            raise OutboxFault(
                "the outbox was open when this process was forked past Python",
                "make the first guarded call after the fork, or fork by os.fork",
            )
        if self._store is None:
            self._store = Store(self.place)
        if self._owner is None and not self._number:
            self._enter(self._store)
        if not self._target_number:
            self._target_number = self._store.target(self.target)
        return self._store

    def _enter(self, store: Store) -> None:
        if self.place.path is None:
            self._number = store.enter("memory")
            return
        try:
            owner = enter(self.place.path)
        except OSError as error:
            raise OutboxFault(
                f"the outbox {str(self.place.path)!r} cannot be locked ({error.strerror})",
                "set TOOLGATE_OUTBOX to a file on a local disk, or to 'memory'",
            ) from error
        try:
            self._number = store.enter(owner.token)
        except BaseException:
            owner.leave()
            raise
        self._owner = owner

    def _full(self, rows: int) -> OutboxFault:
        return OutboxFault(
            f"the outbox {str(self.place.path or 'memory')!r} is full: {rows:,} log entries wait",
            "have the gateway take them, or raise TOOLGATE_OUTBOX_ROWS and _BYTES",
            full=True,
        )

    # Of forks. A connection is never there in two processes: the child would take the parent's locks for its own.

    def before_fork(self) -> None:
        """Hold everybody up, and close the file."""
        self._tidying.acquire()
        self._lock.acquire()
        if self._store is not None and self.place.path is not None:
            with contextlib.suppress(sqlite3.Error):
                self._store.close()
            self._store = None

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()
        self._tidying.release()

    def after_fork_in_child(self) -> None:
        """Begin anew, as another owner: what the parent kept is the parent's."""
        self._lock, self._tidying = threading.RLock(), threading.RLock()
        self._inside = False
        if self._store is not None and self.place.path is not None:
            _inherited.append(self._store)
            self._stuck = True
        if self._owner is not None:
            self._owner.let_go()
        self._store, self._owner, self._number, self._target_number = None, None, 0, 0
        self._levels = Levels(self.place)


# Pages of the write-ahead log beyond which it is begun anew: 16 MiB.
_LONG_WAL: Final = 4_096
