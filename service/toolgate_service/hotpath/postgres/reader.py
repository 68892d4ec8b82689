"""Reading what a request must know, from PostgreSQL: whoever arrives at the same moment shares a round trip."""

import re
from collections.abc import Mapping, Sequence

from toolgate_service.accounts.sign_in import SIGN_IN, SignIn
from toolgate_service.accounts.tokens import Claims
from toolgate_service.hotpath.arrivals import Arrived, Ask
from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.rates import WINDOW, Rate
from toolgate_service.hotpath.standing import STANDING, Standing, numbered
from toolgate_service.hotpath.together import Together
from toolgate_service.ids import is_id
from toolgate_service.plans import Plan
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
        # What it writes is a count of the current minute: it need not survive the server.
        self._connections = Connections(database, READ_CONNECTIONS, durable=False)
        self._plans = list(plans)
        self._limits = [plan.requests_per_minute for plan in plans.values()]
        self._together = Together(self._arrived, at_once=AT_ONCE, most=MOST)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def arrive(self, ask: Ask) -> Arrived | None:
        """Return what is true of a request, and count it; None for a key that is unknown or revoked."""
        return await self._together.ask(ask)

    async def standing(self, key_digest: str) -> Standing | None:
        """Return whose a key is, and count nothing; None for a key that is unknown or revoked."""
        async with self._connections.one() as connection:
            row = await connection.fetchrow(_STANDING, key_digest, None, "")
        return None if row is None else Standing._make(row)

    async def sign_in(self, claims: Claims) -> SignIn | None:
        """Return what a token stands for at this moment; None for one that has stopped working."""
        values = (_id(claims.user_id), _id(claims.session_id), claims.version)
        async with self._connections.one() as connection:
            row = await connection.fetchrow(_SIGN_IN, *values)
        return None if row is None else SignIn._make(row)

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""
        async with self._connections.one() as connection:
            return await connection.fetchrow(_STILL_PENDING, _id(approval_id)) is not None

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()

    async def _arrived(self, asks: Sequence[Ask]) -> list[Arrived | None]:
        columns = (
            [ask.key_digest for ask in asks],
            [_id(ask.agent_id) for ask in asks],
            [ask.action for ask in asks],
            [ask.surface for ask in asks],
        )
        async with self._connections.one() as connection:
            rows = await connection.fetch(_ARRIVED, *columns, self._plans, self._limits)
        arrived: list[Arrived | None] = [None] * len(asks)
        for place, moment, limit, minute, number, *standing in rows:
            rate = None if limit is None else _rate(moment, limit, minute, number)
            arrived[place - 1] = (Standing._make(standing), rate)
        return arrived


def _rate(moment: float, limit: int, minute: int | None, number: int | None) -> Rate:
    if minute is None or number is None:
        # Nothing is allowed, and nothing was counted.
        return Rate.at(moment, int(moment // WINDOW), limit, 0, exceeded=True)
    return Rate.at(moment, minute, limit, min(number, limit), exceeded=number > limit)


def _id(text: str) -> str | None:
    # What cannot be an identifier equals none; PostgreSQL would refuse the statement.
    return text if is_id(text) else None


_STANDING = numbered(STANDING, "$")

_PLACES = {"user_id": "$1", "session_id": "$2", "version": "$3", "now": "clock_timestamp()"}
_SIGN_IN = re.sub(r":(\w+)", lambda match: _PLACES[match[1]], SIGN_IN)

# The requests of an organization are counted together and numbered in their order: those beyond the limit know it. In one
# order over organizations: two gateways that wait for each other's rows would wait for ever. A clock that was set back
# does not open a window again.
_ARRIVED = """
WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::text[]::uuid[], $3::text[], $4::text[])
        WITH ORDINALITY AS a (key_digest, agent_id, action, surface, place)
), found AS (
    SELECT asked.place, k.environment || '/' || asked.surface AS scope,
           CASE WHEN o.is_active THEN coalesce(nullif(o.requests_per_minute, 0), plans.requests) END AS allowed,
           k.id AS key_id, k.agent_id AS key_agent_id, k.organization_id, k.environment,
           o.is_active, o.plan, o.requests_per_minute, a.id AS agent_id, a.status,
           p.id AS permission_id, p.requires_approval, p.max_amount, p.amount_required
    FROM asked
    JOIN api_keys k ON k.digest = asked.key_digest AND k.revoked_at IS NULL
    JOIN organizations o ON o.id = k.organization_id
    LEFT JOIN agents a
           ON a.id = asked.agent_id AND a.organization_id = k.organization_id AND a.environment = k.environment
          AND a.deleted_at IS NULL
    LEFT JOIN permissions p
           ON p.organization_id = a.organization_id AND p.environment = a.environment AND p.agent_id = a.id
          AND p.action = asked.action
    LEFT JOIN unnest($5::text[], $6::int[]) AS plans (name, requests) ON plans.name = o.plan
), wanted AS (
    SELECT organization_id, scope, count(*)::int AS requests
    FROM found WHERE allowed > 0 GROUP BY organization_id, scope
), counted AS (
    INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
    SELECT organization_id, scope, floor(extract(epoch FROM clock_timestamp()) / 60)::int, requests
    FROM wanted ORDER BY organization_id, scope
    ON CONFLICT (organization_id, scope) DO UPDATE
    SET minute = greatest(w.minute, excluded.minute),
        requests = CASE WHEN excluded.minute > w.minute THEN excluded.requests ELSE w.requests + excluded.requests END
    RETURNING organization_id, scope, minute, requests
)
SELECT place, extract(epoch FROM clock_timestamp())::float8, allowed, counted.minute,
       (counted.requests - wanted.requests + row_number() OVER (PARTITION BY organization_id, scope ORDER BY place))::int,
       key_id, key_agent_id, organization_id, environment, is_active, plan, requests_per_minute, agent_id, status,
       permission_id, requires_approval, max_amount, amount_required
FROM found
LEFT JOIN wanted USING (organization_id, scope)
LEFT JOIN counted USING (organization_id, scope)
"""

_STILL_PENDING = (
    "SELECT 1 FROM approvals WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp()"
)
