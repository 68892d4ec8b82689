"""Records what calls do: into the outbox at once, to the gateway in the background. Never fails a call that ran."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolgate._outbox.entries import Entry, Intent
from toolgate._outbox.handing import Handing
from toolgate._outbox.place import Place
from toolgate.errors import OutboxFull
from toolgate.events import logger

if TYPE_CHECKING:
    from toolgate._outbox.parts import Parts

__all__ = ["Recorder"]

_POLL: Final = 0.005
# Another process of the same outbox writes for moments only.
_SHORT: Final = 0.002


class Recorder:
    """Records what calls did.

    Args:
        place: Where entries are kept.
        make: Makes the outbox and what empties it, when first needed.
        whose: Organization and environment of the key, once an answer named them.
        timeout: Seconds to wait for other processes that write into the outbox.
    """

    def __init__(
        self,
        place: Place,
        make: Callable[[Place], Parts],
        whose: Callable[[], tuple[str, str] | None],
        timeout: float,
    ) -> None:
        self._place = place
        self._make = make
        self._whose = whose
        self._timeout = timeout
        self._made: dict[int, Parts] = {}

    @property
    def entries_lost(self) -> int:
        """How many entries of this process could not be kept."""
        return self._made[0].losses.count if self._made else 0

    def ready(self, action: str) -> None:
        """Look whether entries can be kept, before the gateway is asked.

        Raises:
            OutboxFull: They cannot.
        """
        parts = self._parts()
        if parts.outbox.is_open and not parts.refusing:
            return
        try:
            parts.outbox.room()
            parts.refusing = False
        except parts.busy:
            return
        except parts.fault as fault:
            raise _refusal(action, fault) from fault

    def intend(self, entry: Entry, *, may_be_lost: bool) -> Intent | None:
        """Write down that a tool is about to run; None if that cannot be, and the call fails open.

        Raises:
            OutboxFull: It cannot be.
        """
        ends = time.monotonic() + self._timeout
        while (intent := self._intended(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:
            time.sleep(random.uniform(0, _SHORT))  # noqa: S311 - no secret depends on it
        return intent

    async def aintend(self, entry: Entry, *, may_be_lost: bool) -> Intent | None:
        """As `intend`; a cancelled task has written nothing, or what is written says that nothing is known."""
        ends = time.monotonic() + self._timeout
        if self._place.full_sync:
            # The disk is waited for, which a loop must not.
            handing = Handing(self._forget)
            try:
                return await asyncio.to_thread(
                    lambda: handing.hand_over(self.intend(entry, may_be_lost=may_be_lost))
                )
            except asyncio.CancelledError:
                handing.give_up()
                raise
        while (intent := self._intended(entry, ends, may_be_lost=may_be_lost)) is _AGAIN:  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(random.uniform(0, _SHORT))  # noqa: S311 - no secret depends on it
        return intent

    def record(self, entry: Entry, intent: Intent | None = None) -> None:
        """Record what happened; neither waits nor fails, so it serves coroutines as well."""
        try:
            self._record(entry, intent)
        except Exception:  # noqa: BLE001 - nothing here may change what the tool did
            logger.exception("a log entry of action %r is lost", entry.body.get("action"))

    def flush(self, timeout: float) -> bool:
        """Wait until what waits is sent, `timeout` seconds at most, and only while the gateway takes it.

        Returns:
            Whether nothing waits any more.
        """
        return self._parts().sender.flush(timeout)

    async def aflush(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's argument
        """As `flush`."""
        sender, ends = self._parts().sender, time.monotonic() + timeout
        failures = sender.hurry()
        while (done := sender.done(failures)) is None and time.monotonic() < ends:  # noqa: ASYNC110 - a thread is waited for
            await asyncio.sleep(_POLL)
        return bool(done)

    def close(self, seconds: float) -> None:
        """End the sending; what waits stays in the outbox."""
        if self._made:
            self._made[0].close(seconds)

    @property
    def used(self) -> bool:
        """Whether anything was recorded or sent."""
        return bool(self._made)

    def _forget(self, intent: Intent) -> None:
        """A task was cancelled while its intent was written: its tool has not run."""
        parts = self._parts()
        # By the thread that sends: neither a loop nor a dying one waits for the disk, and it tries until it is done.
        parts.unwritten.forget(intent)
        parts.sender.wake()

    def _parts(self) -> Parts:
        if not self._made:
            # No lock, which a fork could find held. Two threads may both get here: one set is never opened.
            self._made.setdefault(0, self._make(self._place))
        return self._made[0]

    def _intended(self, entry: Entry, ends: float, *, may_be_lost: bool) -> Intent | None:
        parts = self._parts()
        try:
            if whose := self._whose():
                parts.outbox.learn(*whose)
                parts.sender.answered()
            return parts.outbox.intend(entry)
        except parts.busy as busy:
            if time.monotonic() < ends:
                return _AGAIN
            fault: Exception = parts.locked(busy)
        except parts.fault as error:
            fault = error
        parts.refusing = True
        if may_be_lost:
            # Counted when its outcome cannot be kept either.
            return None
        raise _refusal(str(entry.body["action"]), fault) from fault

    def _record(self, entry: Entry, intent: Intent | None) -> None:
        parts = self._parts()
        if intent is not None and intent.process != os.getpid():
            # Of a call that forked: the parent's entry has the key.
            entry, intent = Entry(entry.body), None
        try:
            if intent is None:
                parts.outbox.add(entry)
            else:
                parts.outbox.finish(entry, intent)
        except (parts.busy, parts.fault) as error:
            full = getattr(error, "full", False) and intent is None
            if full or not parts.unwritten.keep(entry, intent):
                parts.losses.lost(entry.body.get("action"), str(error))
            elif isinstance(error, parts.fault):
                parts.unkept(entry, error)
        parts.recorded()


def _refusal(action: str, fault: Exception) -> OutboxFull:
    reason, cure = getattr(fault, "reason", str(fault)), getattr(fault, "cure", "")
    return OutboxFull(action=action, reason=reason, cure=cure)


#: somebody else is writing
_AGAIN: Final = Intent(-1, "", -1)
