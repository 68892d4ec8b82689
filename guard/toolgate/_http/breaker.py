"""Circuit breaker: while the gateway does not respond, single calls test the connection; all others fail at once.

    closed ── a call got no response within its deadline ──► open ── the pause is over ──► one call probes
       ▲                                                      ▲  │                               │
       │                                                      │  └─ other calls fail at once     │
       └──────────── any response, to any call ───────────────┴───────── no response ────────────┘

A probe is a call that tests whether the gateway responds again. It is attempted only once, without retries. After a
fast failure, such as a refused connection, the first probe follows without a pause. Later pauses grow to at most one
second, so that calls soon succeed after a restart of the gateway. After a slow failure, such as a time-out, the pauses
grow from one second to thirty seconds.
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

# A failed call counts as slow if its longest attempt took at least this many seconds.
_SLOW: Final = 0.25
# First and longest pause, in seconds, between two probes (test calls during an outage). Key False: after fast failures.
# Key True: after slow failures.
_FIRST_PAUSE: Final = {False: 0.05, True: 1.0}
_LONGEST_PAUSE: Final = {False: 1.0, True: 30.0}
_MAX_EXPONENT: Final = 10


class CircuitOpen(Exception):
    """The circuit breaker rejects a call, because the gateway did not respond to an earlier call.

    Attributes:
        reached: Whether a gateway may have received the last request that failed.
    """

    def __init__(self, message: str, *, reached: bool) -> None:
        super().__init__(message)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class _Outage:
    """State of an open circuit breaker.

    Attributes:
        since: Start of the first call that failed, in monotonic seconds, like all times in this class.
        reason: Description of the last failure: of the last probe, or else of the call that opened the breaker.
        slow: Whether the last failure was slow: its longest attempt took at least `_SLOW` seconds.
        reached: Whether a gateway may have received the call that failed last. Such a gateway may be overloaded, and
            may have denied the call.
        failures: Number of failed probes since the kind of failure (slow or fast) last changed. The first failure of
            the new kind is not counted.
        next_probe: Earliest start of the next probe.
        probe: Pair of the id of the process that sends the current probe, and the latest end of this probe. None if no
            probe is in progress.
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
        clock: Function that returns monotonic seconds.
        spread: Function that returns a random number between its two arguments. Pauses are random, so that several
            processes do not send probes at the same time.
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
        # `_Outage` is immutable and replaced as a whole. A child process that is forked during a change therefore has
        # either the old state or the new state, and never a mixture.
        self._outage: _Outage | None = None
        self._last_response: float | None = None
        # Each process id has its own lock: if another thread holds a lock during a fork, nothing releases the copy of
        # the lock in the child. The locks are reentrant: while a thread holds one, the garbage collector may end the
        # coroutine of the probe in the same thread, and `abandon_probe` then acquires the lock again.
        self._locks: dict[int, threading.RLock] = {}

    def admit(self, seconds: float) -> bool:
        """Admit a call of at most `seconds`. Return True if the call is a probe, which tests an unavailable gateway.

        Raises:
            CircuitOpen: If the gateway is unavailable, and no probe is due or a probe is already in progress.
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
            longest: Duration of the call's longest attempt, in seconds.
            reason: Description of the failure, for messages.
            probe: Whether the call was a probe (a test call during an outage).
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
                # Another thread received a response after the check at the start of this method. If that thread called
                # `record_response` before the breaker opened, its call had no effect. The breaker is therefore closed
                # here.
                self._outage = None
                return
        if outage is None:
            logger.warning(
                "no gateway answers at %r (%s); calls are refused at once until one does", self._name, reason
            )

    def abandon_probe(self) -> None:
        """Allow the next call to be a probe, because the current probe ended without a result."""
        with self._lock():
            if self._outage is not None:
                self._outage = replace(self._outage, probe=None)

    def has_response_since(self, moment: float) -> bool:
        """Return whether the gateway has responded to any call since `moment`, a time in monotonic seconds."""
        return self._last_response is not None and self._last_response > moment

    @property
    def is_unreachable(self) -> bool:
        """True if the last failure proved that no connection to a gateway could be established."""
        outage = self._outage
        return outage is not None and not outage.reached

    @property
    def is_open(self) -> bool:
        """True while the circuit breaker is open, because the gateway does not respond."""
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
