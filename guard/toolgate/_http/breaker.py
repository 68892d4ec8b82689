"""The circuit breaker: a gateway that answers nobody costs one time-out, and not one for each call.

    closed ── a call got no answer within its deadline ──► open ── it is time ──► one call probes
       ▲                                                    ▲  │                        │
       │                                                    │  └─ others are refused at once
       └──────────── any answer, to whomever ───────────────┴────── no answer ──────────┘

A probe is one attempt without retries. Where nobody answered quickly, as where a connection is refused, the next
call probes at once and later ones within a second: a gateway that was restarted is found by the first call. Where
silence used up the time, the pauses grow from one second to thirty.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from toolgate._http.messages import Clock
from toolgate.events import logger

__all__ = ["Breaker", "Open"]

# An attempt that took longer has cost its caller something.
_SLOW: Final = 0.25
_FIRST_PAUSE: Final = {False: 0.05, True: 1.0}
_LONGEST_PAUSE: Final = {False: 1.0, True: 30.0}
_LARGEST_POWER: Final = 10


class Open(Exception):
    """Nothing is sent now.

    Attributes:
        reached: As of the outage.
    """

    def __init__(self, message: str, *, reached: bool) -> None:
        super().__init__(message)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class _Outage:
    """No gateway answers.

    Attributes:
        since: The first fault.
        why: The last one.
        slow: Whether it used up time.
        reached: Whether a gateway may have received the last request: it may be overloaded, and not away.
        tried: How many probes in a row ended like it.
        again: When the next probe may begin.
        probe: The process that probes, and until when at most.
    """

    since: float
    why: str
    slow: bool
    reached: bool
    tried: int
    again: float
    probe: tuple[int, float] | None = None


class Breaker:
    """Knows whether the gateway at one address answers; for all threads, tasks and event loops of a process.

    Args:
        name: The gateway, as it stands in messages.
        clock: Monotonic seconds.
        spread: A random number between two, so that many processes do not come back together.
    """

    def __init__(
        self,
        name: str,
        clock: Clock = time.monotonic,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._name = name
        self._clock = clock
        self._spread = spread
        # Changed as a whole, so that a fork finds it whole.
        self._outage: _Outage | None = None
        self._heard: float | None = None
        # By process: a fork may happen while another thread holds it. Reentrant: a coroutine that is collected
        # as garbage may end its probe in the midst of this thread's.
        self._locks: dict[int, threading.RLock] = {}

    def admit(self, seconds: float) -> bool:
        """Let a call begin that takes `seconds` at most; returns whether it is the probe.

        Raises:
            Open: No gateway answers, and it is not time to look again.
        """
        if not self.is_open:
            return False
        with self._lock():
            outage, now = self._outage, self._clock()
            if outage is None:
                return False
            if now < outage.again or self._probed(outage, now):
                raise Open(self._told(outage, now), reached=outage.reached)
            self._outage = replace(outage, probe=(os.getpid(), now + seconds))
            return True

    def answered(self) -> None:
        """Somebody answered."""
        self._heard = self._clock()
        if not self.is_open:
            return
        with self._lock():
            outage, self._outage = self._outage, None
        if outage is not None:
            seconds = self._clock() - outage.since
            logger.warning("the gateway at %r answers again, after %.1f s", self._name, seconds)

    def failed(self, began: float, longest: float, why: str, *, probe: bool, reached: bool) -> None:
        """A call got no answer within its whole deadline.

        Args:
            began: When it began.
            longest: Seconds its longest attempt took.
            why: What happened.
            probe: Whether it was the probe.
            reached: Whether a gateway may have received it.
        """
        with self._lock():
            outage, now, slow = self._outage, self._clock(), longest >= _SLOW
            if self.heard_since(began) or (outage is not None and not probe):
                return
            tried = outage.tried + 1 if outage is not None and outage.slow is slow else 0
            since = began if outage is None else outage.since
            self._outage = _Outage(since, why, slow, reached, tried, now + self._pause(tried, slow=slow))
            if self.heard_since(began):
                # Heard in this very moment, by a call that found nothing to close yet.
                self._outage = None
                return
        if outage is None:
            logger.warning(
                "no gateway answers at %r (%s); calls are refused at once until one does", self._name, why
            )

    def abandoned(self) -> None:
        """The probe ended without showing anything; the next call may probe."""
        with self._lock():
            if self._outage is not None:
                self._outage = replace(self._outage, probe=None)

    def heard_since(self, moment: float) -> bool:
        """Whether anybody answered after that moment."""
        return self._heard is not None and self._heard > moment

    @property
    def is_unreachable(self) -> bool:
        """Whether no connection to a gateway can be established."""
        outage = self._outage
        return outage is not None and not outage.reached

    @property
    def is_open(self) -> bool:
        """Whether no gateway answers."""
        return self._outage is not None

    def _pause(self, tried: int, *, slow: bool) -> float:
        if tried == 0 and not slow:
            return 0.0
        power = min(tried if slow else tried - 1, _LARGEST_POWER)
        longest = min(_LONGEST_PAUSE[slow], _FIRST_PAUSE[slow] * 2.0**power)
        return longest * self._spread(0.5, 1.0)

    def _probed(self, outage: _Outage, now: float) -> bool:
        return outage.probe is not None and outage.probe[0] == os.getpid() and now < outage.probe[1]

    def _told(self, outage: _Outage, now: float) -> str:
        since = datetime.now(UTC) - timedelta(seconds=now - outage.since)
        again = f"in {outage.again - now:.1f} s" if outage.again > now else "by another call at this moment"
        return f"silent since {since.isoformat(timespec='seconds')}, tried again {again}; last: {outage.why}"

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())
