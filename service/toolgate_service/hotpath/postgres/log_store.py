"""Committing log entries to PostgreSQL."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from toolgate_service.counts.adding import added_by
from toolgate_service.hotpath.batch import REMEMBERED, Batch, Known, Tenant, month_of, tenant_of
from toolgate_service.hotpath.news import LISTENS
from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.postgres.news import tell
from toolgate_service.ids import is_id, new_id
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.storage.base import TEST
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.webhooks.outbox import wake

if TYPE_CHECKING:
    from toolgate_service.hotpath.postgres.connections import Connection


class PostgresLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, 1)
        self._database = database

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for nobody: the server has many writers."""
        return nullcontext()

    async def commit(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Make entries durable and return one outcome each, in order.

        Raises:
            StorageFault: nothing of the batch is acknowledged.
        """
        async with self._connections.one() as connection, connection.transaction():
            batch = Batch(await _known(connection, entries))
            outcomes = batch.decide(entries)
            await _write(connection, batch)
            told = await tell(connection, batch)
        if told:
            wake(self._database)
        return outcomes

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()


async def _known(connection: "Connection", entries: Sequence[NewEntry]) -> Known:
    tenants = sorted({tenant_of(entry) for entry in entries})
    # One batch of a tenant at a time, in whatever gateway: its month and its keys are exact until the commit. Every
    # gateway takes the locks in the same order, so that none waits for another in a circle.
    await connection.fetch(_LOCK, [f"log entries of {'/'.join(tenant)}" for tenant in tenants])
    now = await connection.fetchval("SELECT clock_timestamp()")
    agents = await connection.fetch(_AGENTS, [entry.agent_id for entry in entries if is_id(entry.agent_id)])
    used = await connection.fetch(_USAGE, [organization_id for organization_id, _ in tenants], month_of(now))
    test = [organization_id for organization_id, environment in tenants if environment == TEST]
    held = await connection.fetch(_BYTES, test, TEST) if test else []
    return Known(
        now,
        frozenset(((row[0], row[1]), row[2]) for row in agents),
        {(row[0], row[1]): row[2] for row in used},
        {(row[0], TEST): row[1] for row in held},
        await _answers(connection, entries),
        frozenset((row[0], row[1]) for row in agents if row[3]),
    )


async def _answers(
    connection: "Connection", entries: Sequence[NewEntry]
) -> dict[tuple[Tenant, str], tuple[bytes, str]]:
    keys = [(*tenant_of(entry), entry.idempotency_key) for entry in entries if entry.idempotency_key]
    if not keys:
        return {}
    rows = await connection.fetch(ANSWERS, *map(list, zip(*keys, strict=True)))
    return {((row[0], row[1]), row[2]): (row[3], row[4]) for row in rows}


async def _write(connection: "Connection", batch: Batch) -> None:
    now = batch.known.now
    if batch.entries:
        rows: list[dict[str, object]] = [
            {
                **entry.columns(),
                "id": stored.id,
                "created_at": stored.created_at,
                "occurred_at": entry.occurred_at,
            }
            for entry, stored in batch.entries
        ]
        await connection.executemany(_INSERT_ENTRY, [[row[name] for name in _COLUMNS] for row in rows])
        tenants = {tenant_of(entry) for entry, _ in batch.entries}
        usage = [(*tenant, batch.month, batch.known.used[tenant]) for tenant in tenants]
        await connection.executemany(_WRITE_USAGE, usage)
        await connection.execute(_ADD_COUNTS, *map(list, zip(*added_by(batch.entries), strict=True)))
    if batch.grown:
        # In one order: two gateways that wait for each other's rows would wait for ever.
        sizes = [(*tenant, grown) for tenant, grown in sorted(batch.grown.items())]
        await connection.executemany(_WRITE_BYTES, sizes)
    if batch.answers:
        keys: list[tuple[Any, ...]] = [
            (*tenant_of(entry), entry.idempotency_key, entry.fingerprint, answer, now, now + REMEMBERED)
            for entry, answer in batch.answers
        ]
        await connection.executemany(_WRITE_KEY, keys)
    if batch.mismatches:
        audits = [
            (new_id(), *tenant_of(entry), "log.idempotency_mismatch", entry.key_id, entry.address_seen, now)
            for entry in batch.mismatches
        ]
        await connection.executemany(_WRITE_AUDIT, audits)


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name"

_AGENTS = f"""
SELECT organization_id, environment, id, EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.organization_id = a.organization_id AND w.environment = a.environment AND {LISTENS}
)
FROM agents a WHERE id = ANY($1::text[]::uuid[]) AND deleted_at IS NULL
"""  # noqa: S608 - our own words

_USAGE = """
SELECT organization_id, environment, log_entries FROM monthly_usage
WHERE organization_id = ANY($1::text[]::uuid[]) AND month = $2
"""

_BYTES = """
SELECT organization_id, log_bytes FROM environments WHERE organization_id = ANY($1::text[]::uuid[]) AND name = $2
"""

_WRITE_BYTES = """
UPDATE environments SET log_bytes = log_bytes + $3 WHERE organization_id = $1 AND name = $2
"""

# Key by key, and by a limit that the planner cannot undo: a plan is kept as long as its connection, and the one made while
# the table was empty read all of it for each key (64 entries took 45 ms beside 6,000 remembered keys; now 0.2 ms).
ANSWERS = """
SELECT asked.organization_id, asked.environment, asked.key, k.answer, k.fingerprint
FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]) AS asked (organization_id, environment, key)
CROSS JOIN LATERAL (
    SELECT answer, fingerprint FROM idempotency_keys
    WHERE organization_id = asked.organization_id AND environment = asked.environment AND surface = 'log'
      AND key = asked.key AND expires_at > clock_timestamp()
    LIMIT 1
) AS k
"""

_COLUMNS = (
    "id", "organization_id", "environment", "agent_id", "action", "status", "context", "ip_address", "address_seen",
    "created_at", "occurred_at", "decision_id", "approval_id", "call_id", "run_id", "key_id",
)  # fmt: skip

_INSERT_ENTRY = (
    f"INSERT INTO log_entries ({', '.join(_COLUMNS)}) "  # noqa: S608 - our own column names
    f"VALUES ({', '.join(f'${number}' for number in range(1, len(_COLUMNS) + 1))})"
)

_WRITE_USAGE = """
INSERT INTO monthly_usage (organization_id, environment, month, log_entries) VALUES ($1, $2, $3, $4)
ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = excluded.log_entries
"""

_ADD_COUNTS = """
INSERT INTO log_counts AS c (organization_id, environment, subject, span, starts, name, succeeded, failed, blocked, held)
SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[],
                     $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
ON CONFLICT (organization_id, environment, subject, span, starts, name)
DO UPDATE SET succeeded = c.succeeded + excluded.succeeded, failed = c.failed + excluded.failed,
              blocked = c.blocked + excluded.blocked, held = c.held + excluded.held
"""

_WRITE_KEY = """
INSERT INTO idempotency_keys (organization_id, environment, surface, key, fingerprint, answer, created_at, expires_at)
VALUES ($1, $2, 'log', $3, $4, $5, $6, $7)
ON CONFLICT (organization_id, environment, surface, key)
DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer,
              created_at = excluded.created_at, expires_at = excluded.expires_at
"""

_WRITE_AUDIT = """
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
