"""When a request is sent again: nobody answered, 429 and 5xx, within one total deadline."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tenacity import RetryCallState, retry_if_exception_type

from toolgate.errors import GuardError

__all__ = ["Deadline", "Transient", "policy"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Transient(Exception):
    """A failure that may pass.

    Args:
        fault: What to raise when it does not.
        retry_after: Seconds the gateway asked to wait, if it did.
    """

    def __init__(self, fault: GuardError, retry_after: float | None = None) -> None:
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


def policy(deadline: Deadline) -> dict[str, Any]:
    """Arguments for tenacity's `Retrying` and `AsyncRetrying`, beside `sleep`."""

    def stop(state: RetryCallState) -> bool:
        # A pause that ends after the deadline is not begun: the caller learns at once.
        return deadline.passes_within(state.upcoming_sleep)

    return {"retry": retry_if_exception_type(Transient), "wait": _pause, "stop": stop, "reraise": True}


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, Transient) and error.retry_after is not None:
        return error.retry_after
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (state.attempt_number - 1))
    # Spread, so that callers who failed together do not come back together.
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
