"""What is told of entries that cannot be sent: at once, and then ever more seldom."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from toolgate._outbox.store import Row
from toolgate.events import logger, tell
from toolgate.observing import remember_losses

__all__ = ["Losses", "Troubles", "tell_parked"]

_FIRST: Final = 30.0
_LONGEST: Final = 3600.0


class Troubles:
    """An outage, told when it begins, then after growing times, and when it is over.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._interval = 0.0

    def told(self, entries: int, why: str) -> None:
        """Entries are not taken."""
        from toolgate._capture.redaction import scrub

        # In the words of whatever answered, who may not know what must not be logged.
        why = scrub(why, ())
        now = self._clock()
        if self._interval and now < self._next:
            return
        self._interval = min(_LONGEST, self._interval * 2 or _FIRST)
        self._next = now + self._interval
        logger.warning(
            "record_failed: %d log entries are kept for later: %r",
            entries,
            why,
            extra={"toolgate_event": "record_failed", "toolgate_reason": why, "toolgate_entries": entries},
        )

    def over(self) -> None:
        """They are taken again."""
        if self._interval:
            self._interval = 0.0
            logger.info("the gateway takes log entries again", extra={"toolgate_event": "record_resumed"})


class Losses:
    """Counts entries that are lost, and tells of the 1st, 2nd, 4th, 8th and so on.

    Attributes:
        count: How many so far.
    """

    def __init__(self) -> None:
        self.count = 0

    def lost(self, action: object, why: str, entries: int = 1, *, aloud: bool = False) -> None:
        """So many more, the last one of `action`; `aloud` tells of them in any case."""
        before = self.count
        self.count += entries
        if not before:
            # Counted for as long as the process lives, also when the guard is gone.
            remember_losses(self)
        if aloud or before.bit_length() != self.count.bit_length():
            logger.error(
                "%d log entries lost, the last one of action %r: %s",
                self.count,
                action,
                why,
                extra={
                    "toolgate_event": "entries_lost",
                    "toolgate_action": action,
                    "toolgate_entries": self.count,
                },
            )


def tell_parked(row: Row, why: str) -> None:
    """The gateway never takes an entry."""
    body: dict[str, Any] = json.loads(row.body)
    tell(
        "record_failed",
        body.get("action"),
        body.get("agent_id"),
        body.get("status"),
        reason=f"laid aside in the outbox: {why}",
        approval_id=body.get("approval_id"),
        level=logging.ERROR,
    )
