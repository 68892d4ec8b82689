"""Log store for SQLite, which commits batches of log entries. All its statements run in one dedicated thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from toolgate_service.auth_store.sqlite import CACHE
from toolgate_service.budgets.settlement import (
    RESERVATION_COLUMNS,
    TOTAL_COLUMNS,
    ReservationRow,
    TotalRow,
    settle_reservations,
)
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.db.models import TEST
from toolgate_service.db.sqlite import PRAGMAS, SqliteDatabase
from toolgate_service.logs.counts import count_rows
from toolgate_service.logs.events import STREAMS_ENTRIES, agents_in_events, build_events, tenants_with_events
from toolgate_service.logs.leaves import entry_chunks, mismatch_events
from toolgate_service.logs.models import KEY_LIFETIME
from toolgate_service.logs.schemas import COLUMNS, NewEntry, Outcome, Stored
from toolgate_service.logs.writer import Batch, BatchState, month_of, tenant_of
from toolgate_service.transparency.statements import write_chunks
from toolgate_service.webhooks.events import wake_worker

T = TypeVar("T")


def write_events(connection: sqlite3.Connection, batch: Batch) -> bool:
    """Write the webhook events of a batch, in the transaction of the batch. Return True if there were events."""
    tenants = tenants_with_events(batch)
    if not tenants:
        return False
    names = {
        agent_id: connection.execute("SELECT name FROM agents WHERE id = ?", (agent_id,)).fetchone()[0]
        for agent_id in agents_in_events(batch, tenants)
    }
    webhooks = {tenant: connection.execute(_WEBHOOKS, tenant).fetchall() for tenant in tenants}
    events, deliveries = build_events(batch, webhooks, names)
    connection.executemany(_EVENT, [(*row[:-1], wire(row.created_at)) for row in events])
    connection.executemany(_DELIVERY, [(*row[:-1], wire(row.moment), wire(row.moment)) for row in deliveries])
    return bool(events)


_WEBHOOKS = "SELECT id, events FROM webhooks WHERE organization_id = ? AND environment = ? AND is_active"

_EVENT = """
INSERT INTO events (id, organization_id, environment, kind, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)
"""

_DELIVERY = """
INSERT INTO deliveries (id, organization_id, environment, event_id, webhook_id, status, attempts, next_attempt_at,
                        created_at)
VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?)
"""


def settle_budgets(connection: sqlite3.Connection, batch: Batch) -> None:
    """Settle or release the budget reservations to which the log entries refer, in the transaction of the batch."""
    entries = batch.settling()
    decisions = dict.fromkeys(entry.decision_id for entry in entries)
    rows = [
        row for decision in decisions for row in connection.execute(_RESERVATIONS, (decision,)).fetchall()
    ]
    if not rows:
        return
    reservations = [ReservationRow._make(row) for row in rows]
    totals = [
        TotalRow._make(row)
        for total in dict.fromkeys(one.total_id for one in reservations)
        for row in connection.execute(_TOTAL, (total,)).fetchall()
    ]
    settlement = settle_reservations(entries, reservations, totals)
    now = wire(batch.state.now)
    connection.executemany(
        _SETTLE, [(state, amount, now, reservation) for state, amount, reservation in settlement.reservations]
    )
    connection.executemany(_WRITE_TOTAL, settlement.totals)


_RESERVATIONS = f"""
SELECT {RESERVATION_COLUMNS} FROM budget_reservations r LEFT JOIN budgets b ON b.id = r.budget_id
WHERE r.decision_id = ?
"""  # noqa: S608 - the inserted names are constants

_TOTAL = f"SELECT {TOTAL_COLUMNS} FROM budget_totals WHERE id = ?"  # noqa: S608 - the inserted names are constants

_SETTLE = "UPDATE budget_reservations SET state = ?, settled_amount = ?, settled_at = ? WHERE id = ?"

_WRITE_TOTAL = "UPDATE budget_totals SET settled = ?, reserved = ? WHERE id = ?"


class SqliteLogStore:
    """Log store for SQLite. It commits each batch of log entries in one transaction, with one sync to disk."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._path = database.path
        self._database = database
        self._write_lock = database.write_lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-writer")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect to the database, whose schema must already exist."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connect)

    def write_access(self) -> asyncio.Lock:
        """Return the write lock of this process, which the caller must hold while it commits."""
        return self._write_lock

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> list[Outcome]:  # noqa: ARG002 - an SQLite file has only one writer
        """Commit log entries, and return one outcome for each entry, in the same order. SQLite ignores `wait`.

        Raises:
            sqlite3.Error: No entry of the batch was stored.
        """
        outcomes, has_events = await self.run(lambda connection: _decide_and_write(connection, entries))
        if has_events:
            wake_worker(self._database)
        return outcomes

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function in the thread of the store, in one write transaction of its connection.

        The caller must hold the lock that `write_access` returns.

        Raises:
            sqlite3.Error: Nothing was stored.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)

    def usage(self) -> None:
        """Return None, because this store has no connection pool."""

    async def close(self) -> None:
        """Close the connection to the database, and stop the thread."""
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

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the store is not open")
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            # Check whether a transaction is active: after some disk errors, SQLite has already rolled it back, and
            # ROLLBACK would fail.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result


def _decide_and_write(
    connection: sqlite3.Connection, entries: Sequence[NewEntry]
) -> tuple[list[Outcome], bool]:
    batch = Batch(_load_state(connection, entries))
    outcomes = batch.decide(entries)
    settle_budgets(connection, batch)
    _write(connection, batch)
    return outcomes, write_events(connection, batch)


def _load_state(connection: sqlite3.Connection, entries: Sequence[NewEntry]) -> BatchState:
    now = utcnow()
    moment = wire(now)
    agents = {(tenant_of(entry), entry.agent_id) for entry in entries}
    keys = {(tenant_of(entry), entry.idempotency_key) for entry in entries if entry.idempotency_key}
    months = {
        tenant: connection.execute(_READ_USAGE, (*tenant, month_of(now))).fetchone()
        for tenant in {tenant for tenant, _ in agents}
    }
    return BatchState(
        now,
        frozenset(
            (tenant, agent_id)
            for tenant, agent_id in agents
            if connection.execute(_FIND_AGENT, (agent_id, *tenant)).fetchall()
        ),
        {tenant: used for tenant, (used, _, _) in months.items()},
        {
            tenant: size
            for tenant in months
            if tenant[1] == TEST
            for (size,) in connection.execute(_READ_BYTES, tenant).fetchall()
        },
        {
            (tenant, key): (answer, fingerprint)
            for tenant, key in keys
            for answer, fingerprint in connection.execute(_READ_KEY, (*tenant, key, moment)).fetchall()
        },
        frozenset(tenant for tenant, (_, is_streaming, _) in months.items() if is_streaming),
        frozenset(tenant for tenant, (_, _, has_budgets) in months.items() if has_budgets),
    )


def _write(connection: sqlite3.Connection, batch: Batch) -> None:
    now, until = wire(batch.state.now), wire(batch.state.now + KEY_LIFETIME)
    connection.executemany(_INSERT_ENTRY, _rows(batch.entries))
    write_chunks(connection, entry_chunks(batch.entries))
    connection.executemany(_ADD_COUNTS, count_rows(batch.entries))
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
    for event in mismatch_events(batch):
        connection.execute(_WRITE_AUDIT, (*event.row[:-1], wire(event.row.created_at)))
        write_chunks(connection, event.chunks)
    for tenant in {tenant_of(entry) for entry, _ in batch.entries}:
        connection.execute(_WRITE_USAGE, (*tenant, batch.month, batch.state.used[tenant]))
    for tenant, added in batch.added_bytes.items():
        connection.execute(_WRITE_BYTES, (added, *tenant))


def _rows(entries: Iterable[tuple[NewEntry, Stored]]) -> list[tuple[str | None, ...]]:
    return [
        (
            stored.id,
            wire(stored.created_at),
            wire(entry.occurred_at) if entry.occurred_at else None,
            stored.salt,
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
    SELECT 1 FROM webhooks w WHERE w.organization_id = ?1 AND w.environment = ?2 AND {STREAMS_ENTRIES}
), EXISTS (
    SELECT 1 FROM budgets b WHERE b.organization_id = ?1 AND b.environment = ?2
)
"""  # noqa: S608 - the inserted texts are constants

_READ_BYTES = "SELECT log_bytes FROM environments WHERE organization_id = ? AND name = ?"

_WRITE_BYTES = "UPDATE environments SET log_bytes = log_bytes + ? WHERE organization_id = ? AND name = ?"

_READ_KEY = """
SELECT answer, fingerprint FROM idempotency_keys
WHERE organization_id = ? AND environment = ? AND surface = 'log' AND key = ? AND expires_at > ?
"""

_INSERT_ENTRY = (
    f"INSERT INTO log_entries (id, created_at, occurred_at, salt, {', '.join(COLUMNS)}) "  # noqa: S608 - the inserted names are constants
    f"VALUES ({', '.join('?' * (4 + len(COLUMNS)))})"
)

_WRITE_KEY = """
INSERT INTO idempotency_keys (organization_id, environment, surface, key, fingerprint, answer, created_at, expires_at)
VALUES (?, ?, 'log', ?, ?, ?, ?, ?)
ON CONFLICT (organization_id, environment, surface, key)
DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer,
              created_at = excluded.created_at, expires_at = excluded.expires_at
"""

_WRITE_AUDIT = """
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, salt, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
