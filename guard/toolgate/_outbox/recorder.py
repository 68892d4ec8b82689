"""Recorder, which stores the log entries of calls in the outbox; a background thread sends them to the gateway.

If an entry cannot be stored after the tool has run, the recorder logs an error. The result of the call is unchanged.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolgate._models import Entry, Intent
from toolgate._outbox import Busy, OutboxFault
from toolgate._process_state import are_handlers_done
from toolgate._settings import Place
from toolgate._telemetry import count_losses, logger
from toolgate.errors import OutboxFull

if TYPE_CHECKING:
    from toolgate._outbox.sender import Sender

__all__ = ["Losses", "Recorder", "close_all"]

_POLL: Final = 0.005
# Maximum seconds between two attempts to write to the file. Other threads and processes lock the file only briefly.
_SHORT: Final = 0.002


class Losses:
    """Counts lost log entries, and logs an error when 1, 2, 4, 8 and so on entries are lost.

    Attributes:
        count: Number of lost entries so far.
    """

    def __init__(self) -> None:
        self.count = 0

    def add(self, action: object, reason: str, entries: int = 1, *, always_log: bool = False) -> None:
        """Count lost entries; `action` is the action of the last one. With `always_log`, log an error each time."""
        before = self.count
        self.count += entries
        if not before:
            # The metric `toolgate.entries.lost` includes this counter from now on, even after the guard is deleted.
            count_losses(self)
        if always_log or before.bit_length() != self.count.bit_length():
            logger.error(
                "%d log entries were lost; the last one is of action %r: %s",
                self.count,
                action,
                reason,
                extra={
                    "toolgate_event": "entries_lost",
                    "toolgate_action": action,
                    "toolgate_entries": self.count,
                },
            )


class Recorder:
    """Stores the log entries of one guard's calls in an outbox; a background thread sends them from there.

    Args:
        place: Folder and limits of the outbox.
        make: Function that creates the outbox and its sender when they are first needed.
        key_scope: Function that returns organization and environment of the API key, or None as long as no response of
            the gateway has contained them.
        timeout: Maximum seconds to wait while another thread or process is writing to the outbox file.
    """

    def __init__(
        self,
        place: Place,
        make: Callable[[Place], Sender],
        key_scope: Callable[[], tuple[str, str] | None],
        timeout: float,
    ) -> None:
        self.place = place
        self._make = make
        self._key_scope = key_scope
        self._timeout = timeout
        self._made: dict[int, Sender] = {}
        self._process = os.getpid()
        self._losses = Losses()
        self._failing = False
        self._logged = False
        self._closed = False

    @property
    def entries_lost(self) -> int:
        """Number of entries of this process that could not be stored."""
        return 0 if self._process != os.getpid() else self._losses.count

    @property
    def used(self) -> bool:
        """Return whether the outbox and its sender have been created, which happens at their first use."""
        return bool(self._made)

    def ready(self, action: str) -> None:
        """Raise an error if entries cannot be stored. This method is called before the check is sent to the gateway.

        Raises:
            OutboxFull: Entries cannot be stored.
        """
        outbox = self.sender().outbox
        if outbox.is_open and not self._failing:
            return
        try:
            outbox.check_space()
            self._failing = False
        except Busy:
            return
        except OutboxFault as fault:
            raise _refusal(action, fault) from fault

    def intend(self, entry: Entry, *, may_be_lost: bool) -> Intent | None:
        """Store an intent before a tool runs: the log entry of the call, still without an outcome.

        If the intent cannot be stored and `may_be_lost` is true (calls with `fail_open`), return None. If `may_be_lost`
        is false, raise an error, so that the tool does not run.

        Raises:
            OutboxFull: The intent cannot be stored, and `may_be_lost` is false.
        """
        ends = time.monotonic() + self._timeout
        while (intent := self._try_intend(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:
            time.sleep(random.uniform(0, _SHORT))  # noqa: S311 - jitter needs no secure random numbers
        return intent

    async def aintend(self, entry: Entry, *, may_be_lost: bool) -> Intent | None:
        """Asynchronous form of `intend`; if the task is cancelled, the stored intent is deleted."""
        ends = time.monotonic() + self._timeout
        if self.place.full_sync:
            # With `TOOLGATE_OUTBOX_SYNC=full`, a write waits for the disk. The write runs in a thread, because it would
            # otherwise block the event loop.
            handover = Handover(lambda intent: self.sender().forget(intent))
            try:
                return await asyncio.to_thread(
                    lambda: handover.hand_over(self.intend(entry, may_be_lost=may_be_lost))
                )
            except asyncio.CancelledError:
                handover.cancel()
                raise
        while (intent := self._try_intend(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:  # noqa: ASYNC110 - no event signals the end of another process's write
            await asyncio.sleep(random.uniform(0, _SHORT))  # noqa: S311 - jitter needs no secure random numbers
        return intent

    def record(self, entry: Entry, intent: Intent | None = None) -> None:
        """Store the entry with the outcome of a call. Coroutines can call this method: it never waits or raises."""
        try:
            sender = self.sender()
            if intent is not None and intent.process != os.getpid():
                # The tool has forked the process, and this code runs in the child. The parent also sends an entry, with
                # the Idempotency-Key of the intent (the entry stored before the fork). The child's entry needs a new
                # key.
                entry, intent = Entry(entry.body), None
            try:
                if intent is None:
                    sender.outbox.add(entry)
                else:
                    sender.outbox.finish(entry, intent)
            except (Busy, OutboxFault) as error:
                self._keep(sender, entry, intent, error)
            self._recorded(sender)
        except Exception:  # noqa: BLE001 - an error of logging must not change the tool's result
            logger.exception("a log entry of action %r is lost", entry.body.get("action"))

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all queued entries are sent or a request fails.

        Returns:
            Whether all queued entries are sent.
        """
        return self.sender().flush(timeout)

    async def aflush(self, timeout: float) -> bool:  # noqa: ASYNC109 - `Guard.aflush` has the same parameter
        """Asynchronous form of `flush`."""
        sender, ends = self.sender(), time.monotonic() + timeout
        failures = sender.hurry()
        while (done := sender.is_done(failures)) is None and time.monotonic() < ends:  # noqa: ASYNC110 - no event signals that the sender's thread is done
            await asyncio.sleep(_POLL)
        return bool(done)

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for the current request, and send no more requests; queued entries stay in the file."""
        if not self._made:
            return
        sender = self.sender()
        _living.discard(self)
        self._closed = True
        # A tool that is still running may end after `close`. The sender then sends the tool's log entry without
        # retries, and calls `_let_go` again.
        sender.after_close = self._let_go
        if sender.stop(seconds):
            self._let_go()

    def sender(self) -> Sender:
        """Return the sender; the first call creates it, together with its outbox."""
        if not self._made:
            # If two threads create a sender at the same time, `setdefault` keeps only the first sender. A lock is not
            # used, because a lock that another thread holds during a fork stays locked in the child for ever.
            self._made.setdefault(0, self._make(self.place))
            _register(self)
        if self._process != os.getpid():
            # A forked child counts lost entries from zero, because its parent counts the earlier losses.
            self._process, self._losses = os.getpid(), Losses()
        return self._made[0]

    def warn_about_rest(self) -> None:
        """Log, once per process, that entries are left in the outbox and that the next process will send them."""
        global _warned  # noqa: PLW0603 - the variable belongs to the whole process
        if not _warned and self.place.path is not None:
            _warned = True
            logger.warning(
                "record_failed: the interpreter is shutting down: log entries stay in the outbox %r until the next "
                "process sends them",
                str(self.place.path),
                extra={"toolgate_event": "record_failed"},
            )

    def _try_intend(self, entry: Entry, ends: float, *, may_be_lost: bool) -> Intent | None:
        sender = self.sender()
        try:
            if scope := self._key_scope():
                sender.outbox.learn(*scope)
                sender.answered()
            return sender.outbox.intend(entry)
        except Busy as busy:
            if time.monotonic() < ends:
                return _AGAIN
            reason = f"another process or thread keeps the outbox locked ({busy})"
            fault = OutboxFault(reason, "end the process that locks the outbox file")
        except OutboxFault as error:
            fault = error
        self._failing = True
        if may_be_lost:
            # The entry is not counted as lost here, because `record` tries to store it with the outcome after the tool
            # has ended.
            return None
        raise _refusal(str(entry.body["action"]), fault) from fault

    def _keep(self, sender: Sender, entry: Entry, intent: Intent | None, error: Busy | OutboxFault) -> None:
        """Keep an entry in memory that the outbox could not store; if this is not possible, count it as lost."""
        action = entry.body.get("action")
        is_full = isinstance(error, OutboxFault) and error.full and intent is None
        if is_full or not sender.keep(entry, intent):
            self._losses.add(action, str(error))
        elif isinstance(error, OutboxFault) and not self._logged:
            self._logged = True
            logger.error(
                "log entries are kept only in memory; the first one is of action %r: %s", action, error
            )

    def _recorded(self, sender: Sender) -> None:
        """Make the sender send a stored entry, even if the guard is already closed or the process is ending."""
        last = are_handlers_done()
        if sys.is_finalizing() or (last and _end_of_process([self]) <= time.monotonic()):
            # No time is left to send the entry.
            if sender.owes_writes or self.place.path is None:
                self._lose(sender, "the interpreter is shutting down")
            else:
                sender.outbox.close()
                self.warn_about_rest()
            return
        if self._closed:
            _living.add(self)
        sender.wake()
        if last:
            # All exit handlers have already run, so none of them will send this entry. It is sent now, within the time
            # that is left.
            close_all()

    def _let_go(self) -> None:
        """Close the outbox file, so that other processes can send it; count entries that are only in memory as lost."""
        sender = self.sender()
        self._lose(sender, "the guard was closed before the log entries could be sent")
        sender.outbox.close()

    def _lose(self, sender: Sender, reason: str) -> None:
        if gone := sender.abandon():
            self._losses.add(gone[-1], reason, len(gone), always_log=True)


class Handover:
    """Passes an intent (log entry stored before the tool runs) from the thread that stores it to the waiting task.

    If the task is cancelled, its tool does not run. The intent is then deleted, even if the thread stores it only after
    the cancellation.

    Args:
        delete: Function that deletes an intent.
    """

    def __init__(self, delete: Callable[[Intent], None]) -> None:
        self._delete = delete
        self._lock = threading.Lock()
        self._cancelled = False
        self._intent: Intent | None = None

    def hand_over(self, intent: Intent | None) -> Intent | None:
        """Return `intent`, which the calling thread has just stored; if the task was cancelled, delete the intent."""
        with self._lock:
            self._intent = intent
            cancelled = self._cancelled
        if cancelled and intent is not None:
            self._delete(intent)
        return intent

    def cancel(self) -> None:
        """Delete the intent now, or, if it is not stored yet, as soon as it is stored."""
        with self._lock:
            self._cancelled = True
            intent = self._intent
        if intent is not None:
            self._delete(intent)


def close_all() -> None:
    """Send queued entries until the time limit `TOOLGATE_OUTBOX_FLUSH_TIMEOUT` has passed, and close all outboxes."""
    living = list(_living)
    if not living:
        return
    ends = _end_of_process(living)
    in_time = time.monotonic() < ends
    for recorder in living if in_time else ():
        # All senders are started before the loop below waits for the first sender, so that they send in parallel.
        recorder.sender().hurry()
    for recorder in living:
        # If no time is left to wait for a response, no request is sent. Entries are deleted only after the response,
        # so the next process would send the same entries again.
        sent = recorder.flush(max(0.0, ends - time.monotonic())) if in_time else not len(recorder.sender())
        # `close` waits for a request in progress until the time is over, because closing the connection earlier would
        # make the request fail.
        recorder.close(max(0.0, ends - time.monotonic()))
        if not sent and not in_time:
            recorder.warn_about_rest()


def _register(recorder: Recorder) -> None:
    global _registered  # noqa: PLW0603 - the variable belongs to the whole process
    _living.add(recorder)
    if not _registered:
        _registered = True
        # Exit handlers run in the reverse order of their registration. The handler of the HTTP client is already
        # registered, so it closes the connections after `close_all` has sent the entries.
        atexit.register(close_all)


def _end_of_process(living: list[Recorder]) -> float:
    """Return the deadline (monotonic seconds) for sending entries at process end; the first call determines it."""
    global _ends  # noqa: PLW0603 - the variable belongs to the whole process
    if _ends is None:
        _ends = time.monotonic() + max(recorder.place.flush_timeout for recorder in living)
    return _ends


def _refusal(action: str, fault: OutboxFault) -> OutboxFull:
    return OutboxFull(action=action, reason=fault.reason, hint=fault.hint)


#: Returned by `_try_intend` while another thread or process is writing, so that the caller tries again.
_AGAIN: Final = Intent(-1, "", -1)
_living: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()
_registered = False
_warned = False
# Deadline (monotonic seconds) for sending entries at the end of the process; None until the process is ending.
_ends: float | None = None
