"""What PostgreSQL hands out of each minute's requests, some at a time: to be counted elsewhere, and never twice."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.rates import Window
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.postgres_connection import COMMIT_FROM_MEMORY

RATE_CONNECTIONS = 4
#: seconds by which the clock that names a minute may differ from the database's
SKEW = 5


class Draw(NamedTuple):
    """What is asked for.

    Attributes:
        requests: how many.
        limit: requests a minute.
        minute: since the epoch; None for that of the database's clock.
    """

    requests: int
    limit: int
    minute: int | None = None


class Drawn(NamedTuple):
    """What was handed out.

    Attributes:
        requests: how many; fewer than were asked for only where the minute has no more.
        minute: of which minute; never an earlier one than before.
        total: how many of that minute have been handed out by now, to whomever.
        moment: by the database's clock, in seconds since the epoch.
    """

    requests: int
    minute: int
    total: int
    moment: float


class Bank:
    """Hands out requests of the current minute; whatever happens to them, they are handed out once.

    Args:
        database: where.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, RATE_CONNECTIONS)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()

    def usage(self) -> Usage:
        """Return how its connections are used."""
        return self._connections.usage()

    async def moment(self) -> float:
        """Return the present moment by the database's clock, in seconds since the epoch."""
        [(moment,)] = await self._connections.rows(f"SELECT {_CLOCK}::float8")
        return float(moment)

    async def total(self, window: Window) -> tuple[int, int, float]:
        """Return the latest minute of which a window was handed out, how much of it, and the present moment."""
        [(minute, total, moment)] = await self._connections.rows(_TOTAL, *window)
        return minute or 0, total or 0, moment

    async def draw(self, draws: Mapping[Window, Draw]) -> dict[Window, Drawn]:
        """Hand out requests of several windows.

        Raises:
            StorageFault: nobody knows whether they were handed out; they are not to be used.
        """
        drawn: dict[Window, Drawn] = {}
        asked = dict(draws)
        while asked:
            drawn |= zip(asked, await self._draw(asked), strict=True)
            # All or nothing, since the server cannot say how much it added. What is left is asked for again: nobody
            # gives any of it back, so that this ends.
            asked = {
                window: draw._replace(requests=min(draw.requests, left))
                for window, draw in asked.items()
                if not drawn[window].requests and (left := draw.limit - drawn[window].total) > 0
            }
        return drawn

    async def _draw(self, asked: Mapping[Window, Draw]) -> Sequence[Drawn]:
        rows = [(*window, draw.minute, draw.requests, draw.limit) for window, draw in asked.items()]
        found = await self._connections.rows(_DRAW, *map(list, zip(*rows, strict=True)), SKEW)
        return [_told(row.values(), draw) for row, draw in zip(found, asked.values(), strict=True)]


def _told(row: Iterable[float | None], draw: Draw) -> Drawn:
    moment, minute, total, seen_minute, seen_total = (value or 0 for value in row)
    if minute:
        return Drawn(draw.requests, int(minute), int(total), moment)
    # What was there when the statement began: there may be more by now, and the next attempt sees it.
    return Drawn(0, int(seen_minute), int(seen_total), moment)


_CLOCK = "extract(epoch FROM clock_timestamp())"

# A clock that was set back hands out nothing of a minute that is over, and one that is wrong nothing of another year.
# In one order over organizations: two gateways that wait for each other's rows would wait for ever.
_DRAW = f"""
WITH asked AS MATERIALIZED (
    SELECT organization_id, scope, requests, most, place,
           least(
               greatest(coalesce(minute, floor({_CLOCK} / 60)::int), floor(({_CLOCK} - $6) / 60)::int),
               floor(({_CLOCK} + $6) / 60)::int
           ) AS minute
    FROM unnest($1::text[]::uuid[], $2::text[], $3::int[], $4::int[], $5::int[])
        WITH ORDINALITY AS a (organization_id, scope, minute, requests, most, place)
), drawn AS (
    INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
    SELECT organization_id, scope, minute, requests FROM asked
    WHERE requests <= most AND {COMMIT_FROM_MEMORY} ORDER BY organization_id, scope
    ON CONFLICT (organization_id, scope) DO UPDATE
    SET minute = greatest(w.minute, excluded.minute),
        requests = CASE WHEN excluded.minute > w.minute THEN excluded.requests ELSE w.requests + excluded.requests END
    WHERE excluded.minute > w.minute OR w.requests + excluded.requests <= (
        SELECT most FROM asked WHERE asked.organization_id = w.organization_id AND asked.scope = w.scope
    )
    RETURNING organization_id, scope, minute, requests
)
SELECT {_CLOCK}::float8, drawn.minute, drawn.requests, greatest(asked.minute, seen.minute),
       CASE WHEN seen.minute >= asked.minute THEN seen.requests END
FROM asked
LEFT JOIN drawn ON drawn.organization_id = asked.organization_id AND drawn.scope = asked.scope
LEFT JOIN LATERAL (
    SELECT minute, requests FROM rate_windows
    WHERE organization_id = asked.organization_id AND scope = asked.scope LIMIT 1
) AS seen ON true
ORDER BY asked.place
"""  # noqa: S608 - our own words

_TOTAL = f"""
SELECT w.minute, w.requests, {_CLOCK}::float8
FROM (SELECT 1) AS now LEFT JOIN rate_windows w ON w.organization_id = $1 AND w.scope = $2
"""  # noqa: S608 - our own words
