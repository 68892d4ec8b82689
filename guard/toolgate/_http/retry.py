"""Retries within one total deadline: after no response, 429 and 5xx; and what they report to the circuit breaker."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tenacity import RetryCallState, retry_if_exception_type

from toolgate._capture.redaction import scrub
from toolgate._http.breaker import Breaker, Open
from toolgate._http.connection import from_a_proxy, reached_behind
from toolgate._http.messages import Answer, Clock, TransportFault
from toolgate.errors import GatewayUnavailable

__all__ = ["Attempts", "Deadline", "Transient", "aafter_failure", "after_failure", "policy", "retry_after"]

_T = TypeVar("_T")
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_DOUBLINGS: Final = 10


class Transient(Exception):
    """A failure that may pass.

    Args:
        fault: What to raise when it does not.
        retry_after: Seconds the gateway asked to wait, if it did.
    """

    def __init__(self, fault: GatewayUnavailable, retry_after: float | None = None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.retry_after = retry_after


class Deadline:
    """The moment after which nothing is tried any more.

    Args:
        seconds: From now.
        clock: Monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = clock() + seconds

    def left(self) -> float:
        """Seconds until the deadline, never less than a millisecond."""
        return max(0.001, self._ends - self._clock())

    def passes_within(self, seconds: float) -> bool:
        """Whether it will have passed `seconds` from now."""
        return self._clock() + seconds >= self._ends


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds the header `Retry-After` asks to wait: a whole number, or a date (RFC 9110, 10.2.3).

    Returns:
        None if it asks for nothing, or in no form the standard knows; 0 for a date that has passed.
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    # A date without a zone that means anything is read as UTC, which HTTP's dates are in.
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds())


def policy(deadline: Deadline, is_last: Callable[[], bool]) -> dict[str, Any]:
    """Arguments for tenacity's `Retrying` and `AsyncRetrying`, beside `sleep`; `is_last` ends them early."""

    def stop(state: RetryCallState) -> bool:
        # A pause that ends after the deadline is not begun: the caller learns at once.
        return is_last() or deadline.passes_within(state.upcoming_sleep)

    return {"retry": retry_if_exception_type(Transient), "wait": _pause, "stop": stop, "reraise": True}


def after_failure(first: Transient, attempt: Callable[[], _T]) -> Callable[[], _T]:
    """`attempt`, of which the first has been made and failed."""
    failed = [first]

    def again() -> _T:
        if failed:
            raise failed.pop()
        return attempt()

    return again


def aafter_failure(first: Transient, attempt: Callable[[], Awaitable[_T]]) -> Callable[[], Awaitable[_T]]:
    """As `after_failure`."""
    failed = [first]

    async def again() -> _T:
        if failed:
            raise failed.pop()
        return await attempt()

    return again


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after or 0.0 if isinstance(error, Transient) else 0.0
    # No further than the bound: after a thousand attempts the power would be beyond every float.
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(state.attempt_number - 1, _DOUBLINGS))
    # Spread, so that callers who failed together do not come back together.
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
    # Never less than that: a gateway that asks for no pause at all is not to be hammered.
    return max(asked, pause)


class Attempts:
    """One request's attempts, in a `with` block.

    Args:
        url: The gateway, as it stands in messages.
        breaker: Learns what comes back.
        clock: Monotonic seconds.
        seconds: The deadline of all attempts.
        gated: Whether the request is refused while no gateway answers, and tells when none does. What waits
            for a person is neither: it outlives a gateway that is away.
        full: Whether the deadline is long enough to learn something from silence.

    Raises:
        GatewayUnavailable: On entering, if nothing is sent now.
    """

    def __init__(
        self, url: str, breaker: Breaker, clock: Clock, seconds: float, *, gated: bool, full: bool
    ) -> None:
        self._url = url
        self._breaker = breaker
        self._clock = clock
        self._seconds = seconds
        self._gated = gated
        self._full = full
        self._probe = False
        self._settled = False
        self._answered = self._reached = False
        self._began = self._attempt_began = clock()
        self._longest = 0.0
        self._why = self._stranger = ""

    def __enter__(self) -> Self:
        if self._gated:
            try:
                self._probe = self._breaker.admit(self._seconds)
            except Open as closed:
                raise self._unavailable(str(closed), answered=False, reached=closed.reached) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._probe and not self._settled:
            self._breaker.abandoned()

    def begins(self) -> None:
        """An attempt begins."""
        self._attempt_began = self._clock()

    def heard(self, answer: Answer) -> Answer:
        """An attempt was answered; returns the answer."""
        self._why = f"a proxy answers {answer.status}"
        self._reached = self._reached or reached_behind(answer.status, answer.headers)
        self._ended(answered=not from_a_proxy(answer.status, answer.headers))
        return answer

    def failed(self, error: TransportFault) -> Transient:
        """An attempt was not answered, or not to the end; returns what to raise."""
        if error.unsent:
            # No turn among this process's own requests. If none of those was answered either, none would have been.
            self._answered = self._answered or self._breaker.heard_since(self._began)
            # Those that took the turns may be with a gateway that is overloaded.
            self._reached = self._reached or not self._breaker.is_unreachable
            self._ended(answered=False)
        else:
            self._reached = self._reached or error.reached
            self._ended(answered=error.answered)
        # In the words of a transport or a proxy, which may hold a password; logs, errors and entries repeat it.
        self._why = scrub(str(error), ())
        if error.answered and not error.unsent:
            self._stranger = self._why
        # Whoever answered says more than the last attempt, whose time is often a moment only.
        what = self._stranger or self._why
        return Transient(self._unavailable(what, answered=self._answered, reached=self._reached))

    def is_last(self) -> bool:
        """Whether no further attempt is made, whatever time is left."""
        return self._gated and not self._answered and self._breaker.is_open

    def given_up(self, error: Transient) -> GatewayUnavailable:
        """What to raise when nothing is tried any more: what one of the attempts reached was reached."""
        error.fault.answered, error.fault.reached = self._answered, self._reached
        if self._gated and self._full and not self._answered:
            self._breaker.failed(
                self._began, self._longest, self._why, probe=self._probe, reached=self._reached
            )
            self._settled = True
        return error.fault

    def _ended(self, *, answered: bool) -> None:
        self._longest = max(self._longest, self._clock() - self._attempt_began)
        if answered:
            self._answered = self._settled = True
            self._breaker.answered()

    def _unavailable(self, what: str, *, answered: bool, reached: bool) -> GatewayUnavailable:
        message = f"no gateway answers at {self._url!r}: {what}"
        return GatewayUnavailable(message, answered=answered, reached=reached)
