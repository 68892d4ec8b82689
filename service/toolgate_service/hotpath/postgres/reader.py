"""Reading what a request must know, from PostgreSQL: whoever arrives at the same moment shares a round trip."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from toolgate_service.accounts.sign_in import SIGN_IN, SignIn
from toolgate_service.accounts.tokens import Claims
from toolgate_service.hotpath.arrivals import Arrived, Ask
from toolgate_service.hotpath.postgres.arriving import answers, question, uuid
from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.standing import STANDING, Standing, numbered
from toolgate_service.hotpath.together import Together
from toolgate_service.plans import Plan
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase

READ_CONNECTIONS = 8
#: bundles under way; a connection is left for each other use
AT_ONCE = 4
MOST = 64


class PostgresReader:
    """Reads what is true at this moment.

    Args:
        database: where.
        plans: all plans by name.
    """

    def __init__(self, database: PostgresDatabase, plans: Mapping[str, Plan]) -> None:
        self._connections = Connections(database, READ_CONNECTIONS)
        self._plans = plans
        self._together = Together(self._arrived, at_once=AT_ONCE, most=MOST)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def arrive(self, ask: Ask) -> Arrived | None:
        """Return what is true of a request, and count it; None for a key that is unknown or revoked."""
        return await self._together.ask(ask)

    def arrive_soon(self, ask: Ask) -> "asyncio.Future[Arrived | None]":
        """As `arrive`, without waiting for it."""
        return self._together.ask(ask)

    async def standing(self, key_digest: str, agent_id: str = "", action: str = "") -> Standing | None:
        """Return what is true of a key, an agent and an action, and count nothing; None for an unknown or revoked key."""
        rows = await self._connections.rows(_STANDING, key_digest, uuid(agent_id), action)
        return Standing._make(rows[0]) if rows else None

    async def sign_in(self, claims: Claims) -> SignIn | None:
        """Return what a token stands for at this moment; None for one that has stopped working."""
        values = (uuid(claims.user_id), uuid(claims.session_id), claims.version)
        rows = await self._connections.rows(_SIGN_IN, *values)
        return SignIn._make(rows[0]) if rows else None

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""
        return bool(await self._connections.rows(_STILL_PENDING, uuid(approval_id)))

    def usage(self) -> Usage:
        """Return how its connections are used."""
        return self._connections.usage()

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()

    async def _arrived(self, asks: Sequence[Ask]) -> list[Arrived | None]:
        statement, values = question(asks)
        return answers(asks, await self._connections.rows(statement, *values), self._plans)


_STANDING = numbered(STANDING, "$")

_PLACES = {"user_id": "$1", "session_id": "$2", "version": "$3", "now": "clock_timestamp()"}
_SIGN_IN = re.sub(r":(\w+)", lambda match: _PLACES[match[1]], SIGN_IN)

_STILL_PENDING = (
    "SELECT 1 FROM approvals WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp()"
)
