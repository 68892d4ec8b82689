"""What PostgreSQL is asked about requests that arrive: whose they are, what they may, and their number in the window.

The same for one and for several at once, but for where the questions stand: one question without arrays takes half the
time. Each table is entered by the whole of a key, one row at most, and by a limit that the planner cannot undo: a plan
is kept, and in a young gateway's small tables any part of any index looks as good.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import asyncpg

from toolgate_service.hotpath.arrivals import Arrived, Ask, requests_a_minute
from toolgate_service.hotpath.rates import Rate
from toolgate_service.hotpath.standing import Standing
from toolgate_service.ids import is_id
from toolgate_service.plans import Plan
from toolgate_service.storage.postgres_connection import COMMIT_FROM_MEMORY

#: what is true of a request, and the latest minute of which its window was counted or handed out, and how much of it
Found: TypeAlias = tuple[Standing, tuple[int, int]]


def question(asks: Sequence[Ask], *, counted: bool = True) -> tuple[str, Sequence[Any]]:
    """Return a statement and its values.

    Args:
        asks: at least one.
        counted: whether they are counted; otherwise they only read.
    """
    asked = [(ask.key_digest, uuid(ask.agent_id), ask.action, ask.surface) for ask in asks]
    if len(asked) == 1:
        return ONE if counted else READ_ONE, asked[0]
    return MANY if counted else READ_MANY, [*map(list, zip(*asked, strict=True))]


def answers(
    asks: Sequence[Ask], rows: Sequence[asyncpg.Record], plans: Mapping[str, Plan]
) -> list[Arrived | None]:
    """Return what is true of each request, None for a key that is unknown or revoked.

    Args:
        asks: as they were asked.
        rows: the statement's.
        plans: all plans by name.
    """
    found: list[Arrived | None] = [None] * len(asks)
    behind: dict[object, int] = {}
    for row in rows:
        window = (row[6], row[7], asks[row[0] - 1].surface)
        behind[window] = behind.get(window, 0) + 1
    # Those of one window were counted together: they have its last numbers, in the order in which they came.
    for place, moment, minute, requests, *values in sorted(rows, key=itemgetter(0)):
        standing = Standing._make(values)
        window = (standing.organization_id, standing.environment, asks[place - 1].surface)
        behind[window] -= 1
        rate = None
        if requests is not None:
            limit, number = requests_a_minute(standing, plans), requests - behind[window]
            rate = Rate.at(moment, minute, limit, number, exceeded=number > limit)
        found[place - 1] = (standing, rate)
    return found


def found(asks: Sequence[Ask], rows: Sequence[asyncpg.Record]) -> list[Found | None]:
    """Return what is true of each request that was not counted, None for a key that is unknown or revoked.

    Args:
        asks: as they were asked.
        rows: the statement's.
    """
    known: list[Found | None] = [None] * len(asks)
    for place, _, minute, requests, *values in rows:
        known[place - 1] = (Standing._make(values), (minute or 0, requests or 0))
    return known


def uuid(text: str) -> str | None:
    """Return an identifier, None for what cannot be one: it equals none, and the server would refuse the statement."""
    return text if is_id(text) else None


_FOUND = """
WITH asked AS ({asked}), found AS MATERIALIZED (
    SELECT asked.place, k.environment || '/' || asked.surface AS scope,
           k.id AS key_id, k.agent_id AS key_agent_id, k.organization_id, k.environment,
           o.is_active, o.plan, o.requests_per_minute, a.id AS agent_id, a.status,
           p.id AS permission_id, p.requires_approval, p.max_amount, p.amount_required,
           o.ip_allow_list
    FROM asked
    CROSS JOIN LATERAL (
        SELECT * FROM api_keys WHERE digest = asked.key_digest AND revoked_at IS NULL LIMIT 1
    ) AS k
    CROSS JOIN LATERAL (SELECT * FROM organizations WHERE id = k.organization_id LIMIT 1) AS o
    LEFT JOIN LATERAL (
        SELECT * FROM agents
        WHERE id = asked.agent_id AND organization_id = k.organization_id AND environment = k.environment
          AND deleted_at IS NULL
        LIMIT 1
    ) AS a ON true
    LEFT JOIN LATERAL (
        SELECT * FROM permissions
        WHERE organization_id = a.organization_id AND environment = a.environment AND agent_id = a.id
          AND action = asked.action
        LIMIT 1
    ) AS p ON true
)
"""

# A clock that was set back does not open a window again. In one order over organizations: two gateways that wait for each
# other's rows would wait for ever.
_COUNTED = """
, counted AS (
    INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
    SELECT organization_id, scope, floor(extract(epoch FROM clock_timestamp()) / 60)::int, {requests}
    FROM found WHERE is_active AND {memory} {grouped}
    ON CONFLICT (organization_id, scope) DO UPDATE
    SET minute = greatest(w.minute, excluded.minute),
        requests = CASE WHEN excluded.minute > w.minute THEN excluded.requests ELSE w.requests + excluded.requests END
    RETURNING organization_id, scope, minute, requests
)
"""

_TOLD = """
SELECT place::int, extract(epoch FROM clock_timestamp())::float8, w.minute, w.requests,
       key_id, key_agent_id, found.organization_id, environment, is_active, plan, requests_per_minute, agent_id, status,
       permission_id, requires_approval, max_amount, amount_required, ip_allow_list
FROM found
"""

_BY_COUNT = "LEFT JOIN counted AS w ON w.organization_id = found.organization_id AND w.scope = found.scope"

_BY_ROW = """
LEFT JOIN LATERAL (
    SELECT * FROM rate_windows WHERE organization_id = found.organization_id AND scope = found.scope LIMIT 1
) AS w ON true
"""

_ASKED_ONE = (
    "SELECT $1::text AS key_digest, $2::uuid AS agent_id, $3::text AS action, $4::text AS surface, 1 AS place"
)

_ASKED_MANY = """
    SELECT * FROM unnest($1::text[], $2::text[]::uuid[], $3::text[], $4::text[])
        WITH ORDINALITY AS a (key_digest, agent_id, action, surface, place)
"""

_GROUPED = "GROUP BY organization_id, scope ORDER BY organization_id, scope"

ONE = (
    _FOUND.format(asked=_ASKED_ONE)
    + _COUNTED.format(requests="1", grouped="", memory=COMMIT_FROM_MEMORY)
    + _TOLD
    + _BY_COUNT
)

MANY = (
    _FOUND.format(asked=_ASKED_MANY)
    + _COUNTED.format(requests="count(*)::int", grouped=_GROUPED, memory=COMMIT_FROM_MEMORY)
    + _TOLD
    + _BY_COUNT
)

READ_ONE = _FOUND.format(asked=_ASKED_ONE) + _TOLD + _BY_ROW

READ_MANY = _FOUND.format(asked=_ASKED_MANY) + _TOLD + _BY_ROW
