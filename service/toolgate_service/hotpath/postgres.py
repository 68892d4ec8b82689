"""The busiest road's ways to PostgreSQL: prepared statements over pools of plain connections."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.batch import REMEMBERED, Batch, Known, Tenant, month_of, tenant_of
from toolgate_service.hotpath.rates import WINDOW, Rate
from toolgate_service.hotpath.standing import STANDING, Standing
from toolgate_service.ids import is_id, new_id
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.storage.base import TEST
from toolgate_service.storage.postgres import ASKED, CONNECT_TIMEOUT, DURABLE, SILENCE, PostgresDatabase

if TYPE_CHECKING:
    #: asyncpg's classes are generic to type checkers alone
    Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]

READ_CONNECTIONS = 8
RATE_CONNECTIONS = 4


class Connections:
    """A pool of plain connections, opened and closed with the gateway.

    Args:
        database: where to connect.
        size: how many connections at most.
        durable: whether a commit must be on disk; a count of the current minute need not.
    """

    def __init__(self, database: PostgresDatabase, size: int, *, durable: bool = True) -> None:
        self._dsn = database.dsn
        self._size = size
        self._durable = durable
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Connect once, to fail early."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=SILENCE,
            init=self._prepare,
            reset=_nothing,
            server_settings=ASKED,
        )

    @asynccontextmanager
    async def one(self) -> AsyncIterator["Connection"]:
        """Lend a connection.

        Raises:
            StorageFault: the server cannot be used just now.
        """
        if self._pool is None:
            raise RuntimeError("the connections are not open")
        try:
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            # Not the driver's own words: they quote rows, and rows hold contexts.
            code = getattr(error, "sqlstate", None)
            raise StorageFault(f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else "")) from None

    async def close(self) -> None:
        """Disconnect."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _prepare(self, connection: "Raw") -> None:
        # Identifiers are texts here; the driver would make objects of them.
        await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog", format="text")
        await connection.execute(DURABLE if self._durable else "SET synchronous_commit = off")


async def _nothing(_connection: "Raw") -> None:
    # The driver's own reset is a round trip, and would undo what `_prepare` set. Nothing of ours outlives its use.
    pass


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


class PostgresLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, 1)

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
        return outcomes

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()


class PostgresWindows:
    """Rate windows that several gateways share: one upsert a request (decisions §7)."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, RATE_CONNECTIONS, durable=False)

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full; by the server's clock."""
        async with self._connections.one() as connection:
            row = await connection.fetchrow(_COUNT, organization_id, scope, limit) if limit > 0 else None
            if row is not None:
                return Rate.at(row["moment"], row["minute"], limit, row["requests"], exceeded=False)
            moment = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        return Rate.at(moment, int(moment // WINDOW), limit, limit, exceeded=True)

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
    )


async def _answers(
    connection: "Connection", entries: Sequence[NewEntry]
) -> dict[tuple[Tenant, str], tuple[bytes, str]]:
    keys = [(*tenant_of(entry), entry.idempotency_key) for entry in entries if entry.idempotency_key]
    if not keys:
        return {}
    rows = await connection.fetch(_ANSWERS, *map(list, zip(*keys, strict=True)))
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


def _id(text: str) -> str | None:
    # What cannot be an identifier equals none; PostgreSQL would refuse the statement.
    return text if is_id(text) else None


_ORDINALS = {"key_digest": "$1", "agent_id": "$2", "action": "$3"}
_STANDING = re.sub(r":(\w+)", lambda match: _ORDINALS[match[1]], STANDING)

_STILL_PENDING = (
    "SELECT 1 FROM approvals WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp()"
)

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name"

_AGENTS = """
SELECT organization_id, environment, id FROM agents
WHERE id = ANY($1::text[]::uuid[]) AND deleted_at IS NULL
"""

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

_ANSWERS = """
SELECT k.organization_id, k.environment, k.key, k.answer, k.fingerprint
FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]) AS asked (organization_id, environment, key)
JOIN idempotency_keys k USING (organization_id, environment, key)
WHERE k.surface = 'log' AND k.expires_at > clock_timestamp()
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

#: No row comes back when the window is full. A clock that was set back does not open it again.
_COUNT = """
INSERT INTO rate_windows AS w (organization_id, scope, minute, requests)
VALUES ($1, $2, floor(extract(epoch FROM clock_timestamp()) / 60)::int, 1)
ON CONFLICT (organization_id, scope) DO UPDATE
SET minute = greatest(w.minute, excluded.minute),
    requests = CASE WHEN excluded.minute > w.minute THEN 1 ELSE w.requests + 1 END
WHERE excluded.minute > w.minute OR w.requests < $3
RETURNING minute, requests, extract(epoch FROM clock_timestamp())::float8 AS moment
"""
