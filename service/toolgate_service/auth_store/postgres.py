"""Auth store for PostgreSQL. Concurrent requests are batched into one SQL statement.

The contexts of API keys are cached. Each environment has an epoch number, which every change that affects contexts
increments. For a cached key, one statement counts the request and compares the epoch. If the epoch has changed, the
statement counts nothing, and the context is read again.

Each table is queried by a complete key and with `LIMIT 1`, which forces an index lookup. Otherwise a connection could
keep a slow query plan that PostgreSQL chose while the tables of a new gateway were small.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import asyncpg

from toolgate_service.accounts.sessions import ACTIVE_SESSION_SQL, ActiveSession, TokenClaims
from toolgate_service.context import AuthContext, AuthResult, ContextCache
from toolgate_service.core.concurrency import Batcher
from toolgate_service.core.ids import is_id
from toolgate_service.core.plans import Plan
from toolgate_service.db.database import Usage
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import COMMIT_FROM_MEMORY, PostgresPool
from toolgate_service.rate_limit.limiter import Rate, RateLimiter, Surface

CONNECTIONS = 8
#: maximum number of batches that run concurrently, each on one connection; other queries use the remaining connections
CONCURRENCY = 4
BATCH_SIZE = 64


class AuthQuery(NamedTuple):
    """API key of a request. One SQL statement looks up the key and counts the request for its rate limit."""

    key_digest: str
    surface: Surface


class CountQuery(NamedTuple):
    """Request with an API key whose context is cached, and the rate limit under which the request is counted.

    `epoch` is the version of the environment's data that the cached context contains. The statement counts the request
    only if this is still the current version.
    """

    organization_id: str
    environment: str
    surface: Surface
    epoch: int


#: Unix time of the server in seconds, start of the rate limit window in minutes since 1970-01-01 UTC, and number of
#: requests in the window
Counted: TypeAlias = tuple[float, int, int]


class PostgresAuthStore:
    """Auth store for PostgreSQL, with a separate connection pool.

    Args:
        database: The database.
        plans: All plans by name.
        limiter: Rate limiter that counts the requests; None to count requests in the SQL statement that looks up the
            key.
    """

    def __init__(
        self, database: PostgresDatabase, plans: Mapping[str, Plan], limiter: RateLimiter | None = None
    ) -> None:
        self._pool = PostgresPool(database, CONNECTIONS)
        self._plans = plans
        self._limiter = limiter
        self._cache = ContextCache()
        self._readers = Batcher(self._authenticate_batch, concurrency=CONCURRENCY, size=BATCH_SIZE)
        self._counters = Batcher(self._count_batch, concurrency=CONCURRENCY, size=BATCH_SIZE)

    async def open(self) -> None:
        """Connect to the database, whose schema must exist."""
        await self._pool.open()

    async def authenticate(self, key_digest: str, surface: Surface) -> AuthResult | None:
        """Count a request with an API key, and return its context and the state of its rate limit.

        The result is None if the key is not valid. If the organization is not active, the request is not counted, and
        the state of the rate limit is None.
        """
        cached = self._cache.find(key_digest)
        if self._limiter is not None:
            return await self._count_elsewhere(key_digest, surface, cached, self._limiter)
        if cached is not None and cached.epoch is not None:
            query = CountQuery(cached.organization_id, cached.environment, surface, cached.epoch)
            counted = await self._counters.run(query)
            if counted is not None:
                moment, minute, used = counted
                limit = cached.rate_limit(self._plans)
                return cached, Rate.at(moment, minute, limit, used, exceeded=used > limit)
        return await self._readers.run(AuthQuery(key_digest, surface))

    async def _count_elsewhere(
        self, key_digest: str, surface: Surface, cached: AuthContext | None, limiter: RateLimiter
    ) -> AuthResult | None:
        context = cached
        if cached is None or not await self._is_current(cached):
            context = await self.load(key_digest)
        if context is None:
            return None
        if not context.organization_is_active:
            return context, None
        scope = f"{context.environment}/{surface}"
        limit = context.rate_limit(self._plans)
        return context, await limiter.count(context.organization_id, scope, limit)

    async def _is_current(self, cached: AuthContext) -> bool:
        rows = await self._pool.rows(_EPOCH, cached.organization_id, cached.environment)
        return bool(rows) and rows[0][0] == cached.epoch

    async def load(
        self, key_digest: str, agent_id: str = "", action: str = "", *, epoch: int | None = None
    ) -> AuthContext | None:
        """Return the context of an API key, an agent and an action; None if the key is unknown or revoked.

        `epoch` is a version number of the environment's data. If it is given, a cached context with this or a later
        version is returned without a database read.
        """
        cached = self._cache.find_since(epoch, key_digest, agent_id, action)
        if cached is not None:
            return cached
        rows = await self._pool.rows(CONTEXT, key_digest, _uuid(agent_id), action)
        if not rows:
            return None
        context = AuthContext._make(rows[0])
        self._cache.store(key_digest, agent_id, action, context)
        return context

    async def sign_in(self, claims: TokenClaims) -> ActiveSession | None:
        """Return the session of a user's token; None if the session has ended."""
        values = (_uuid(claims.user_id), _uuid(claims.session_id), claims.version)
        rows = await self._pool.rows(_SIGN_IN, *values)
        return ActiveSession._make(rows[0]) if rows else None

    async def is_pending(self, approval_id: str) -> bool:
        """Return whether an approval request exists and is pending."""
        return bool(await self._pool.rows(_PENDING, _uuid(approval_id)))

    def usage(self) -> Usage:
        """Return the usage of the connection pool."""
        return self._pool.usage()

    async def close(self) -> None:
        """Close all connections to the database."""
        await self._pool.close()

    async def _authenticate_batch(self, queries: Sequence[AuthQuery]) -> list[AuthResult | None]:
        if len(queries) == 1:
            # The statement without array parameters accepts only one request, but takes half the time.
            rows = await self._pool.rows(AUTHENTICATE_ONE, *queries[0])
        else:
            rows = await self._pool.rows(AUTHENTICATE_MANY, *map(list, zip(*queries, strict=True)))
        return self._results(queries, rows)

    def _results(
        self, queries: Sequence[AuthQuery], rows: Sequence[asyncpg.Record]
    ) -> list[AuthResult | None]:
        results: list[AuthResult | None] = [None] * len(queries)
        # Each row contains the count after the whole batch, because the statement adds all requests of a rate limit
        # window at once. Go from the last request to the first, and subtract one for each later request of the window.
        later: dict[object, int] = {}
        for position, moment, minute, requests, *columns, epoch, is_advisory in sorted(
            rows, key=lambda row: -row[0]
        ):
            context = AuthContext(*columns)._replace(epoch=epoch, is_advisory=is_advisory)
            self._cache.store(queries[position - 1].key_digest, "", "", context)
            rate = None
            if requests is not None:
                window = (context.organization_id, context.environment, queries[position - 1].surface)
                used = requests - later.get(window, 0)
                later[window] = later.get(window, 0) + 1
                limit = context.rate_limit(self._plans)
                rate = Rate.at(moment, minute, limit, used, exceeded=used > limit)
            results[position - 1] = (context, rate)
        return results

    async def _count_batch(self, queries: Sequence[CountQuery]) -> list[Counted | None]:
        if len(queries) == 1:
            rows = await self._pool.rows(COUNT_ONE, *queries[0])
            return [tuple(rows[0]) if rows else None]
        # Sort the queries by organization: all gateways then lock the rows with the counts in the same order, and
        # cannot deadlock.
        groups = sorted(Counter(queries).items())
        columns = [
            *map(list, zip(*(query for query, _ in groups), strict=True)),
            [many for _, many in groups],
        ]
        rows = await self._pool.rows(COUNT_MANY, *columns)
        left = {(str(row[0]), row[1]): (row[2], row[3], row[4]) for row in rows}
        numbers = Counter(queries)
        results: list[Counted | None] = []
        for query in queries:
            found = left.get((query.organization_id, f"{query.environment}/{query.surface}"))
            numbers[query] -= 1
            # `found` contains the count after the whole batch. Subtract the number of later requests in the same rate
            # limit window, to get the count after this request.
            results.append(None if found is None else (found[0], found[1], found[2] - numbers[query]))
        return results


def _uuid(text: str) -> str | None:
    # PostgreSQL would raise an error for a string that is not a UUID. NULL is valid and matches no id.
    return text if is_id(text) else None


CONTEXT = """
SELECT k.id, k.agent_id, k.organization_id, k.environment, o.is_active, o.plan, o.requests_per_minute, o.ip_allow_list,
       a.id, a.status, p.id, p.requires_approval, p.max_amount, p.amount_required,
       (SELECT f.reason FROM freezes f
        WHERE f.organization_id = k.organization_id AND f.lifted_at IS NULL
          AND (f.agent_id IS NULL OR f.agent_id = $2)
          AND (f.action IS NULL OR f.action = $3
               OR (f.action LIKE '%*' AND f.action = substr($3, 1, length(f.action) - 1) || '*'))
        ORDER BY f.created_at, f.id LIMIT 1),
       a.name,
       EXISTS (SELECT 1 FROM rules r
               WHERE r.organization_id = k.organization_id AND r.environment = k.environment AND r.enabled)::int,
       EXISTS (SELECT 1 FROM budgets b
               WHERE b.organization_id = k.organization_id AND b.environment = k.environment AND b.enabled)::int,
       (SELECT s.id FROM policy_shadows s
        WHERE s.organization_id = k.organization_id AND s.environment = k.environment),
       (SELECT epoch FROM epochs WHERE organization_id = k.organization_id AND environment = k.environment),
       k.advisory::int
FROM (SELECT * FROM api_keys WHERE digest = $1 AND revoked_at IS NULL LIMIT 1) AS k
CROSS JOIN LATERAL (SELECT * FROM organizations WHERE id = k.organization_id LIMIT 1) AS o
LEFT JOIN LATERAL (
    SELECT * FROM agents
    WHERE id = $2 AND organization_id = k.organization_id AND environment = k.environment AND deleted_at IS NULL
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT * FROM permissions
    WHERE organization_id = a.organization_id AND environment = a.environment AND agent_id = a.id AND action = $3
    LIMIT 1
) AS p ON true
"""

_POSITIONS = {"user_id": "$1", "session_id": "$2", "version": "$3", "now": "clock_timestamp()"}
_SIGN_IN = re.sub(r":(\w+)", lambda match: _POSITIONS[match[1]], ACTIVE_SESSION_SQL)

_PENDING = "SELECT 1 FROM approvals WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp()"

# The statement never decreases the column `minute` of a rate limit window. If the server's clock is set back, requests
# are therefore still counted in the later minute, and the count does not start again. One statement updates the rows of
# several organizations, always in the order of the organizations, so that two gateways cannot deadlock.
_AUTHENTICATE = """
WITH asked AS ({asked}), found AS MATERIALIZED (
    SELECT asked.place, k.environment || '/' || asked.surface AS scope,
           k.id AS key_id, k.agent_id AS key_agent_id, k.organization_id, k.environment,
           o.is_active, o.plan, o.requests_per_minute, o.ip_allow_list, k.advisory::int AS is_advisory,
           (SELECT e.epoch FROM epochs e WHERE e.organization_id = k.organization_id AND e.environment = k.environment)
    FROM asked
    CROSS JOIN LATERAL (
        SELECT * FROM api_keys WHERE digest = asked.key_digest AND revoked_at IS NULL LIMIT 1
    ) AS k
    CROSS JOIN LATERAL (SELECT * FROM organizations WHERE id = k.organization_id LIMIT 1) AS o
), counted AS (
    INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
    SELECT organization_id, scope, floor(extract(epoch FROM clock_timestamp()) / 60)::int, {requests}
    FROM found WHERE is_active AND {memory} {grouped}
    ON CONFLICT (organization_id, scope) DO UPDATE
    SET minute = greatest(w.minute, excluded.minute),
        requests = CASE WHEN excluded.minute > w.minute THEN excluded.requests ELSE w.requests + excluded.requests END
    RETURNING organization_id, scope, minute, requests
)
SELECT place::int, extract(epoch FROM clock_timestamp())::float8, w.minute, w.requests,
       key_id, key_agent_id, found.organization_id, environment, is_active, plan, requests_per_minute, ip_allow_list,
       found.epoch, is_advisory
FROM found LEFT JOIN counted AS w ON w.organization_id = found.organization_id AND w.scope = found.scope
"""

AUTHENTICATE_ONE = _AUTHENTICATE.format(
    asked="SELECT $1::text AS key_digest, $2::text AS surface, 1 AS place",
    requests="1",
    memory=COMMIT_FROM_MEMORY,
    grouped="",
)

AUTHENTICATE_MANY = _AUTHENTICATE.format(
    asked="SELECT * FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a (key_digest, surface, place)",
    requests="count(*)::int",
    memory=COMMIT_FROM_MEMORY,
    grouped="GROUP BY organization_id, scope ORDER BY organization_id, scope",
)

_EPOCH = "SELECT epoch FROM epochs WHERE organization_id = $1 AND environment = $2"

_COUNT_KNOWN = """
INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
SELECT e.organization_id, e.environment || '/' || asked.surface,
       floor(extract(epoch FROM clock_timestamp()) / 60)::int, asked.requests
FROM {asked}
JOIN epochs e ON e.organization_id = asked.organization_id AND e.environment = asked.environment AND e.epoch = asked.epoch
WHERE {memory} {ordered}
ON CONFLICT (organization_id, scope) DO UPDATE
SET minute = greatest(w.minute, excluded.minute),
    requests = CASE WHEN excluded.minute > w.minute THEN excluded.requests ELSE w.requests + excluded.requests END
RETURNING {columns}
"""
_MOMENT = "extract(epoch FROM clock_timestamp())::float8, minute, requests"

COUNT_ONE = _COUNT_KNOWN.format(
    asked="(SELECT $1::uuid AS organization_id, $2::text AS environment, $3::text AS surface, $4::bigint AS epoch, "
    "1 AS requests) AS asked",
    memory=COMMIT_FROM_MEMORY,
    ordered="",
    columns=_MOMENT,
)

COUNT_MANY = _COUNT_KNOWN.format(
    asked="unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::int[]) "
    "AS asked (organization_id, environment, surface, epoch, requests)",
    memory=COMMIT_FROM_MEMORY,
    ordered="ORDER BY e.organization_id, 2",
    columns=f"organization_id, scope, {_MOMENT}",
)
