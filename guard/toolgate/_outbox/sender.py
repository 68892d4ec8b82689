"""Background thread that sends the entries of an outbox; it starts when an entry is queued, and ends when idle."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolgate._http.client import key_scope
from toolgate._models import Entry, Intent
from toolgate._outbox import Busy, OutboxFault
from toolgate._outbox.delivery import Deliverer, Delivery, OutageLog, Pace
from toolgate._outbox.outbox import Outbox, entry_text
from toolgate._outbox.recovery import adopt_files
from toolgate._outbox.store import Row, Target
from toolgate._settings import Place, Settings
from toolgate._telemetry import count_backlog, log_event, logger

__all__ = ["Sender", "make_sender"]

_MAX_ENTRIES: Final = 100
# Maximum bytes of the entries in one request. The gateway accepts 256 KiB, including the JSON around the entries.
_MAX_BYTES: Final = 224 * 1024
_MAX_UNWRITTEN: Final = 10_000
# Seconds to wait after an entry was queued, so that further entries are sent in the same request.
_LINGER: Final = 0.1
# Idle seconds after which the thread ends.
_IDLE: Final = 5.0
_ADOPT_EVERY: Final = 30.0
_MAINTAIN_EVERY: Final = 1.0
_RETRY_BUSY: Final = 0.005
_FINGERPRINT_LABEL: Final = b"toolgate outbox v1"


class Signals:
    """Two flags with which other threads wake the sender's thread.

    Setting a flag acquires no lock. The garbage collector can end a call in any thread, and the end of a call sets a
    flag. If that thread already held a lock of the flag, it would wait for itself (deadlock).

    Attributes:
        woken: Whether an entry may have been queued.
        hurried: Whether a caller waits until all entries are sent.
    """

    def __init__(self) -> None:
        self.woken = False
        self.hurried = False
        self._changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """Set `woken`, because an entry was queued."""
        if not self.woken:
            self.woken = True
            self._changes.put(None)

    def hurry(self) -> None:
        """Set `hurried`, because a caller waits until all entries are sent."""
        if not self.hurried:
            self.hurried = True
            self._changes.put(None)

    def take_hurry(self) -> bool:
        """Return whether the sender must send all entries immediately, and reset the flag."""
        if self.hurried:
            self.hurried = False
            return True
        return False

    def wait(self, seconds: float, *, hurried_only: bool = True) -> bool:
        """Wait until `hurried` or, unless `hurried_only`, `woken` is set; return False if `seconds` pass first."""
        ends = time.monotonic() + seconds
        while not (self.hurried or (self.woken and not hurried_only)):
            try:
                self._changes.get(timeout=max(0.0, ends - time.monotonic()))
            except queue.Empty:
                return False
        return True


class Sender:
    """Sends the entries of an outbox in a background thread.

    Args:
        outbox: The outbox that contains the entries.
        deliverer: Function that creates the client for requests to the gateway; called before the first request.
        timeout: Maximum seconds of one request.

    Attributes:
        after_close: Function that the thread calls when it ends; None until the guard is closed. After the guard is
            closed, the thread does not retry failed requests.
    """

    def __init__(self, outbox: Outbox, deliverer: Callable[[], Deliverer], timeout: float) -> None:
        self.outbox = outbox
        self._make = deliverer
        self._deliverer: Deliverer | None = None
        self._timeout = timeout
        self._outages = OutageLog()
        self.after_close: Callable[[], None] | None = None
        self._reset()
        count_backlog(self)
        _senders.add(self)

    def _reset(self) -> None:
        # Also called in a forked child, which starts without entries: its parent sends the entries in memory.
        self._unwritten: dict[str, tuple[Entry, Intent | None]] = {}
        self._void: dict[str, Intent] = {}
        self._pace = Pace()
        self._signals = Signals()
        self._starting = threading.RLock()
        self._working = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._after = {False: 0, True: 0}
        self._skipped = False
        self._limit = _MAX_ENTRIES
        self._failures = 0
        self._hurried = self._gathers = self._hastens = False
        self._adopted = False
        self._adopt_at = self._checkpoint_at = self._count_at = 0.0
        self._last_count = 0

    # Methods that other threads call. Only `flush`, `stop` and `knows_organization` wait for the network.

    def __len__(self) -> int:
        """Return the number of queued entries. While the file cannot be read, its last known number is used."""
        try:
            self._last_count = self.outbox.count() if self.outbox.is_open else 0
        except (Busy, OutboxFault):
            logger.debug("the log entries in the outbox could not be counted")
        return len(self._unwritten) + self._last_count

    def keep(self, entry: Entry, intent: Intent | None) -> bool:
        """Keep an entry in memory, because it cannot be written now; return False if 10,000 are already kept."""
        if len(self._unwritten) >= _MAX_UNWRITTEN:
            return False
        self._unwritten[entry.key] = (entry, intent)
        return True

    def forget(self, intent: Intent) -> None:
        """Delete, in the background, an intent (a log entry stored in advance) whose tool did not run."""
        self._void[intent.key] = intent
        self.wake()

    @property
    def owes_writes(self) -> bool:
        """Return whether new entries or deletions are still only in memory and must be written to the file."""
        return bool(self._unwritten or self._void)

    def abandon(self) -> list[object]:
        """Discard all entries that are not in a file, and return the names of their actions."""
        gone = [self._unwritten.pop(key, None) for key in list(self._unwritten)]
        return [each[0].body.get("action") for each in gone if each is not None] + self.outbox.abandon()

    def wake(self) -> None:
        """Start the thread, or wake it if it is running, so that it sends queued entries."""
        self._signals.wake()
        if self._thread is None:
            self._start()

    def answered(self) -> None:
        """Shorten the pause after failed requests, because the gateway has just responded to a call."""
        if self._pace.is_failing:
            self._pace.nudge()

    def hurry(self) -> int:
        """Make the thread send all entries immediately; return the number of failed requests so far."""
        # The number is read before the thread is woken: `is_done` compares it with the number of failures later, to
        # detect a failure of the thread's next request.
        failures = self._failures
        self._adopted, self._adopt_at = False, 0.0
        self._signals.hurry()
        self.wake()
        return failures

    def flush(self, seconds: float) -> bool:
        """Wait up to `seconds` until all entries are sent or a request fails; return whether all entries are sent."""
        failures, ends = self.hurry(), time.monotonic() + seconds
        while (done := self.is_done(failures)) is None and (left := ends - time.monotonic()) > 0:
            if self._thread is None:
                # No thread can be started during interpreter shutdown, so the caller's thread sends the entries.
                self._turn(left)
            else:
                time.sleep(_RETRY_BUSY)
        return bool(done)

    def is_done(self, failures: int) -> bool | None:
        """Return True if all entries are sent, False if a request has failed since `hurry` was called, otherwise None.

        Args:
            failures: Number of failed requests that `hurry` returned.
        """
        try:
            if self._adopted and not self.owes_writes and not self.outbox.waits():
                return True
        except Busy:
            return None
        except OutboxFault:
            return False
        return False if self._failures > failures else None

    def stop(self, seconds: float) -> bool:
        """End the thread after its current request, and close the connections.

        Return whether the thread has ended within `seconds`.
        """
        self._stopped = True
        self._signals.hurry()
        self._signals.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        if self._deliverer is not None:
            self._deliverer.close()
        return thread is None or not thread.is_alive()

    def knows_organization(self) -> bool:
        """Return whether the organization of the API key is known.

        If it is not known yet, send a request without entries, because the response contains the organization.
        """
        if self.outbox.target.organization is not None:
            return True
        if self._pace.pause(hurried=self._hurried):
            return False
        delivery = self._to_gateway((), self._timeout)
        if delivery.fault is not None:
            self._failures += 1
            # The failure is not logged: only entries of processes that have ended wait for the organization's id.
            self._pace.failed(delivery.pause, lasting=delivery.lasting)
        return delivery.fault is None

    # Methods of the background thread.

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or sys.is_finalizing():
                # During the finalization of the interpreter, `Thread.start` would block forever.
                return
            thread = threading.Thread(target=self._run, name="toolgate-outbox", daemon=True)
            self._thread, self._stopped = thread, False
            try:
                thread.start()
            except RuntimeError:
                # No thread can be started during interpreter shutdown; the next process sends the queued entries.
                self._thread = None

    def _run(self) -> None:
        try:
            self._keep_sending(threading.current_thread())
        finally:
            # If this thread ends with an exception, `wake` must be able to start another thread.
            if self._thread is threading.current_thread():
                self._thread = None

    def _keep_sending(self, me: threading.Thread) -> None:
        while self._thread is me:
            try:
                pause = self._turn(self._timeout)
            except Exception:  # noqa: BLE001 - after a defect, the thread must continue to send entries
                logger.exception("the log entries in the outbox could not be sent; sending is tried again")
                self._failures += 1
                pause = _IDLE
            self._maintain()
            if pause is None:
                self._hastens = False
            if pause and self.after_close is not None:
                self._stopped = True
            if self._stopped or (pause is None and not self._rest()):
                if self.after_close is not None:
                    self.after_close()
                self._thread = None
                # A caller that set `woken` before `_thread` was reset has started no thread, so one is started here.
                if self._stopped or not self._signals.woken:
                    return
                self._start()
            elif pause:
                # `hurry` can end this wait early. If the gateway requested the pause, `_turn` continues it.
                self._signals.wait(pause)
            elif self._gathers:
                # Further entries are likely to follow, and a single request for all of them takes less time.
                self._signals.wait(_LINGER)

    def _rest(self) -> bool:
        """Wait up to 5 seconds until a further entry is queued; return False if no entry was queued in this time."""
        if not self._signals.wait(_IDLE, hurried_only=False):
            return False
        self._signals.woken = False
        self._signals.wait(_LINGER)
        return True

    def _turn(self, seconds: float) -> float | None:
        """Send one request with entries; return the seconds until the next request, or None if nothing is queued."""
        with self._working:
            self._hurried = self._signals.take_hurry()
            self._gathers = False
            # `_hastens` stays set until no entry is queued: `flush` also waits for entries that are added meanwhile.
            self._hastens = self._hastens or self._hurried
            try:
                return self._send(seconds)
            except Busy:
                self._renew_hurry()
                time.sleep(_RETRY_BUSY)
                return 0.0
            except OutboxFault as fault:
                self._failures += 1
                self._outages.failed(0, str(fault))
                return self._send_unwritten(seconds)

    def _renew_hurry(self) -> None:
        # If a caller of `flush` is still waiting after this request, the next request must skip the backoff as well.
        if self._hurried:
            self._signals.hurry()

    def _send(self, seconds: float) -> float | None:
        self._write_unwritten()
        self._adopt()
        hurried = self._hurried
        if pause := self._pace.pause(hurried=hurried):
            self._failures += hurried
            return pause
        for old in (False, True):
            if old and (pause := self._pace.pause(old=True, hurried=hurried)):
                if not self.outbox.waits():
                    break
                self._failures += hurried
                return pause
            waiting = self.outbox.batch(old=old, after=self._after[old], limit=self._limit)
            if rows := self._fitting(waiting):
                # After the last new entries, the thread waits for further ones only if no old entries are queued.
                last = not old and len(rows) == len(waiting) < self._limit and not self._has_old()
                pause = self._deliver(rows, seconds, old=old)
                unlimited = len(rows) <= self._limit
                self._gathers = last and unlimited and not pause and not self._hastens
                return pause
        if self._skipped:
            # The thread skipped entries that the gateway did not accept. It now sends these entries again.
            self._skipped, self._after = False, {False: 0, True: 0}
            return self._pace.pause() or _RETRY_BUSY
        return None if self._adopted else _RETRY_BUSY

    def _has_old(self) -> bool:
        return bool(self.outbox.batch(old=True, after=self._after[True], limit=1))

    def _deliver(self, rows: list[Row], seconds: float, *, old: bool) -> float:
        delivery = self._to_gateway([(row.key, row.body) for row in rows], seconds)
        results = list(zip(rows, delivery.results, strict=False))
        taken = [row for row, result in results if result.taken]
        parked = [(row, result.why) for row, result in results if result.hopeless]
        for row, reason in parked:
            _log_parked(row, reason)
        if taken or parked:
            self._patiently(lambda: self.outbox.settle(taken, parked))
        refused = next(
            (result.why for _, result in results if not result.taken and not result.hopeless), None
        )
        problem = str(delivery.fault) if delivery.fault is not None else refused
        if delivery.fault is not None and self._stopped:
            # The request failed because this process closed the connection, and not because of an outage.
            problem = "the guard was closed before the gateway answered"
        if problem is None:
            if self._pace.is_failing:
                # After an outage the queued entries are marked as old, so that they do not exhaust the rate limit of
                # current calls.
                self._patiently(self.outbox.age)
                self._outages.over()
            self._pace.worked()
            self._limit = min(_MAX_ENTRIES, self._limit * 2)
            return 0.0
        if delivery.too_large and len(rows) > 1:
            self._limit = max(1, len(rows) // 2)
            self._renew_hurry()
            return 0.0
        if refused is not None:
            self._after[old], self._skipped = rows[-1].id, True
        self._failures += 1
        self._pace.failed(delivery.pause, lasting=delivery.lasting)
        self._outages.failed(len(rows) - len(taken) - len(parked), problem)
        return self._pace.pause()

    def _to_gateway(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        if self._deliverer is None:
            self._deliverer = self._make()
        delivery = self._deliverer.deliver(entries, seconds)
        self._pace.read_headers(delivery.headers)
        if scope := key_scope(delivery.headers):
            self.outbox.learn(*scope)
        return delivery

    def _patiently(self, work: Callable[[], None]) -> None:
        ends = time.monotonic() + self._timeout
        while True:
            try:
                return work()
            except Busy:
                if time.monotonic() > ends:
                    raise
                time.sleep(_RETRY_BUSY)

    def _write_unwritten(self) -> None:
        for key, intent in list(self._void.items()):
            self.outbox.forget(intent)
            self._void.pop(key, None)
        for key, (entry, begun) in list(self._unwritten.items()):
            if begun is None:
                self.outbox.add(entry)
            else:
                self.outbox.finish(entry, begun)
            self._unwritten.pop(key, None)

    def _send_unwritten(self, seconds: float) -> float:
        """Send entries from memory, because the file cannot be used; return the seconds until the next request."""
        unwritten = list(self._unwritten.items())[:_MAX_ENTRIES]
        if unwritten and not self._pace.pause(hurried=self._hurried):
            delivery = self._to_gateway(
                [(key, entry_text(entry.body, key)) for key, (entry, _) in unwritten], seconds
            )
            for (key, _), result in zip(unwritten, delivery.results, strict=False):
                if result.taken:
                    self._unwritten.pop(key, None)
            if delivery.fault is None:
                self._pace.worked()
            else:
                self._pace.failed(delivery.pause, lasting=delivery.lasting)
        return _IDLE

    def _adopt(self) -> None:
        if (now := time.monotonic()) < self._adopt_at:
            return
        if (found := adopt_files(self.outbox, self.knows_organization)) is None:
            return
        moved, self._adopted = found
        if moved:
            logger.info("this process now sends %d log entries of processes that have ended", moved)
        if self._adopted:
            self._adopt_at = now + _ADOPT_EVERY

    def _maintain(self) -> None:
        now = time.monotonic()
        try:
            if now >= self._checkpoint_at:
                self._checkpoint_at = now + _MAINTAIN_EVERY
                self.outbox.checkpoint()
            if now >= self._count_at and self.outbox.is_open:
                self._count_at = now + _MAINTAIN_EVERY
                self.outbox.count_others()
                # Counting many files is slow: the interval grows, so that counting takes at most 2 % of the time.
                self._count_at += 50 * (time.monotonic() - now)
        except Exception:  # noqa: BLE001 - entries are sent all the same; the maintenance is repeated later
            logger.debug("the maintenance of the outbox file failed; it is tried again later")

    @staticmethod
    def _fitting(rows: list[Row]) -> list[Row]:
        size = 0
        for count, row in enumerate(rows):
            size += len(row.body.encode()) + 1
            if count and size > _MAX_BYTES:
                return rows[:count]
        return rows


def make_sender(settings: Settings, place: Place, deliverer: Callable[[], Deliverer]) -> Sender:
    """Create the outbox of a guard, and return a sender for it."""
    environment = "test" if settings.api_key.startswith("test_") else "production"
    # The digest of the API key is stored in the file. It does not reveal the key, which has at least 128 random bits.
    fingerprint = hmac.digest(settings.api_key.encode(), _FINGERPRINT_LABEL, hashlib.sha256).hex()
    return Sender(Outbox(place, Target(settings.url, fingerprint, environment)), deliverer, settings.timeout)


def _log_parked(row: Row, reason: str) -> None:
    body: dict[str, Any] = json.loads(row.body)
    log_event(
        "record_failed",
        body.get("action"),
        body.get("agent_id"),
        body.get("status"),
        reason=f"the gateway refused the log entry, which stays in the outbox as parked: {reason}",
        approval_id=body.get("approval_id"),
        level=logging.ERROR,
    )


def _after_fork_in_child() -> None:
    for sender in list(_senders):
        sender._reset()  # noqa: SLF001 - the class is defined in this module


_senders: Final[weakref.WeakSet[Sender]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
