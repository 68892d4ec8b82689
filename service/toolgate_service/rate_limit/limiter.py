"""Interface of the rate limiters, which count requests in windows of one minute, and the rate limiter in memory."""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias

from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import Usage

#: Name of the limit towards which a request is counted. Checks and log requests count towards "actions". Requests for
#: approvals and permissions count towards "reads", a separate limit of the same size.
Surface: TypeAlias = Literal["actions", "reads"]

#: length of a window in seconds
WINDOW = 60


class Rate(NamedTuple):
    """State of a rate limit in the current window.

    Attributes:
        limit: Maximum number of requests per window.
        remaining: Number of requests that are still allowed in the window.
        reset: End of the window, as Unix time in seconds.
        exceeded: True if the request exceeds the limit.
        retry_after: Seconds until the window ends.
    """

    limit: int
    remaining: int
    reset: int
    exceeded: bool
    retry_after: int

    @classmethod
    def at(cls, moment: float, window: int, limit: int, used: int, *, exceeded: bool) -> "Rate":
        """Create the rate limit state at the Unix time `moment`, with `used` requests counted in the window.

        `window` is the index of the window: the Unix time of its start divided by `WINDOW`.
        """
        reset = (window + 1) * WINDOW
        retry_after = max(1, int(reset - moment + 0.999))
        return cls(limit, max(0, limit - used), reset, exceeded, retry_after)

    def headers(self) -> dict[bytes, bytes]:
        """Return the rate limit headers that every authenticated response contains."""
        return {
            b"x-ratelimit-limit": b"%d" % self.limit,
            b"x-ratelimit-remaining": b"%d" % self.remaining,
            b"x-ratelimit-reset": b"%d" % self.reset,
        }

    def refusal(self) -> ApiError:
        """Return the 429 error for a request that exceeds the limit."""
        return ApiError(
            429,
            f"Rate limit exceeded; retry after {self.retry_after} seconds",
            {"Retry-After": str(self.retry_after)},
        )


class RateLimiter(Protocol):
    """Rate limiter that counts the requests of each organization and scope.

    A scope is the name of a separate count within the organization, for instance ``production/actions`` or ``user/…``.
    `limit` is the maximum number of requests per window.
    """

    @property
    def is_degraded(self) -> bool:
        """True while a fallback counts the requests, because the configured server is unavailable."""

    async def open(self) -> None:
        """Connect to the storage of the counts; the database schema must exist."""

    async def close(self) -> None:
        """Close all connections."""

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""

    async def peek(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return the state that `count` would return now, without counting a request."""

    def usage(self) -> Usage | None:
        """Return the numbers of used and free database connections; None if the rate limiter uses none."""


class ImmediateRateLimiter(RateLimiter, Protocol):
    """Rate limiter that counts synchronously, in memory or in a local file."""

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""


class MemoryRateLimiter:
    """Rate limiter that counts requests in memory.

    All its methods must be called in the same event loop. They need no lock, because they never await.

    Args:
        clock: Returns Unix time in seconds.
    """

    is_degraded = False

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._window = 0
        self._counts: dict[tuple[str, str], int] = {}

    async def open(self) -> None:
        """Do nothing, since the counts are in memory."""

    async def close(self) -> None:
        """Do nothing, since there are no connections."""

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""
        return self.count_now(organization_id, scope, limit)

    async def peek(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return the state that `count` would return now, without counting a request."""
        moment = self._clock()
        window = max(int(moment // WINDOW), self._window)
        used = self._counts.get((organization_id, scope), 0) if window == self._window else 0
        return Rate.at(moment, window, limit, min(used + 1, limit), exceeded=used >= limit)

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""
        moment = self._clock()
        window = int(moment // WINDOW)
        if window > self._window:
            # The windows of all scopes end at the same time, so one assignment resets all counts.
            self._window, self._counts = window, {}
        # If the clock was set back, continue to count in the later window: an earlier window would start again at 0.
        window = self._window
        used = self._counts.get((organization_id, scope), 0)
        if used >= limit:
            return Rate.at(moment, window, limit, used, exceeded=True)
        self._counts[organization_id, scope] = used + 1
        return Rate.at(moment, window, limit, used + 1, exceeded=False)

    def usage(self) -> None:
        """Return None, since there are no database connections."""
