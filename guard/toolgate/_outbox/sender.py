"""Sends what waits in an outbox, in the background: one thread, while there is something to send."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from toolgate._http.client import key_scope
from toolgate._outbox.delivery import Delivery
from toolgate._outbox.faults import Busy, OutboxFault
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.pace import Pace
from toolgate._outbox.signals import Signals
from toolgate._outbox.store import Row
from toolgate._outbox.telling import Troubles, tell_parked
from toolgate._outbox.unwritten import Unwritten
from toolgate.events import logger

__all__ = ["Sender"]

_MOST: Final = 100
# Below the gateway's 256 KiB with room for what is around the entries.
_LARGEST: Final = 224 * 1024
# Entries of one moment go together.
_LINGER: Final = 0.1
# The thread ends when there has been nothing to do for so long.
_IDLE: Final = 5.0
_ADOPT_EVERY: Final = 30.0
_CHECKPOINT_EVERY: Final = 1.0
_BUSY: Final = 0.005


class Delivering(Protocol):
    """What sends entries."""

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        """Send entries within `seconds`."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Sender:
    """Empties an outbox.

    Args:
        outbox: What is sent.
        unwritten: What could not be written into it.
        deliverer: Gives who sends, when first needed.
        timeout: Seconds one request may take.
    """

    def __init__(
        self, outbox: Outbox, unwritten: Unwritten, deliverer: Callable[[], Delivering], timeout: float
    ) -> None:
        self._outbox = outbox
        self.unwritten = unwritten
        self._make = deliverer
        self._deliverer: Delivering | None = None
        self._timeout = timeout
        self._troubles = Troubles()
        #: what is done in place of a second try, once nobody looks after this any more
        self.after_fault: Callable[[], None] | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start as if nothing had been sent, with no thread: a forked child has none."""
        self._pace = Pace()
        self._signals = Signals()
        self._starting = threading.RLock()
        self._working = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._after = {False: 0, True: 0}
        self._passed_over = False
        self._most = _MOST
        self._failures = 0
        self._hurried = False
        self._gathers = self._hastens = False
        self._adopt_at = 0.0
        self._checkpoint_at = 0.0

    # What callers do: none of it waits for the network.

    def wake(self) -> None:
        """There is something to send."""
        self._signals.wake()
        if self._thread is None:
            self._start()

    def answered(self) -> None:
        """The gateway has just answered a call."""
        if self._pace.faulty:
            self._pace.nudge()

    def hurry(self) -> int:
        """Somebody waits for everything to be sent; returns how many requests have failed so far."""
        # Before anybody is told: the request that is made for this caller may fail at once.
        failures = self._failures
        self._adopt_at = 0.0
        self._signals.hurry()
        self.wake()
        return failures

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent; returns whether it is."""
        failures, ends = self.hurry(), time.monotonic() + seconds
        while (done := self.done(failures)) is None and (left := ends - time.monotonic()) > 0:
            if self._thread is None:
                # None can be started: the interpreter is ending.
                self._turn(left)
            else:
                time.sleep(_BUSY)
        return bool(done)

    def done(self, failures: int) -> bool | None:
        """Whether everything is sent; None while it may yet be, False once a request has failed since."""
        try:
            if self._adopt_at and not self.unwritten.owes and not self._outbox.waits():
                return True
        except Busy:
            return None
        except OutboxFault:
            return False
        return False if self._failures > failures else None

    def stop(self, seconds: float) -> None:
        """End the thread, when it has finished what it is at, and close the connections."""
        self._stopped = True
        self._signals.hurry()
        self._signals.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        if self._deliverer is not None:
            self._deliverer.close()

    # The thread.

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or sys.is_finalizing():
                # During finalization `Thread.start` would wait for ever; what waits is sent by the next process.
                return
            thread = threading.Thread(target=self._run, name="toolgate-outbox", daemon=True)
            self._thread, self._stopped = thread, False
            try:
                thread.start()
            except RuntimeError:
                # The interpreter is ending; what waits is sent by the next process.
                self._thread = None

    def _run(self) -> None:
        try:
            self._keep_sending(threading.current_thread())
        finally:
            # However it ends, another one can begin.
            if self._thread is threading.current_thread():
                self._thread = None

    def _keep_sending(self, me: threading.Thread) -> None:
        while self._thread is me:
            try:
                pause = self._turn(self._timeout)
            except Exception:  # noqa: BLE001 - a fault of ours must not end what everybody relies on
                logger.exception("the outbox could not be sent; it is tried again")
                self._failures += 1
                pause = _IDLE
            self._look_after_file()
            if pause is None:
                self._hastens = False
            if pause and self.after_fault is not None:
                self._stopped = True
                self.after_fault()
            if self._stopped or (pause is None and not self._rest()):
                self._thread = None
                # Woken in this very moment: somebody may have seen this thread and left it to it.
                if self._stopped or not self._signals.woken:
                    return
                self._start()
            elif pause:
                # A hurry ends a pause, but not one that the gateway asked for.
                self._signals.wait_hurried(pause)
            elif self._gathers:
                # More is coming: sent one by one it would keep the callers and the gateway busy.
                self._signals.wait_hurried(_LINGER)

    def _rest(self) -> bool:
        """Wait until there is something to send; returns whether there is."""
        if not self._signals.wait_woken(_IDLE):
            return False
        self._signals.woken = False
        self._signals.wait_hurried(_LINGER)
        return True

    def _turn(self, seconds: float) -> float | None:
        """Send one request's worth; returns a pause before the next turn, or None when nothing waits."""
        with self._working:
            self._hurried = self._signals.take_hurry()
            self._gathers = False
            # Until nothing waits: who has asked for that waits for what comes meanwhile as well.
            self._hastens = self._hastens or self._hurried
            try:
                return self._send(seconds)
            except Busy:
                self._hurry_on()
                time.sleep(_BUSY)
                return 0.0
            except OutboxFault as fault:
                self._failures += 1
                self._troubles.told(0, str(fault))
                return self._without_file(seconds)

    def _hurry_on(self) -> None:
        """Nothing came of this turn: whoever waits for it waits for the next one."""
        if self._hurried:
            self._signals.hurry()

    def _send(self, seconds: float) -> float | None:
        self.unwritten.write(self._outbox)
        self._take_over()
        hurried = self._hurried
        if pause := self._pace.pause(hurried=hurried):
            self._failures += hurried
            return pause
        for old in (False, True):
            if old and (pause := self._pace.pause(old=True, hurried=hurried)):
                if not self._outbox.waits():
                    return None
                self._failures += hurried
                return pause
            waiting = self._outbox.batch(old=old, after=self._after[old], limit=self._most)
            if rows := self._fitting(waiting):
                # What is old has its turn when nothing new is there: it is not made to wait for that.
                last = not old and len(rows) == len(waiting) < self._most and not self._some_old()
                pause = self._deliver(rows, seconds, old=old)
                taken = len(rows) <= self._most
                self._gathers = last and taken and not pause and not self._hastens
                return pause
        if not self._passed_over:
            return None
        # Once more from the beginning, with what was not taken.
        self._passed_over, self._after = False, {False: 0, True: 0}
        return self._pace.pause() or _BUSY

    def _some_old(self) -> bool:
        return bool(self._outbox.batch(old=True, after=self._after[True], limit=1))

    def _deliver(self, rows: list[Row], seconds: float, *, old: bool) -> float:
        delivery = self._to_gateway([(row.key, row.body) for row in rows], seconds)
        results = list(zip(rows, delivery.results, strict=False))
        taken = [row for row, result in results if result.taken]
        parked = [(row, result.why) for row, result in results if result.hopeless]
        for row, why in parked:
            tell_parked(row, why)
        self._settled(taken, parked)
        refused = next(
            (result.why for _, result in results if not result.taken and not result.hopeless), None
        )
        problem = str(delivery.fault) if delivery.fault is not None else refused
        if delivery.fault is not None and self._stopped:
            # Its connection was closed under it: that says nothing about the gateway.
            problem = "the guard was closed before the gateway answered"
        if problem is None:
            if self._pace.faulty:
                # Whatever has gathered meanwhile is old: it must not push the calls aside.
                self._patiently(self._outbox.age)
                self._troubles.over()
            self._pace.worked()
            self._most = min(_MOST, self._most * 2)
            return 0.0
        if delivery.too_large and len(rows) > 1:
            self._most = max(1, len(rows) // 2)
            self._hurry_on()
            return 0.0
        if refused is not None:
            self._after[old], self._passed_over = rows[-1].id, True
        self._failures += 1
        self._pace.failed(delivery.pause, lasting=delivery.lasting)
        self._troubles.told(len(rows) - len(taken) - len(parked), problem)
        return self._pace.pause()

    def _to_gateway(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        if self._deliverer is None:
            self._deliverer = self._make()
        delivery = self._deliverer.deliver(entries, seconds)
        self._pace.heard(delivery.headers)
        if named := key_scope(delivery.headers):
            self._outbox.learn(*named)
        return delivery

    def _settled(self, taken: list[Row], parked: list[tuple[Row, str]]) -> None:
        if taken or parked:
            self._patiently(lambda: self._outbox.settle(taken, parked))

    def _patiently(self, work: Callable[[], None]) -> None:
        ends = time.monotonic() + self._timeout
        while True:
            try:
                return work()
            except Busy:
                if time.monotonic() > ends:
                    raise
                time.sleep(_BUSY)

    def _without_file(self, seconds: float) -> float:
        """The outbox is of no use: what memory holds of it is sent from there."""
        entries = self.unwritten.some(_MOST)
        if entries and not self._pace.pause(hurried=self._hurried):
            delivery = self._to_gateway(entries, seconds)
            self.unwritten.sent(
                [key for (key, _), each in zip(entries, delivery.results, strict=False) if each.taken]
            )
            if delivery.fault is None:
                self._pace.worked()
            else:
                self._pace.failed(delivery.pause, lasting=delivery.lasting)
        return _IDLE

    def _take_over(self) -> None:
        if (now := time.monotonic()) < self._adopt_at:
            return
        if (adopted := self._outbox.adopt(self.knows_whose)) is None:
            return
        if adopted:
            logger.info("%d log entries of processes that are gone are sent now", adopted)
        self._adopt_at = now + _ADOPT_EVERY

    def knows_whose(self) -> bool:
        """Ask whose the key is, with no entry; whether the gateway answered."""
        if self._outbox.target.organization is not None:
            return True
        if self._pace.pause(hurried=self._hurried):
            return False
        delivery = self._to_gateway((), self._timeout)
        if delivery.fault is not None:
            self._failures += 1
            # Not told: no entry of this process waits for it.
            self._pace.failed(delivery.pause, lasting=delivery.lasting)
        return delivery.fault is None

    def _look_after_file(self) -> None:
        if (now := time.monotonic()) >= self._checkpoint_at:
            self._checkpoint_at = now + _CHECKPOINT_EVERY
            try:
                self._outbox.checkpoint()
            except Exception:  # noqa: BLE001 - the file only grows; the next round does it
                logger.log(logging.DEBUG, "the outbox's log was not moved into its file")

    @staticmethod
    def _fitting(rows: list[Row]) -> list[Row]:
        size, count = 0, 0
        for row in rows:
            size += len(row.body.encode()) + 1
            if count and size > _LARGEST:
                break
            count += 1
        return rows[:count]
