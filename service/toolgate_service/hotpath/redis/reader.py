"""Reading what a request must know from PostgreSQL while Redis is asked for its place in the window.

Whose a key is, is remembered for one thing alone: to know which pool to ask before the database has answered. What was
taken for a key that has been revoked meanwhile is given back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from toolgate_service.hotpath.arrivals import Arrived, Ask, requests_a_minute
from toolgate_service.hotpath.postgres.arriving import Found, found, question
from toolgate_service.hotpath.postgres.reader import PostgresReader
from toolgate_service.hotpath.rates import Window
from toolgate_service.hotpath.redis.counting import Wanted
from toolgate_service.hotpath.redis.till import Till
from toolgate_service.plans import Plan
from toolgate_service.storage.postgres import PostgresDatabase

#: keys that are remembered
KEYS = 10_000


class SharedReader(PostgresReader):
    """Reads what is true at this moment, and counts at the till.

    Args:
        database: where.
        plans: all plans by name.
        till: counts; whoever made it opens and closes it.
    """

    def __init__(self, database: PostgresDatabase, plans: Mapping[str, Plan], till: Till) -> None:
        super().__init__(database, plans)
        self._till = till
        #: organization and environment of keys that were good the last time
        self._whose: dict[str, tuple[str, str]] = {}

    async def _arrived(self, asks: Sequence[Ask]) -> list[Arrived | None]:
        likely = Counter(
            (whose[0], f"{whose[1]}/{ask.surface}")
            for ask in asks
            if (whose := self._whose.get(ask.key_digest)) is not None
        )
        reserved = await self._till.ask(likely)
        try:
            statement, values = question(asks, counted=False)
            known = found(asks, await self._connections.rows(statement, *values))
        except BaseException:
            # Nobody is let through: what was taken is given back.
            await self._till.count({}, reserved)
            raise
        windows = [self._window(ask, one) for ask, one in zip(asks, known, strict=True)]
        wanted: dict[Window, Wanted] = {}
        for window, one in zip(windows, known, strict=True):
            if window is not None and one is not None:
                requests = wanted[window].requests if window in wanted else 0
                wanted[window] = Wanted(requests + 1, requests_a_minute(one[0], self._plans), one[1])
        rates = {window: iter(some) for window, some in (await self._till.count(wanted, reserved)).items()}
        return [
            one and (one[0], None if window is None else next(rates[window]))
            for window, one in zip(windows, known, strict=True)
        ]

    def _window(self, ask: Ask, one: Found | None) -> Window | None:
        """Return the window that a request counts for, None for none; remember whose its key is."""
        if one is None or not one[0].organization_is_active:
            self._whose.pop(ask.key_digest, None)
            return None
        standing = one[0]
        if ask.key_digest not in self._whose:
            if len(self._whose) >= KEYS:
                del self._whose[next(iter(self._whose))]
            self._whose[ask.key_digest] = (standing.organization_id, standing.environment)
        return standing.organization_id, f"{standing.environment}/{ask.surface}"
