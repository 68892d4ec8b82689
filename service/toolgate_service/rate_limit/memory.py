"""In-memory rate limiter for a gateway with a single process."""

import time
from collections.abc import Callable

from toolgate_service.rate_limit.limiter import WINDOW, Rate


class MemoryRateLimiter:
    """Counts requests in memory. It must be used in one event loop; no method awaits, so no lock is needed.

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
        # If the clock was set back, continue to count in the later window: an earlier window must not start again.
        window = self._window
        used = self._counts.get((organization_id, scope), 0)
        if used >= limit:
            return Rate.at(moment, window, limit, used, exceeded=True)
        self._counts[organization_id, scope] = used + 1
        return Rate.at(moment, window, limit, used + 1, exceeded=False)

    def usage(self) -> None:
        """Return None, since there are no database connections."""
