"""Retries of a request within its deadline; the results of all attempts are reported to the circuit breaker."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

from tenacity import RetryCallState, retry_if_exception_type

from toolgate._capture.redaction import scrub
from toolgate._http.breaker import CircuitBreaker, CircuitOpen
from toolgate._http.exchange import gateway_reached, is_from_proxy
from toolgate._http.messages import Clock, Response, TransportError
from toolgate.errors import GatewayUnavailable

__all__ = ["Attempts", "Deadline", "RetryableError", "retry_after", "retry_policy"]

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
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - not used for secrets
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
        """Store the start time of an attempt."""
        self._attempt_began = self._clock()

    def succeed(self, response: Response) -> None:
        """Record that an attempt got a response of any status, from the gateway or from a proxy in front of it."""
        self._last_failure = f"a proxy answers {response.status}"
        self._reached = self._reached or gateway_reached(response.status, response.headers)
        self._end(answered=not is_from_proxy(response.status, response.headers))

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
        message = f"no gateway answers at {self._url!r}: {reason}"
        return GatewayUnavailable(message, answered=answered, reached=reached)
