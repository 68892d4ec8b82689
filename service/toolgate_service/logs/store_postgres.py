"""Log store for PostgreSQL, which commits batches of log entries."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from toolgate_service.budgets.settlement import (
    RESERVATION_COLUMNS,
    TOTAL_COLUMNS,
    ReservationRow,
    TotalRow,
    settle_reservations,
)
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.ids import is_id
from toolgate_service.db.database import Usage
from toolgate_service.db.models import TEST
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import WRITE_SETTINGS, PostgresPool
from toolgate_service.db.retry import with_retry
from toolgate_service.logs.counts import count_rows
from toolgate_service.logs.events import (
    STREAMS_ENTRIES,
    Subscriber,
    agents_in_events,
    build_events,
    tenants_with_events,
)
from toolgate_service.logs.leaves import entry_chunks, mismatch_events
from toolgate_service.logs.models import KEY_LIFETIME
from toolgate_service.logs.schemas import COLUMNS, NewEntry, Outcome
from toolgate_service.logs.writer import Batch, BatchState, Tenant, tenant_of
from toolgate_service.transparency.statements import columns, insert_chunks
from toolgate_service.webhooks.events import wake_worker

if TYPE_CHECKING:
    from toolgate_service.db.postgres_connection import Connection


async def begin_locked(connection: "Connection", entries: Sequence[NewEntry], lock_timeout: int) -> None:
    """Begin a transaction and lock the tenants of the log entries against writes by other gateways.

    A tenant is an environment of an organization. Until the transaction ends, no other transaction changes the monthly
    usage or the idempotency keys of these tenants. All gateways take the locks in the same order, so that they cannot
    deadlock. `lock_timeout` is the maximum wait in milliseconds, for these locks and for row locks of later statements.

    Raises:
        asyncpg.LockNotAvailableError: Another gateway held a lock for longer than the timeout.
    """
    # Send all statements in one round trip, which allows no bind parameters. The literals are safe, because they
    # consist of ids and environment names that the gateway generated.
    names = ", ".join(_literal(tenant) for tenant in _tenants(entries))
    await connection.execute(
        f"BEGIN; SET LOCAL lock_timeout = {lock_timeout}; {_LOCK.format(names=names)}; {_SETTINGS}"
    )


async def begin_available(
    connection: "Connection", entries: Sequence[NewEntry], lock_timeout: int
) -> frozenset[Tenant]:
    """Begin a transaction, lock those of the entries' environments whose locks are free, and return these environments.

    `lock_timeout` is the maximum wait in milliseconds for row locks of later statements.
    """
    tenants = _tenants(entries)
    await connection.execute(f"BEGIN; SET LOCAL lock_timeout = {lock_timeout}; {_SETTINGS}")
    rows = await connection.fetch(_TRY_LOCK, [_name(tenant) for tenant in tenants])
    return frozenset(tenants[place - 1] for place, is_locked in rows if is_locked)


def _tenants(entries: Sequence[NewEntry]) -> Sequence[Tenant]:
    return sorted({tenant_of(entry) for entry in entries})


def _name(tenant: Tenant) -> str:
    return f"log entries of {'/'.join(tenant)}"


def _literal(tenant: Tenant) -> str:
    return f"'{_name(tenant)}'"


async def load_state(connection: "Connection", entries: Sequence[NewEntry]) -> BatchState:
    """Load the values from the database on which the decisions about a batch of log entries depend.

    Call this function after `begin_locked` or `begin_available`. The time in the result is then later than that of each
    earlier batch with entries of the same environments.
    """
    rows = await connection.fetch(
        BATCH_STATE,
        [entry.organization_id for entry in entries],
        [entry.environment for entry in entries],
        [entry.agent_id if is_id(entry.agent_id) else None for entry in entries],
        [entry.idempotency_key for entry in entries],
    )
    agents: set[tuple[Tenant, str]] = set()
    used: dict[Tenant, int] = {}
    log_bytes: dict[Tenant, int] = {}
    answers: dict[tuple[Tenant, str], tuple[bytes, str]] = {}
    streaming: set[Tenant] = set()
    with_budgets: set[Tenant] = set()
    for place, _, has_agent, is_streaming, has_budgets, month, size, answer, fingerprint in rows:
        entry = entries[place - 1]
        tenant = tenant_of(entry)
        used[tenant] = month
        if has_agent:
            agents.add((tenant, entry.agent_id))
        if is_streaming:
            streaming.add(tenant)
        if has_budgets:
            with_budgets.add(tenant)
        if size is not None:
            log_bytes[tenant] = size
        if entry.idempotency_key is not None and answer is not None:
            answers[tenant, entry.idempotency_key] = (answer, fingerprint)
    return BatchState(
        rows[0][1], frozenset(agents), used, log_bytes, answers, frozenset(streaming), frozenset(with_budgets)
    )


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest(ARRAY[{names}]) AS name"
_TRY_LOCK = """
SELECT place::int, pg_try_advisory_xact_lock(hashtextextended(name, 0))
FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, place)
"""
# The settings include `synchronous_commit`, so that COMMIT returns only after the entries are on disk.
_SETTINGS = f"SELECT {WRITE_SETTINGS}"

# The lateral joins with LIMIT 1 force an index lookup for each row. Without them, a connection could keep a query plan
# with sequential scans, which the server made while the tables were empty (64 entries then took 45 ms with 6,000 stored
# keys). The time is `statement_timestamp()`, which is later than the acquisition of the locks. The expiry is compared
# with `clock_timestamp()`, so that the planner does not use the index of expiry times.
BATCH_STATE = f"""
SELECT place::int, statement_timestamp(), a.id IS NOT NULL, a.is_streaming, a.has_budgets,
       coalesce(u.log_entries, 0), e.log_bytes,
       k.answer, k.fingerprint
FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]::uuid[], $4::text[])
     WITH ORDINALITY AS wanted (organization_id, environment, agent_id, key, place)
LEFT JOIN LATERAL (
    SELECT id, EXISTS (
        SELECT 1 FROM webhooks w
        WHERE w.organization_id = wanted.organization_id AND w.environment = wanted.environment AND {STREAMS_ENTRIES}
    ) AS is_streaming, EXISTS (
        SELECT 1 FROM budgets b
        WHERE b.organization_id = wanted.organization_id AND b.environment = wanted.environment
    ) AS has_budgets
    FROM agents
    WHERE id = wanted.agent_id AND organization_id = wanted.organization_id AND environment = wanted.environment
      AND deleted_at IS NULL
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT log_entries FROM monthly_usage
    WHERE organization_id = wanted.organization_id AND environment = wanted.environment
      AND month = to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM')
    LIMIT 1
) AS u ON true
LEFT JOIN LATERAL (
    SELECT log_bytes FROM environments
    WHERE organization_id = wanted.organization_id AND name = wanted.environment AND wanted.environment = '{TEST}'
    LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT answer, fingerprint FROM idempotency_keys
    WHERE organization_id = wanted.organization_id AND environment = wanted.environment AND surface = 'log'
      AND key = wanted.key AND expires_at > clock_timestamp()
    LIMIT 1
) AS k ON true
"""  # noqa: S608 - the inserted texts are constants


async def write_batch(connection: "Connection", batch: Batch) -> None:
    """Write the log entries of a batch and all related rows, in the transaction of the batch."""
    if batch.entries:
        await connection.execute(_WRITE_BATCH, *_columns(batch))
    for event in mismatch_events(batch):
        await connection.execute(_WRITE_AUDIT, *event.row, *columns(event.chunks))


def _columns(batch: Batch) -> Iterable[Sequence[Any]]:
    now = batch.state.now
    rows = [
        (stored.id, stored.created_at, entry.occurred_at, stored.salt, *entry.values())
        for entry, stored in batch.entries
    ]
    yield from _transposed(rows, len(_ENTRY))
    keys = [
        (*tenant_of(entry), "log", entry.idempotency_key, entry.fingerprint, answer, now, now + KEY_LIFETIME)
        for entry, answer in batch.answers
    ]
    yield from _transposed(keys, len(_KEY))
    tenants = sorted({tenant_of(entry) for entry, _ in batch.entries})
    usage = [(*tenant, batch.month, batch.state.used[tenant]) for tenant in tenants]
    yield from _transposed(usage, len(_USAGE))
    yield from _transposed(count_rows(batch.entries), len(_COUNT))
    yield from _transposed(
        [(*tenant, added) for tenant, added in sorted(batch.added_bytes.items())], len(_GROWN)
    )
    yield from columns(entry_chunks(batch.entries))


def _transposed(rows: Sequence[Sequence[object]], width: int) -> Iterable[Sequence[object]]:
    return zip(*rows, strict=True) if rows else [()] * width


#: columns of each table to which a batch writes, with their SQL types
_ENTRY = {
    "id": "uuid", "created_at": "timestamptz", "occurred_at": "timestamptz", "salt": "text",
    **{name: "uuid" if name in {"organization_id", "agent_id", "key_id"} else "text" for name in COLUMNS},
}  # fmt: skip
_KEY = {
    "organization_id": "uuid", "environment": "text", "surface": "text", "key": "text", "fingerprint": "text",
    "answer": "bytea", "created_at": "timestamptz", "expires_at": "timestamptz",
}  # fmt: skip
_USAGE = {"organization_id": "uuid", "environment": "text", "month": "text", "log_entries": "bigint"}
_COUNT = {
    "organization_id": "uuid", "environment": "text", "subject": "text", "span": "int", "starts": "int",
    "name": "text", "succeeded": "bigint", "failed": "bigint", "blocked": "bigint", "held": "bigint",
}  # fmt: skip
_GROWN = {"organization_id": "uuid", "environment": "text", "bytes": "bigint"}


def _unnested(columns: Mapping[str, str], first: int) -> str:
    # Send ids as text, because the driver encodes text faster than UUID objects.
    return ", ".join(
        f"${place}::text[]::uuid[]" if kind == "uuid" else f"${place}::{kind}[]"
        for place, kind in enumerate(columns.values(), first)
    )


def _insert(table: str, columns: Mapping[str, str], first: int) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({_unnested(columns, first)})"  # noqa: S608 - the inserted names are constants


_FIRST_OF_KEY = 1 + len(_ENTRY)
_FIRST_OF_USAGE = _FIRST_OF_KEY + len(_KEY)
_FIRST_OF_COUNT = _FIRST_OF_USAGE + len(_USAGE)
_FIRST_OF_GROWN = _FIRST_OF_COUNT + len(_COUNT)
_FIRST_OF_CHUNK = _FIRST_OF_GROWN + len(_GROWN)

_WRITE_BATCH = f"""
WITH keys AS (
    {_insert("idempotency_keys", _KEY, _FIRST_OF_KEY)}
    ON CONFLICT (organization_id, environment, surface, key)
    DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer,
                  created_at = excluded.created_at, expires_at = excluded.expires_at
), usage AS (
    {_insert("monthly_usage", _USAGE, _FIRST_OF_USAGE)}
    ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = excluded.log_entries
), counts AS (
    {_insert("log_counts AS c", _COUNT, _FIRST_OF_COUNT)}
    ON CONFLICT (organization_id, environment, subject, span, starts, name)
    DO UPDATE SET succeeded = c.succeeded + excluded.succeeded, failed = c.failed + excluded.failed,
                  blocked = c.blocked + excluded.blocked, held = c.held + excluded.held
), grown AS (
    UPDATE environments AS e SET log_bytes = e.log_bytes + g.bytes
    FROM unnest({_unnested(_GROWN, _FIRST_OF_GROWN)}) AS g (organization_id, environment, bytes)
    WHERE e.organization_id = g.organization_id AND e.name = g.environment
), {insert_chunks(_FIRST_OF_CHUNK)}
{_insert("log_entries", _ENTRY, 1)}
"""  # noqa: S608 - the inserted texts are constants

_WRITE_AUDIT = f"""
WITH {insert_chunks(9)}
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, salt, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""  # noqa: S608 - the inserted texts are constants


async def settle_budgets(connection: "Connection", batch: Batch) -> None:
    """Settle or release the budget reservations to which the log entries refer, in the transaction of the batch.

    A check locks the totals of budgets before the counts of requests. Call this function before `write_batch`, which
    changes these counts, so that a check and a batch cannot deadlock.
    """
    entries = batch.settling()
    if not entries:
        return
    decisions = sorted({entry.decision_id for entry in entries})
    reservations = [ReservationRow._make(row) for row in await connection.fetch(_RESERVATIONS, decisions)]
    if not reservations:
        return
    # Lock the totals in the order of the budgets, as checks do.
    totals = dict.fromkeys(
        total for _, total in sorted((one.budget_id, one.total_id) for one in reservations)
    )
    rows = await connection.fetch(_LOCK_TOTALS, list(totals))
    settlement = settle_reservations(entries, reservations, [TotalRow._make(row) for row in rows])
    if settlement.reservations:
        columns = (*_transposed(settlement.reservations, 3), *_transposed(settlement.totals, 3))
        await connection.execute(_SETTLE, batch.state.now, *columns)


# As in `BATCH_STATE`, the LIMIT clauses force index lookups. They also determine the order in which the totals are
# locked.
_RESERVATIONS = f"""
SELECT {RESERVATION_COLUMNS}
FROM unnest($1::text[]::uuid[]) AS wanted (decision_id)
CROSS JOIN LATERAL (
    SELECT * FROM budget_reservations WHERE decision_id = wanted.decision_id LIMIT 1000
) AS r
LEFT JOIN LATERAL (SELECT measure, currency_arg FROM budgets WHERE id = r.budget_id LIMIT 1) AS b ON true
"""  # noqa: S608 - the inserted names are constants

_LOCK_TOTALS = f"""
SELECT t.* FROM unnest($1::text[]::uuid[]) WITH ORDINALITY AS wanted (id, place)
CROSS JOIN LATERAL (
    SELECT {TOTAL_COLUMNS} FROM budget_totals WHERE id = wanted.id LIMIT 1 FOR UPDATE
) AS t
"""  # noqa: S608 - the inserted names are constants

_SETTLE = """
WITH settled AS (
    UPDATE budget_reservations AS r SET state = s.state, settled_amount = s.amount, settled_at = $1::timestamptz
    FROM unnest($2::text[], $3::text[], $4::text[]::uuid[]) AS s (state, amount, id)
    WHERE r.id = s.id
)
UPDATE budget_totals AS t SET settled = n.settled, reserved = n.reserved
FROM unnest($5::text[], $6::text[], $7::text[]::uuid[]) AS n (settled, reserved, id)
WHERE t.id = n.id
"""


async def write_events(connection: "Connection", batch: Batch) -> bool:
    """Write the webhook events of a batch, in the transaction of the batch. Return True if there were events."""
    tenants = tenants_with_events(batch)
    if not tenants:
        return False
    rows = await connection.fetch(_SUBSCRIBERS, agents_in_events(batch, tenants), *_transposed(tenants, 2))
    names: dict[str, str] = {}
    webhooks: dict[Tenant, list[Subscriber]] = {tenant: [] for tenant in tenants}
    for row_id, text, organization_id, environment in rows:
        if organization_id is None:
            names[row_id] = text
        else:
            webhooks[organization_id, environment].append((row_id, text))
    events, deliveries = build_events(batch, webhooks, names)
    if events:
        await connection.execute(_WRITE_EVENTS, *_transposed(events, 6), *_transposed(deliveries, 6))
    return bool(events)


# One statement returns the names of agents and the active webhooks, to save a round trip. The rows of agents can be
# recognized by the organization, which is NULL.
_SUBSCRIBERS = """
SELECT id, name, NULL::uuid, NULL FROM agents WHERE id = ANY($1::text[]::uuid[])
UNION ALL
SELECT w.id, w.events, w.organization_id, w.environment
FROM unnest($2::text[]::uuid[], $3::text[]) AS wanted (organization_id, environment)
CROSS JOIN LATERAL (
    SELECT * FROM webhooks
    WHERE organization_id = wanted.organization_id AND environment = wanted.environment AND is_active
) AS w
"""

_WRITE_EVENTS = """
WITH events AS (
    INSERT INTO events (id, organization_id, environment, kind, payload, created_at)
    SELECT * FROM unnest($1::text[]::uuid[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
)
INSERT INTO deliveries (id, organization_id, environment, event_id, webhook_id, next_attempt_at, created_at, status,
                        attempts)
SELECT id, organization_id, environment, event_id, webhook_id, moment, moment, 'pending', 0
FROM unnest($7::text[]::uuid[], $8::text[]::uuid[], $9::text[], $10::text[]::uuid[], $11::text[]::uuid[],
            $12::timestamptz[])
    AS d (id, organization_id, environment, event_id, webhook_id, moment)
"""


#: Maximum time in milliseconds for which a batch waits for an organization's lock or a row lock. Another gateway holds
#: such a lock for only a few milliseconds, unless it has stopped responding. If the lock is still not free, the entries
#: are moved to lanes: separate queues, one for each organization and environment.
SHARED_WAIT = 250
#: maximum time in milliseconds for which the entries in a lane wait for the lock of their organization, and for each
#: row lock
LANE_WAIT = 3_000
#: number of connections for entries in lanes
LANES = 4

#: outcomes of the entries (None for entries that were not written), and True if webhook events were written
_Committed: TypeAlias = tuple[list[Outcome | None], bool]


class PostgresLogStore:
    """Log store for PostgreSQL. It commits each batch of log entries in one transaction, with one sync to disk."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = PostgresPool(database, 1)
        self._lanes = PostgresPool(database, LANES)
        self._database = database

    @property
    def background_pool(self) -> PostgresPool:
        """Connection pool for decisions, and for log entries that wait for a lock; other log entries use another pool."""
        return self._lanes

    async def open(self) -> None:
        """Connect to the database, whose schema must already exist."""
        await self._connections.open()
        await self._lanes.open()

    def write_access(self) -> AbstractAsyncContextManager[object]:
        """Return a context manager that does nothing, because PostgreSQL allows concurrent writers."""
        return nullcontext()

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> list[Outcome | None]:
        """Commit log entries, and return one outcome for each entry, in the same order.

        Args:
            entries: Entries of any organizations; with `wait`, of one organization only.
            wait: True to wait for a lock that another gateway holds. Without `wait`, the entries of a locked
                organization are not written, and their outcome is None. If a row is locked, no entry is written, and
                the outcome of all entries is None. The caller must commit these entries again with `wait`.

        Raises:
            StorageFault: The commit failed. If the connection was lost during the commit, the entries may be stored.
        """
        connections, lock_timeout = (self._lanes, LANE_WAIT) if wait else (self._connections, SHARED_WAIT)
        committed = await with_retry(lambda: self._commit(connections, entries, lock_timeout))
        if committed is None:
            if wait:
                raise StorageFault("another gateway holds the organization's lock")
            committed = await with_retry(lambda: self._commit_available(entries))
        outcomes, has_events = committed
        if has_events:
            wake_worker(self._database)
        return outcomes

    async def _commit(
        self, connections: PostgresPool, entries: Sequence[NewEntry], lock_timeout: int
    ) -> "_Committed | None":
        """Commit log entries. If the lock of an organization is not free in time, write none and return None."""
        # If an error occurs, the pool rolls back the transaction or closes the connection.
        async with connections.acquire() as connection:
            try:
                await begin_locked(connection, entries, lock_timeout)
            except asyncpg.LockNotAvailableError:
                await connection.execute("ROLLBACK")
                return None
            if connections is self._lanes:
                return await _commit_batch(connection, entries)
            return await self._commit_shared(connection, entries)

    async def _commit_shared(self, connection: "Connection", entries: Sequence[NewEntry]) -> _Committed:
        """Commit log entries as `_commit_batch` does. If a row is locked, roll back and return None for each entry.

        For example, a check that creates an approval request locks the rows that count the requests of the
        organization. They stay locked if the gateway that runs the check stops responding. The database error does not
        name the organization, so the caller commits all entries again in lanes: separate queues, one for each
        organization and environment.
        """
        try:
            return await _commit_batch(connection, entries)
        except asyncpg.LockNotAvailableError:
            await connection.execute("ROLLBACK")
            return [None] * len(entries), False

    async def _commit_available(self, entries: Sequence[NewEntry]) -> "_Committed":
        async with self._connections.acquire() as connection:
            locked = await begin_available(connection, entries, SHARED_WAIT)
            places = [place for place, entry in enumerate(entries) if tenant_of(entry) in locked]
            outcomes: list[Outcome | None] = [None] * len(entries)
            if not places:
                await connection.execute("ROLLBACK")
                return outcomes, False
            found, has_events = await self._commit_shared(connection, [entries[place] for place in places])
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
            return outcomes, has_events

    def usage(self) -> Usage:
        """Return the numbers of used connections, free connections and waiting callers."""
        shared, lanes = self._connections.usage(), self._lanes.usage()
        waiting = (shared.waiting or 0) + (lanes.waiting or 0)
        return Usage(shared.busy + lanes.busy, shared.idle + lanes.idle, waiting)

    async def close(self) -> None:
        """Close all connections to the database."""
        await self._connections.close()
        await self._lanes.close()


async def _commit_batch(connection: "Connection", entries: Sequence[NewEntry]) -> _Committed:
    """Decide about log entries, write the accepted ones and commit. The transaction must hold the environments' locks.

    The function takes three round trips to the database, two more if there are webhook events, and three more if
    entries settle reservations of budgets.
    """
    batch = Batch(await load_state(connection, entries))
    outcomes = batch.decide(entries)
    await settle_budgets(connection, batch)
    await write_batch(connection, batch)
    has_events = await write_events(connection, batch)
    await connection.execute("COMMIT")
    return [*outcomes], has_events
