"""Rate limiter whose counts are stored in PostgreSQL and shared by all gateways."""

from toolgate_service.db.database import Usage
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import COMMIT_FROM_MEMORY, PostgresPool
from toolgate_service.rate_limit.limiter import WINDOW, Rate

RATE_CONNECTIONS = 4


class PostgresRateLimiter:
    """Rate limiter that counts each request with one upsert statement in PostgreSQL."""

    is_degraded = False

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = PostgresPool(database, RATE_CONNECTIONS)

    async def open(self) -> None:
        """Connect to the database; the schema must exist."""
        await self._connections.open()

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit.

        The window is determined by the clock of the database server.
        """
        rows = await self._connections.rows(_COUNT, organization_id, scope, limit) if limit > 0 else ()
        for row in rows:
            return Rate.at(row["moment"], row["minute"], limit, row["requests"], exceeded=False)
        [(moment,)] = await self._connections.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        return Rate.at(moment, int(moment // WINDOW), limit, limit, exceeded=True)

    async def peek(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return the state that `count` would return now, without counting a request."""
        [(moment, minute, requests)] = await self._connections.rows(_LOOK, organization_id, scope)
        window = int(moment // WINDOW)
        used = requests if minute is not None and minute >= window else 0
        return Rate.at(moment, max(window, minute or 0), limit, min(used + 1, limit), exceeded=used >= limit)

    def usage(self) -> Usage:
        """Return the number of used and free connections."""
        return self._connections.usage()

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()


#: Statement that counts one request. It returns no row if the limit is reached. If the server's clock was set back, it
#: continues to count in the later window.
_COUNT = f"""
INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
SELECT $1::uuid, $2::text, floor(extract(epoch FROM clock_timestamp()) / 60)::int, 1 WHERE {COMMIT_FROM_MEMORY}
ON CONFLICT (organization_id, scope) DO UPDATE
SET minute = greatest(w.minute, excluded.minute),
    requests = CASE WHEN excluded.minute > w.minute THEN 1 ELSE w.requests + 1 END
WHERE excluded.minute > w.minute OR w.requests < $3
RETURNING minute, requests, extract(epoch FROM clock_timestamp())::float8 AS moment
"""  # noqa: S608 - constants

_LOOK = """
SELECT extract(epoch FROM clock_timestamp())::float8, w.minute, w.requests
FROM (SELECT 1) AS now LEFT JOIN rate_windows w ON w.organization_id = $1 AND w.scope = $2
"""
