"""Rate windows that several gateways share, in PostgreSQL."""

from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.rates import WINDOW, Rate
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.postgres_connection import COMMIT_FROM_MEMORY

RATE_CONNECTIONS = 4


class PostgresWindows:
    """Rate windows that several gateways share: one upsert a request (decisions §7)."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, RATE_CONNECTIONS)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full; by the server's clock."""
        rows = await self._connections.rows(_COUNT, organization_id, scope, limit) if limit > 0 else ()
        for row in rows:
            return Rate.at(row["moment"], row["minute"], limit, row["requests"], exceeded=False)
        [(moment,)] = await self._connections.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        return Rate.at(moment, int(moment // WINDOW), limit, limit, exceeded=True)

    async def look(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return where the next request would stand, and count nothing; by the server's clock."""
        [(moment, minute, requests)] = await self._connections.rows(_LOOK, organization_id, scope)
        window = int(moment // WINDOW)
        used = requests if minute is not None and minute >= window else 0
        return Rate.at(moment, max(window, minute or 0), limit, min(used + 1, limit), exceeded=used >= limit)

    def usage(self) -> Usage:
        """Return how its connections are used."""
        return self._connections.usage()

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()


#: No row comes back when the window is full. A clock that was set back does not open it again.
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
