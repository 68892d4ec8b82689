"""Committing log entries to an SQLite file, on a thread of its own."""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from toolgate_service.clock import utcnow, wire
from toolgate_service.counts.adding import added_by
from toolgate_service.hotpath.batch import REMEMBERED, Batch, Known, month_of, tenant_of
from toolgate_service.hotpath.news import LISTENS
from toolgate_service.hotpath.sqlite.news import tell
from toolgate_service.hotpath.sqlite.reader import CACHE
from toolgate_service.ids import new_id
from toolgate_service.logs.entries import COLUMNS, NewEntry, Outcome, Stored
from toolgate_service.storage.base import TEST
from toolgate_service.storage.sqlite import PRAGMAS, SqliteDatabase
from toolgate_service.webhooks.outbox import wake


class SqliteLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._path = database.path
        self._database = database
        self._write_turn = database.write_turn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-writer")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connect)

    def turn(self) -> asyncio.Lock:
        """Wait for this process's turn to write."""
        return self._write_turn

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> list[Outcome]:  # noqa: ARG002 - a file has one writer
        """Make entries durable and return one outcome each, in order.

        Raises:
            sqlite3.Error: nothing of the batch is acknowledged.
        """
        loop = asyncio.get_running_loop()
        outcomes, told = await loop.run_in_executor(self._thread, self._commit, entries)
        if told:
            wake(self._database)
        return outcomes

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown()

    def _connect(self) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        for pragma in (*PRAGMAS, CACHE):
            self._connection.execute(pragma)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _commit(self, entries: Sequence[NewEntry]) -> tuple[list[Outcome], bool]:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the store is not open")
        connection.execute("BEGIN IMMEDIATE")
        try:
            batch = Batch(_known(connection, entries))
            outcomes = batch.decide(entries)
            _write(connection, batch)
            told = tell(connection, batch)
            connection.execute("COMMIT")
        except BaseException:
            # After some disk errors SQLite has rolled back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes, told


def _known(connection: sqlite3.Connection, entries: Sequence[NewEntry]) -> Known:
    now = utcnow()
    moment = wire(now)
    agents = {(tenant_of(entry), entry.agent_id) for entry in entries}
    keys = {(tenant_of(entry), entry.idempotency_key) for entry in entries if entry.idempotency_key}
    months = {
        tenant: connection.execute(_READ_USAGE, (*tenant, month_of(now))).fetchone()
        for tenant in {tenant for tenant, _ in agents}
    }
    return Known(
        now,
        frozenset(
            (tenant, agent_id)
            for tenant, agent_id in agents
            if connection.execute(_FIND_AGENT, (agent_id, *tenant)).fetchall()
        ),
        {tenant: used for tenant, (used, _) in months.items()},
        {
            tenant: held
            for tenant in months
            if tenant[1] == TEST
            for (held,) in connection.execute(_READ_BYTES, tenant).fetchall()
        },
        {
            (tenant, key): (answer, fingerprint)
            for tenant, key in keys
            for answer, fingerprint in connection.execute(_READ_KEY, (*tenant, key, moment)).fetchall()
        },
        frozenset(tenant for tenant, (_, listens) in months.items() if listens),
    )


def _write(connection: sqlite3.Connection, batch: Batch) -> None:
    now, until = wire(batch.known.now), wire(batch.known.now + REMEMBERED)
    connection.executemany(_INSERT_ENTRY, _rows(batch.entries))
    connection.executemany(_ADD_COUNTS, added_by(batch.entries))
    connection.executemany(
        _WRITE_KEY,
        [
            (
                *tenant_of(entry),
                entry.idempotency_key,
                entry.fingerprint,
                answer,
                now,
                until,
            )
            for entry, answer in batch.answers
        ],
    )
    connection.executemany(
        _WRITE_AUDIT,
        [
            (
                new_id(),
                *tenant_of(entry),
                "log.idempotency_mismatch",
                entry.key_id,
                entry.address_seen,
                now,
            )
            for entry in batch.mismatches
        ],
    )
    for tenant in {tenant_of(entry) for entry, _ in batch.entries}:
        connection.execute(_WRITE_USAGE, (*tenant, batch.month, batch.known.used[tenant]))
    for tenant, grown in batch.grown.items():
        connection.execute(_WRITE_BYTES, (grown, *tenant))


def _rows(entries: Iterable[tuple[NewEntry, Stored]]) -> list[tuple[str | None, ...]]:
    return [
        (
            stored.id,
            wire(stored.created_at),
            wire(entry.occurred_at) if entry.occurred_at else None,
            *entry.values(),
        )
        for entry, stored in entries
    ]


_FIND_AGENT = """
SELECT 1 FROM agents WHERE id = ? AND organization_id = ? AND environment = ? AND deleted_at IS NULL
"""

_READ_USAGE = f"""
SELECT coalesce((
    SELECT log_entries FROM monthly_usage WHERE organization_id = ?1 AND environment = ?2 AND month = ?3
), 0), EXISTS (
    SELECT 1 FROM webhooks w WHERE w.organization_id = ?1 AND w.environment = ?2 AND {LISTENS}
)
"""  # noqa: S608 - our own words

_READ_BYTES = "SELECT log_bytes FROM environments WHERE organization_id = ? AND name = ?"

_WRITE_BYTES = "UPDATE environments SET log_bytes = log_bytes + ? WHERE organization_id = ? AND name = ?"

_READ_KEY = """
SELECT answer, fingerprint FROM idempotency_keys
WHERE organization_id = ? AND environment = ? AND surface = 'log' AND key = ? AND expires_at > ?
"""

_INSERT_ENTRY = (
    f"INSERT INTO log_entries (id, created_at, occurred_at, {', '.join(COLUMNS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join('?' * (3 + len(COLUMNS)))})"
)

_WRITE_KEY = """
INSERT INTO idempotency_keys (organization_id, environment, surface, key, fingerprint, answer, created_at, expires_at)
VALUES (?, ?, 'log', ?, ?, ?, ?, ?)
ON CONFLICT (organization_id, environment, surface, key)
DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer,
              created_at = excluded.created_at, expires_at = excluded.expires_at
"""

_WRITE_AUDIT = """
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

_WRITE_USAGE = """
INSERT INTO monthly_usage (organization_id, environment, month, log_entries) VALUES (?, ?, ?, ?)
ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = excluded.log_entries
"""

_ADD_COUNTS = """
INSERT INTO log_counts (organization_id, environment, subject, span, starts, name, succeeded, failed, blocked, held)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (organization_id, environment, subject, span, starts, name)
DO UPDATE SET succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
              blocked = blocked + excluded.blocked, held = held + excluded.held
"""
