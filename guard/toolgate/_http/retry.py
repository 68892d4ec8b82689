"""Retries of a request within its deadline, and the circuit breaker, which limits requests during an outage.

While the gateway does not respond, the circuit breaker lets single calls test the connection; all others fail at once:

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
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from tenacity import RetryCallState, retry_if_exception_type

from toolgate._capture.redaction import scrub
from toolgate._http.exchange import Clock, Response, TransportError, is_from_proxy
from toolgate._telemetry import logger
from toolgate.errors import GatewayUnavailable

__all__ = [
    "Attempts",
    "CircuitBreaker",
    "CircuitOpen",
    "Deadline",
    "RetryableError",
    "retry_after",
    "retry_policy",
]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_MAX_EXPONENT: Final = 10


class RetryableError(Exception):
    """An attempt failed, and the request may be sent again.

    Attributes:
        error: The exception to raise if no further attempt succeeds.
        retry_after: Seconds to wait before the next attempt, as the gateway requested, or None.
    """

    def __init__(self, error: GatewayUnavailable, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class Deadline:
    """Common deadline of all attempts of a request, `seconds` after the creation of this object."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock() + seconds

    def left(self) -> float:
        """Return the seconds until the deadline, at least a millisecond."""
        return max(0.001, self._ends - self._clock())

    def passes_within(self, seconds: float) -> bool:
        """Return whether the deadline passes within `seconds`."""
        return self._clock() + seconds >= self._ends


def retry_after(header: str | None, now: datetime) -> float | None:
    """Return the seconds to wait according to a `Retry-After` header (RFC 9110, section 10.2.3).

    The header contains a whole number of seconds or a date. The result is 0 for a date in the past, and None for a
    missing or invalid header.
    """
    if header is None:
        return None
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    # Dates in HTTP are in UTC, even if they contain no time zone.
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds())


def retry_policy(deadline: Deadline, is_last: Callable[[], bool]) -> dict[str, Any]:
    """Return arguments for tenacity's `Retrying`. Retrying stops if `is_last` returns True after an attempt."""

    def stop(state: RetryCallState) -> bool:
        # If the next pause would end after the deadline, there is no retry, and the error is raised without the pause.
        return is_last() or deadline.passes_within(state.upcoming_sleep)

    return {"retry": retry_if_exception_type(RetryableError), "wait": _pause, "stop": stop, "reraise": True}


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = (error.retry_after or 0.0) if isinstance(error, RetryableError) else 0.0
    # The exponent is limited, because `2.0 ** 1024` is too large for a float.
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(state.attempt_number - 1, _MAX_EXPONENT))
    # Jitter: the pause is random, so that callers that failed at the same time do not retry at the same time.
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter needs no secure random numbers
    # The pause is at least as long as the random pause. Otherwise `Retry-After: 0` would cause retries without a pause.
    return max(asked, pause)


class Attempts:
    """Context manager for all attempts of one request; it reports their results to the circuit breaker.

    Args:
        url: Address of the gateway, for messages.
        breaker: Circuit breaker of the gateway.
        clock: Function that returns monotonic seconds.
        seconds: Time for all attempts together, in seconds.
        gated: Whether the breaker may reject the request, and opens if the request gets no response. False for requests
            about an existing approval request, because a call that waits for an approver must survive an outage.
        is_conclusive: Whether `seconds` is long enough to conclude from a missing response that the gateway is
            unavailable. If False, a failure of this request does not open the breaker.

    Raises:
        GatewayUnavailable: On entering, if the breaker rejects the request.
    """

    def __init__(
        self,
        url: str,
        breaker: CircuitBreaker,
        clock: Clock,
        seconds: float,
        *,
        gated: bool,
        is_conclusive: bool,
    ) -> None:
        self._url = url
        self._breaker = breaker
        self._clock = clock
        self._seconds = seconds
        self._gated = gated
        self._is_conclusive = is_conclusive
        self._is_probe = False
        self._reported = False
        self._answered = self._reached = False
        self._began = self._attempt_began = clock()
        self._longest = 0.0
        self._last_failure = self._answered_failure = ""

    def __enter__(self) -> Self:
        if self._gated:
            try:
                self._is_probe = self._breaker.admit(self._seconds)
            except CircuitOpen as error:
                raise self._unavailable(str(error), answered=False, reached=error.reached) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_probe and not self._reported:
            self._breaker.abandon_probe()

    def begin(self) -> None:
        """Store the start time of a further attempt; the first one starts when this object is created."""
        self._attempt_began = self._clock()

    def succeed(self, response: Response) -> None:
        """Record that an attempt got a response of any status, from the gateway or from a proxy in front of it."""
        from_proxy = is_from_proxy(response.status, response.headers)
        if from_proxy:
            self._last_failure = f"a proxy answers {response.status}"
        # Status 504: the gateway did not respond to a proxy in time, but may have received the request.
        self._reached = self._reached or not from_proxy or response.status == HTTPStatus.GATEWAY_TIMEOUT
        self._end(answered=not from_proxy)

    def fail(self, error: TransportError) -> RetryableError:
        """Record that an attempt got no complete response, and return the exception to raise."""
        if error.unsent:
            # This request was not sent, because too many other requests of this process were in progress. The responses
            # to the other requests show whether the gateway was available.
            self._answered = self._answered or self._breaker.has_response_since(self._began)
            # If the last failure did not prove that no connection is possible, a gateway may have received the other
            # requests and may be overloaded. The tool call must then not run without a decision (`fail_open`).
            self._reached = self._reached or not self._breaker.is_unreachable
            self._end(answered=False)
        else:
            self._reached = self._reached or error.reached
            self._end(answered=error.answered)
        # The message may contain a password, for example of a proxy. The password is redacted, because the message is
        # copied to logs, exceptions and log entries.
        self._last_failure = scrub(str(error), ())
        if error.answered and not error.unsent:
            self._answered_failure = self._last_failure
        # If an earlier attempt got an incomplete response, its error is reported, even if this attempt got no response.
        # The earlier error is more useful, because the last attempt may fail only because the deadline is near.
        reason = self._answered_failure or self._last_failure
        return RetryableError(self._unavailable(reason, answered=self._answered, reached=self._reached))

    def is_last(self) -> bool:
        """Return True if the circuit breaker is open, so that it would reject a further attempt."""
        return self._gated and not self._answered and self._breaker.is_open

    def give_up(self, last: RetryableError) -> GatewayUnavailable:
        """Report the failure to the circuit breaker, and return the exception to raise after the last attempt.

        The exception's attributes `answered` and `reached` are True if they were True for any of the attempts.
        """
        last.error.answered, last.error.reached = self._answered, self._reached
        if self._gated and self._is_conclusive and not self._answered:
            self._breaker.record_failure(
                self._began, self._longest, self._last_failure, probe=self._is_probe, reached=self._reached
            )
            self._reported = True
        return last.error

    def _end(self, *, answered: bool) -> None:
        self._longest = max(self._longest, self._clock() - self._attempt_began)
        if answered:
            self._answered = self._reported = True
            self._breaker.record_response()

    def _unavailable(self, reason: str, *, answered: bool, reached: bool) -> GatewayUnavailable:
        message = f"the gateway at {self._url!r} is unavailable: {reason}"
        return GatewayUnavailable(message, answered=answered, reached=reached)


# A failed call counts as slow if its longest attempt took at least this many seconds.
_SLOW: Final = 0.25
# First and longest pause, in seconds, between two probes (test calls during an outage). Key False: after fast failures.
# Key True: after slow failures.
_FIRST_PROBE_PAUSE: Final = {False: 0.05, True: 1.0}
_LONGEST_PROBE_PAUSE: Final = {False: 1.0, True: 30.0}


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
        if self._outage is None:
            return
        with self._lock():
            outage, self._outage = self._outage, None
        if outage is not None:
            seconds = self._clock() - outage.since
            logger.warning("the gateway at %r is available again, after %.1f s", self._name, seconds)

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
                "the gateway at %r is unavailable (%s); until it responds, calls fail at once",
                self._name,
                reason,
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
        longest = min(_LONGEST_PROBE_PAUSE[slow], _FIRST_PROBE_PAUSE[slow] * 2.0**exponent)
        return longest * self._spread(0.5, 1.0)

    def _is_probed(self, outage: _Outage, now: float) -> bool:
        return outage.probe is not None and outage.probe[0] == os.getpid() and now < outage.probe[1]

    def _describe(self, outage: _Outage, now: float) -> str:
        since = (datetime.now(UTC) - timedelta(seconds=now - outage.since)).isoformat(timespec="seconds")
        left = outage.next_probe - now
        again = f"the SDK tries again in {left:.1f} s" if left > 0 else "another call is trying again now"
        return f"no response since {since}; {again}; last error: {outage.reason}"

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())
