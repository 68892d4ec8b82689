"""Rate windows of one minute, counted exactly (spec §8, decisions §7)."""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from toolgate_service.errors import ApiError

#: check and log share one window; approvals and permissions have another of the same size
Surface: TypeAlias = Literal["actions", "reads"]

#: an organization, and which of its requests, for instance ``production/actions`` or ``user/…``
Window: TypeAlias = tuple[str, str]

WINDOW = 60


class Rate(NamedTuple):
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

    @classmethod
    def at(cls, moment: float, window: int, limit: int, used: int, *, exceeded: bool) -> "Rate":
        """Return where a caller stands at a moment, after `used` requests in a window."""
        reset = (window + 1) * WINDOW
        retry_after = max(1, int(reset - moment + 0.999))
        return cls(limit, max(0, limit - used), reset, exceeded=exceeded, retry_after=retry_after)

    def headers(self) -> dict[bytes, bytes]:
        """Return the headers that every authenticated answer carries."""
        return {
            b"x-ratelimit-limit": b"%d" % self.limit,
            b"x-ratelimit-remaining": b"%d" % self.remaining,
            b"x-ratelimit-reset": b"%d" % self.reset,
        }

    def refusal(self) -> ApiError:
        """Return the 429."""
        return ApiError(
            429,
            f"Rate limit exceeded; retry after {self.retry_after} seconds",
            {"Retry-After": str(self.retry_after)},
        )


class RateWindows(Protocol):
    """Counts requests, each organization and scope apart."""

    async def open(self) -> None:
        """Begin to count."""

    async def close(self) -> None:
        """End."""

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full.

        Args:
            organization_id: whose requests are counted.
            scope: which of them, for instance ``production/actions`` or ``user/…``.
            limit: requests a window.
        """

    async def look(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return where the next request would stand, and count nothing.

        Args:
            organization_id: whose requests are counted.
            scope: which of them.
            limit: requests a window.
        """


@runtime_checkable
class CountsNow(Protocol):
    """Counts requests without waiting for anybody."""

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full.

        Args:
            organization_id: whose requests are counted.
            scope: which of them.
            limit: requests a window.
        """


class MemoryWindows:
    """Windows of one process. One event loop calls it and nothing is awaited, so no lock is needed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._window = 0
        self._counts: dict[tuple[str, str], int] = {}

    async def open(self) -> None:
        """Begin to count; memory is always there."""

    async def close(self) -> None:
        """End; what was counted is forgotten."""

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full."""
        return self.count_now(organization_id, scope, limit)

    async def look(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return where the next request would stand, and count nothing."""
        moment = self._clock()
        window = max(int(moment // WINDOW), self._window)
        used = self._counts.get((organization_id, scope), 0) if window == self._window else 0
        return Rate.at(moment, window, limit, min(used + 1, limit), exceeded=used >= limit)

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """As `count`, without having to wait."""
        moment = self._clock()
        window = int(moment // WINDOW)
        if window > self._window:
            # All windows end at the same moment, so that forgetting the old ones is one assignment.
            self._window, self._counts = window, {}
        # A clock that was set back does not open the window again.
        window = self._window
        used = self._counts.get((organization_id, scope), 0)
        if used >= limit:
            return Rate.at(moment, window, limit, used, exceeded=True)
        self._counts[organization_id, scope] = used + 1
        return Rate.at(moment, window, limit, used + 1, exceeded=False)
