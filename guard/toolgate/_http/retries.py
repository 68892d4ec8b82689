"""When a request is sent again: nobody answered, 429 and 5xx, within one total deadline."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from tenacity import RetryCallState, retry_if_exception_type

from toolgate.errors import GatewayUnavailable

__all__ = ["Deadline", "Transient", "aafter_failure", "after_failure", "policy", "retry_after"]

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
