"""Reading what a check must know, from PostgreSQL."""

from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.standing import STANDING, Standing, numbered
from toolgate_service.ids import is_id
from toolgate_service.storage.postgres import PostgresDatabase

READ_CONNECTIONS = 8


class PostgresReader:
    """Reads what is true at this moment."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, READ_CONNECTIONS)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def standing(self, key_digest: str, agent_id: str, action: str) -> Standing | None:
        """Return what a check must know; None for a key that is unknown or revoked."""
        async with self._connections.one() as connection:
            row = await connection.fetchrow(_STANDING, key_digest, _id(agent_id), action)
        return None if row is None else Standing._make(row)

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""
        async with self._connections.one() as connection:
            return await connection.fetchrow(_STILL_PENDING, _id(approval_id)) is not None

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()


def _id(text: str) -> str | None:
    # What cannot be an identifier equals none; PostgreSQL would refuse the statement.
    return text if is_id(text) else None


_STANDING = numbered(STANDING, "$")

_STILL_PENDING = (
    "SELECT 1 FROM approvals WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp()"
)
