"""The outbox of one guard and what empties it, made at the first call."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import hmac
import sys
import time
import weakref
from collections.abc import Callable
from typing import Final

from toolgate._outbox.entries import Entry
from toolgate._outbox.faults import Busy, OutboxFault
from toolgate._outbox.forks import survive_forks
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.place import Place
from toolgate._outbox.sender import Delivering, Sender
from toolgate._outbox.store import Target
from toolgate._outbox.telling import Losses
from toolgate._outbox.unwritten import Unwritten
from toolgate.events import logger
from toolgate.observing import watch
from toolgate.settings import Settings
from toolgate.shutdown import are_handlers_done

__all__ = ["Parts"]

_living: Final[weakref.WeakSet[Parts]] = weakref.WeakSet()
_LABEL: Final = b"toolgate outbox v1"
# When the time for the process's end is over, on the monotonic clock; None before the end.
_ends: float | None = None
_warned = False


class Parts:
    """What records.

    Attributes:
        outbox: Keeps entries.
        sender: Sends them.
        unwritten: Those that could not be written down.
        losses: Those that are lost.
        busy: Raised while somebody else writes.
        fault: Raised where entries cannot be kept.
        refusing: Whether the last intent could not be written down.

    Args:
        settings: Where entries go.
        place: Where they are kept.
        deliverer: Gives who sends, when first needed.
    """

    # Where they are caught, what is heavy is not loaded again for each call.
    busy: type[Exception] = Busy
    fault: type[Exception] = OutboxFault

    def __init__(self, settings: Settings, place: Place, deliverer: Callable[[], Delivering]) -> None:
        environment = "test" if settings.api_key.startswith("test_") else "production"
        self.outbox = Outbox(place, Target(settings.url, _fingerprint(settings.api_key), environment))
        self.unwritten = Unwritten()
        self.sender = Sender(self.outbox, self.unwritten, deliverer, settings.timeout)
        self.losses = Losses()
        self.refusing = False
        self._told = False
        self._closed = False
        self._counted = 0
        survive_forks(self)
        _living.add(self)
        watch(self)

    @staticmethod
    def locked(busy: Exception) -> OutboxFault:
        """What it means that somebody else writes all the time."""
        return OutboxFault(f"the outbox stays locked ({busy})", "look which process holds it")

    def __len__(self) -> int:
        """How many entries wait to be sent."""
        # Where it cannot be read: as many as when it could be.
        with contextlib.suppress(Busy, OutboxFault):
            self._counted = self.outbox.count() if self.outbox.is_open else 0
        return len(self.unwritten) + self._counted

    def unkept(self, entry: Entry, fault: Exception) -> None:
        """Tell that an entry is in memory only."""
        if not self._told:
            self._told = True
            logger.error(
                "log entries are kept in memory only, the first one of action %r: %s",
                entry.body.get("action"),
                fault,
            )

    def close(self, seconds: float) -> None:
        """End the sending and let go of the file."""
        _living.discard(self)
        self._closed = True
        # A call under way may end later: its entry is tried once.
        self.sender.after_fault = self._let_go
        self.sender.stop(seconds)
        self._let_go()

    def recorded(self) -> None:
        """An entry was kept: have it sent, and looked after when the guard is closed already."""
        last = are_handlers_done()
        if sys.is_finalizing() or (last and time.monotonic() >= _end_of_process([self])):
            self._leave()
            return
        if self._closed:
            _living.add(self)
        self.sender.wake()
        if last:
            # No other moment comes: it is sent now, in what is left of the time for the process's end.
            close_all()

    def _let_go(self) -> None:
        """Leave what is in the file to whoever comes next; what is in memory alone is lost, and told."""
        gone = [*self.unwritten.abandon(), *self.outbox.abandon()]
        if gone:
            self.losses.lost(
                gone[-1], "the guard is closed, and nobody has taken them", len(gone), aloud=True
            )
        self.outbox.close()

    def _leave(self) -> None:
        """Leave an entry of a call that ended during finalization to the next process: nothing can be sent."""
        if self.unwritten.owes or self.outbox.place.path is None:
            gone = [*self.unwritten.abandon(), *self.outbox.abandon()]
            self.losses.lost(
                gone[-1] if gone else None, "the interpreter is shutting down", len(gone), aloud=True
            )
            return
        self.outbox.close()
        self.warn_of_rest()

    def warn_of_rest(self) -> None:
        """Log once per process that the next process sends what is left in the file."""
        global _warned  # noqa: PLW0603 - once in the process
        if not _warned and self.outbox.place.path is not None:
            _warned = True
            logger.warning(
                "record_failed: the interpreter is shutting down: log entries stay in the outbox %r until the next "
                "process sends them",
                str(self.outbox.place.path),
                extra={"toolgate_event": "record_failed"},
            )

    def before_fork(self) -> None:
        """Nothing: the outbox holds everybody up."""

    def after_fork_in_parent(self) -> None:
        """Nothing."""

    def after_fork_in_child(self) -> None:
        """Begin anew: what the parent has in memory is the parent's."""
        self.unwritten = Unwritten()
        self.losses = Losses()
        self._counted = 0
        self.sender.begin_anew()
        self.sender.unwritten = self.unwritten


@atexit.register
def close_all() -> None:
    """Send what waits, within the time that the outboxes give to the process's end, and close them."""
    living = list(_living)
    if not living:
        return
    for parts in living:
        # All of them at once, before any of them is waited for.
        parts.sender.hurry()
    ends = _end_of_process(living)
    in_time = time.monotonic() < ends
    for parts in living:
        sent = parts.sender.flush(max(0.0, ends - time.monotonic()))
        # A request under way still has what is left of the time: closing its connection would look like a fault.
        parts.close(max(0.0, ends - time.monotonic()))
        if not sent and not in_time:
            parts.warn_of_rest()


def _end_of_process(living: list[Parts]) -> float:
    """Return when sending must have ended, on the monotonic clock: one time for all exit handlers together."""
    global _ends  # noqa: PLW0603 - once in the process
    if _ends is None:
        _ends = time.monotonic() + max(parts.outbox.place.exit_seconds for parts in living)
    return _ends


def _fingerprint(api_key: str) -> str:
    # An API key is 128 bits and more of chance: from what one HMAC makes of it nobody finds it.
    return hmac.digest(api_key.encode(), _LABEL, hashlib.sha256).hex()
