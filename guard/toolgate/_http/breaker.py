"""Circuit breaker: if the gateway does not respond, one call waits for the time-out, and others fail at once.

    closed ── a call got no response within its deadline ──► open ── the pause is over ──► one call probes
       ▲                                                      ▲  │                               │
       │                                                      │  └─ other calls fail at once     │
       └──────────── any response, to any call ───────────────┴───────── no response ────────────┘

A probe is a call that is sent to find out whether the gateway responds again; it has one attempt without retries. If
failures are fast, as with a refused connection, the next call probes at once, and later pauses between probes are at
most a second, so that the first call after a restart succeeds. If failures are slow, the pauses grow from one second to
thirty.
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
from toolgate._logging import logger

__all__ = ["CircuitBreaker", "CircuitOpen"]

# A failure of a call is slow if its longest attempt took at least this many seconds.
_SLOW: Final = 0.25
# First and longest pause between two probes, in seconds: after fast failures (key False) and slow failures (key True).
_FIRST_PAUSE: Final = {False: 0.05, True: 1.0}
_LONGEST_PAUSE: Final = {False: 1.0, True: 30.0}
_MAX_EXPONENT: Final = 10


class CircuitOpen(Exception):
    """The breaker rejects a call.

    Attributes:
        reached: Whether a gateway may have received the request whose failure opened the breaker.
    """

    def __init__(self, message: str, *, reached: bool) -> None:
        super().__init__(message)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class _Outage:
    """State of an open breaker.

    Attributes:
        since: Start of the first call that failed, in monotonic seconds, like all times in this class.
        reason: Failure of the last probe, or of the call that opened the breaker.
        slow: Whether the failure in `reason` was slow, see `_SLOW`.
        reached: Whether a gateway may have received the call in `reason`; if so, that gateway may be overloaded.
        failures: Number of consecutive failed probes of the same kind, slow or fast; 0 after a failure of the other
            kind.
        next_probe: Earliest start of the next probe.
        probe: Process id and latest end of the current probe, or None.
    """

    since: float
    reason: str
    slow: bool
    reached: bool
    failures: int
    next_probe: float
    probe: tuple[int, float] | None = None


class CircuitBreaker:
    """Circuit breaker for one gateway, used by all threads, tasks and event loops of a process.

    Args:
        name: Address of the gateway, for messages.
        clock: Returns monotonic seconds.
        spread: Returns a random number between its two arguments, so that processes do not probe at the same time.
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
        # `_Outage` is immutable and replaced as a whole: a child that is forked during a change finds either the old
        # or the new state, and no mixture of them.
        self._outage: _Outage | None = None
        self._last_response: float | None = None
        # One lock per process id, since a fork may happen while another thread holds the lock. The lock is reentrant:
        # while this thread holds it, the garbage collector may end a coroutine whose call is the probe, and
        # `abandon_probe` then acquires the lock again in this thread.
        self._locks: dict[int, threading.RLock] = {}

    def admit(self, seconds: float) -> bool:
        """Admit a call that takes at most `seconds`, and return whether this call is the probe.

        Raises:
            CircuitOpen: If there is an outage and the call is not the probe.
        """
        if not self.is_open:
            return False
        with self._lock():
            outage, now = self._outage, self._clock()
            if outage is None:
                return False
            if now < outage.next_probe or self._is_probed(outage, now):
                raise CircuitOpen(self._describe(outage, now), reached=outage.reached)
            self._outage = replace(outage, probe=(os.getpid(), now + seconds))
            return True

    def record_response(self) -> None:
        """Close the breaker, because the gateway has responded."""
        self._last_response = self._clock()
        if not self.is_open:
            return
        with self._lock():
            outage, self._outage = self._outage, None
        if outage is not None:
            seconds = self._clock() - outage.since
            logger.warning("the gateway at %r answers again, after %.1f s", self._name, seconds)

    def record_failure(
        self, began: float, longest: float, reason: str, *, probe: bool, reached: bool
    ) -> None:
        """Open the breaker after a call that got no response within its deadline.

        Args:
            began: Start of the call, in monotonic seconds.
            longest: Duration of its longest attempt, in seconds.
            reason: Description of the failure, for messages.
            probe: Whether the call was the probe.
            reached: Whether a gateway may have received the call.
        """
        with self._lock():
            outage, now, slow = self._outage, self._clock(), longest >= _SLOW
            if self.has_response_since(began) or (outage is not None and not probe):
                return
            failures = outage.failures + 1 if outage is not None and outage.slow is slow else 0
            since = began if outage is None else outage.since
            next_probe = now + self._pause(failures, slow=slow)
            self._outage = _Outage(since, reason, slow, reached, failures, next_probe)
            if self.has_response_since(began):
                # Another thread got a response after the first check of this function and before the breaker opened.
                # Its `record_response` found a closed breaker and changed nothing, so the breaker is closed here.
                self._outage = None
                return
        if outage is None:
            logger.warning(
                "no gateway answers at %r (%s); calls are refused at once until one does", self._name, reason
            )

    def abandon_probe(self) -> None:
        """Let the next call be the probe, since the current probe ended without a result."""
        with self._lock():
            if self._outage is not None:
                self._outage = replace(self._outage, probe=None)

    def has_response_since(self, moment: float) -> bool:
        """Return whether the gateway has responded to any call since `moment`, a time in monotonic seconds."""
        return self._last_response is not None and self._last_response > moment

    @property
    def is_unreachable(self) -> bool:
        """Whether the last failure proved that no connection to a gateway could be established."""
        outage = self._outage
        return outage is not None and not outage.reached

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open, because the gateway does not respond."""
        return self._outage is not None

    def _pause(self, failures: int, *, slow: bool) -> float:
        if failures == 0 and not slow:
            return 0.0
        exponent = min(failures if slow else failures - 1, _MAX_EXPONENT)
        longest = min(_LONGEST_PAUSE[slow], _FIRST_PAUSE[slow] * 2.0**exponent)
        return longest * self._spread(0.5, 1.0)

    def _is_probed(self, outage: _Outage, now: float) -> bool:
        return outage.probe is not None and outage.probe[0] == os.getpid() and now < outage.probe[1]

    def _describe(self, outage: _Outage, now: float) -> str:
        since = (datetime.now(UTC) - timedelta(seconds=now - outage.since)).isoformat(timespec="seconds")
        left = outage.next_probe - now
        again = f"in {left:.1f} s" if left > 0 else "by another call at this moment"
        return f"silent since {since}, tried again {again}; last: {outage.reason}"

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())
