"""Rate windows that several gateways share, in Redis and the database."""

from collections.abc import Sequence

from toolgate_service.hotpath.rates import Rate, Window
from toolgate_service.hotpath.redis.counting import Wanted
from toolgate_service.hotpath.redis.till import Till
from toolgate_service.hotpath.together import Together
from toolgate_service.storage.database import Usage

#: bundles under way
AT_ONCE = 4
MOST = 64


class RedisWindows:
    """Rate windows that several gateways share (decisions §7).

    Args:
        till: counts.
    """

    def __init__(self, till: Till) -> None:
        self._till = till
        self._together = Together(self._counted, at_once=AT_ONCE, most=MOST)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._till.open()

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full."""
        return await self._together.ask(((organization_id, scope), limit))

    async def look(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return where the next request would stand, and count nothing."""
        moment, minute, used = await self._till.look((organization_id, scope))
        return Rate.at(moment, minute, limit, min(used + 1, limit), exceeded=used >= limit)

    @property
    def redis_in_use(self) -> bool:
        """Whether Redis is used at the moment."""
        return self._till.redis_in_use

    def usage(self) -> Usage:
        """Return how the database's connections are used."""
        return self._till.usage()

    async def close(self) -> None:
        """Disconnect."""
        await self._till.close()

    async def _counted(self, asked: Sequence[tuple[Window, int]]) -> list[Rate]:
        wanted: dict[Window, Wanted] = {}
        for window, limit in asked:
            requests = wanted[window].requests if window in wanted else 0
            wanted[window] = Wanted(requests + 1, limit)
        reserved = await self._till.ask({window: want.requests for window, want in wanted.items()})
        rates = {window: iter(some) for window, some in (await self._till.count(wanted, reserved)).items()}
        return [next(rates[window]) for window, _ in asked]
