"""Rate windows of one minute, exact within one process (spec §8, decisions §7)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolgate_service.errors import ApiError

#: check and log share one window; approvals and permissions have another of the same size
Surface: TypeAlias = Literal["actions", "reads"]

WINDOW = 60


@dataclass(frozen=True, slots=True)
class Rate:
    """Where a caller stands in the current window.

    Attributes:
        limit: requests a window.
        remaining: how many are left.
        reset: when the window ends, in seconds since the epoch.
        exceeded: whether this request is one too many.
        retry_after: seconds until the window ends.
    """

    limit: int
    remaining: int
    reset: int
    exceeded: bool
    retry_after: int

    def headers(self) -> dict[str, str]:
        """Return the headers that every authenticated answer carries."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(self.reset),
        }

    def refusal(self) -> ApiError:
        """Return the 429."""
        return ApiError(
            429,
            f"Rate limit exceeded; retry after {self.retry_after} seconds",
            {"Retry-After": str(self.retry_after)},
        )


class RateWindows:
    """Counts requests per organization, environment and surface. One event loop calls it, so no lock is needed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._window = 0
        self._counts: dict[tuple[str, str, Surface], int] = {}

    def count(self, organization_id: str, environment: str, surface: Surface, limit: int) -> Rate:
        """Count one request, unless the window is full."""
        now = self._clock()
        window = int(now // WINDOW)
        if window > self._window:
            # All windows end at the same moment, so that forgetting the old ones is one assignment.
            self._window, self._counts = window, {}
        # A clock that was set back does not open the window again.
        window = self._window
        key = (organization_id, environment, surface)
        used = self._counts.get(key, 0)
        reset = (window + 1) * WINDOW
        retry_after = max(1, int(reset - now + 0.999))
        if used >= limit:
            return Rate(limit, 0, reset, exceeded=True, retry_after=retry_after)
        self._counts[key] = used + 1
        return Rate(limit, limit - used - 1, reset, exceeded=False, retry_after=retry_after)
