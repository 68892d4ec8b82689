"""Recording of calls: stored in the outbox at once, sent in the background. It never fails a call that ran."""

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

from toolgate._logging import logger
from toolgate._outbox.entries import Busy, Entry, Intent, OutboxFault
from toolgate._outbox.place import Place
from toolgate._shutdown import are_handlers_done
from toolgate._telemetry import count_losses
from toolgate.errors import OutboxFull

if TYPE_CHECKING:
    from toolgate._outbox.sender import Sender

__all__ = ["Losses", "Recorder", "close_all"]

_POLL: Final = 0.005
# Another process that uses the file writes for moments only.
_SHORT: Final = 0.002


class Losses:
    """Count of lost entries; the 1st, 2nd, 4th, 8th and so on are logged.

    Attributes:
        count: How many so far.
    """

    def __init__(self) -> None:
        self.count = 0

    def add(self, action: object, reason: str, entries: int = 1, *, always_log: bool = False) -> None:
        """Count lost entries, the last one of `action`."""
        before = self.count
        self.count += entries
        if not before:
            # Counted for as long as the process lives, also when the guard is gone.
            count_losses(self)
        if always_log or before.bit_length() != self.count.bit_length():
            logger.error(
                "%d log entries lost, the last one of action %r: %s",
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
    """Records the calls of one guard.

    Args:
        place: Folder and limits of the outbox.
        make: Makes the outbox and its sender, when they are first needed.
        key_scope: Organization and environment of the API key, once a response named them.
        timeout: Seconds to wait while the file is being written.
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
        """Whether anything was recorded or sent."""
        return bool(self._made)

    def ready(self, action: str) -> None:
        """Check that entries can be stored, before the gateway is asked.

        Raises:
            OutboxFull: They cannot.
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
        """Store that a tool is about to run; returns None if that fails and the call fails open.

        Raises:
            OutboxFull: It cannot be stored.
        """
        ends = time.monotonic() + self._timeout
        while (intent := self._try_intend(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:
            time.sleep(random.uniform(0, _SHORT))  # noqa: S311 - no secret depends on it
        return intent

    async def aintend(self, entry: Entry, *, may_be_lost: bool) -> Intent | None:
        """Store that a tool is about to run, as `intend`; a cancelled task leaves no intent."""
        ends = time.monotonic() + self._timeout
        if self.place.full_sync:
            # The write waits for the disk, which would block the event loop.
            handover = Handover(lambda intent: self.sender().forget(intent))
            try:
                return await asyncio.to_thread(
                    lambda: handover.hand_over(self.intend(entry, may_be_lost=may_be_lost))
                )
            except asyncio.CancelledError:
                handover.cancel()
                raise
        while (intent := self._try_intend(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(random.uniform(0, _SHORT))  # noqa: S311 - no secret depends on it
        return intent

    def record(self, entry: Entry, intent: Intent | None = None) -> None:
        """Store what happened; neither waits nor raises, so that coroutines can call it."""
        try:
            self._record(entry, intent)
        except Exception:  # noqa: BLE001 - nothing here may change the result of the tool
            logger.exception("a log entry of action %r is lost", entry.body.get("action"))

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until everything is sent, and no longer than the first failed request.

        Returns:
            Whether everything is sent.
        """
        return self.sender().flush(timeout)

    async def aflush(self, timeout: float) -> bool:  # noqa: ASYNC109 - part of the public API
        """Wait until everything is sent, as `flush`."""
        sender, ends = self.sender(), time.monotonic() + timeout
        failures = sender.hurry()
        while (done := sender.is_done(failures)) is None and time.monotonic() < ends:  # noqa: ASYNC110 - a thread is waited for
            await asyncio.sleep(_POLL)
        return bool(done)

    def close(self, seconds: float) -> None:
        """End the sending; what waits stays in the outbox."""
        if not self._made:
            return
        sender = self.sender()
        _living.discard(self)
        self._closed = True
        # A call that is running may end later: its entry is sent once.
        sender.after_close = self._let_go
        if sender.stop(seconds):
            self._let_go()

    def sender(self) -> Sender:
        """Return the sender with its outbox, made at the first call."""
        if not self._made:
            # No lock, which a fork could find locked: of two that threads make at once, one is never used.
            self._made.setdefault(0, self._make(self.place))
            _register(self)
        if self._process != os.getpid():
            # In a forked child: what the parent lost is counted by the parent.
            self._process, self._losses = os.getpid(), Losses()
        return self._made[0]

    def warn_about_rest(self) -> None:
        """Log once per process that the next process sends what is left in the outbox."""
        global _warned  # noqa: PLW0603 - once in the process
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
            reason = f"the outbox stays locked ({busy})"
            fault = OutboxFault(reason, "find the process that holds the file")
        except OutboxFault as error:
            fault = error
        self._failing = True
        if may_be_lost:
            # Counted when its outcome cannot be stored either.
            return None
        raise _refusal(str(entry.body["action"]), fault) from fault

    def _record(self, entry: Entry, intent: Intent | None) -> None:
        sender = self.sender()
        if intent is not None and intent.process != os.getpid():
            # The tool has forked: the parent's entry has the key.
            entry, intent = Entry(entry.body), None
        try:
            if intent is None:
                sender.outbox.add(entry)
            else:
                sender.outbox.finish(entry, intent)
        except (Busy, OutboxFault) as error:
            is_full = isinstance(error, OutboxFault) and error.full and intent is None
            if is_full or not sender.keep(entry, intent):
                self._losses.add(entry.body.get("action"), str(error))
            elif isinstance(error, OutboxFault) and not self._logged:
                self._logged = True
                logger.error(
                    "log entries are kept in memory only, the first one of action %r: %s",
                    entry.body.get("action"),
                    error,
                )
        self._recorded(sender)

    def _recorded(self, sender: Sender) -> None:
        """Have a stored entry sent, also when the guard is closed already or the process ends."""
        last = are_handlers_done()
        if sys.is_finalizing() or (last and _end_of_process([self]) <= time.monotonic()):
            # Nothing can be sent any more.
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
            # No exit handler comes any more: it is sent now, in what is left of the time for the process's end.
            close_all()

    def _let_go(self) -> None:
        """Leave what is in the file to other processes; what is in memory only is lost, and logged."""
        sender = self.sender()
        self._lose(sender, "the guard was closed before they could be sent")
        sender.outbox.close()

    def _lose(self, sender: Sender, reason: str) -> None:
        if gone := sender.abandon():
            self._losses.add(gone[-1], reason, len(gone), always_log=True)


class Handover:
    """Hands an intent from the thread that stores it to the task that waits, or deletes it if the task was cancelled.

    Args:
        delete: Deletes an intent.
    """

    def __init__(self, delete: Callable[[Intent], None]) -> None:
        self._delete = delete
        self._lock = threading.Lock()
        self._cancelled = False
        self._intent: Intent | None = None

    def hand_over(self, intent: Intent | None) -> Intent | None:
        """Return the intent, which is stored now."""
        with self._lock:
            self._intent = intent
            cancelled = self._cancelled
        if cancelled and intent is not None:
            self._delete(intent)
        return intent

    def cancel(self) -> None:
        """Delete the intent, now or as soon as it is stored."""
        with self._lock:
            self._cancelled = True
            intent = self._intent
        if intent is not None:
            self._delete(intent)


def close_all() -> None:
    """Send what waits, within the time that the settings give to the process's end, and close all outboxes."""
    living = list(_living)
    if not living:
        return
    ends = _end_of_process(living)
    in_time = time.monotonic() < ends
    for recorder in living if in_time else ():
        # All of them at once, before the first one is waited for.
        recorder.sender().hurry()
    for recorder in living:
        # A request without the time for its response would only be repeated by the next process.
        sent = recorder.flush(max(0.0, ends - time.monotonic())) if in_time else not len(recorder.sender())
        # A running request may use the time that is left: a closed connection would look like a fault.
        recorder.close(max(0.0, ends - time.monotonic()))
        if not sent and not in_time:
            recorder.warn_about_rest()


def _register(recorder: Recorder) -> None:
    global _registered  # noqa: PLW0603 - once in the process
    _living.add(recorder)
    if not _registered:
        _registered = True
        # After the HTTP client's own exit handler, so that this one runs before it.
        atexit.register(close_all)


def _end_of_process(living: list[Recorder]) -> float:
    """Return when sending must have ended, on the monotonic clock: one time for all exit handlers together."""
    global _ends  # noqa: PLW0603 - once in the process
    if _ends is None:
        _ends = time.monotonic() + max(recorder.place.exit_seconds for recorder in living)
    return _ends


def _refusal(action: str, fault: OutboxFault) -> OutboxFull:
    return OutboxFull(action=action, reason=fault.reason, hint=fault.hint)


#: another process is writing
_AGAIN: Final = Intent(-1, "", -1)
_living: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()
_registered = False
_warned = False
# When the time for the process's end is over; None before the end.
_ends: float | None = None
