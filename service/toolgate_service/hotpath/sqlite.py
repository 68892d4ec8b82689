"""The busiest road's two ways to an SQLite file: a reader on the event loop's thread, a writer on its own.

A thread hop costs ten times what the read does, so the reader has none. It always fetches every row: an open cursor
would keep an old snapshot, and with it a revoked permission.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from toolgate_service.clock import utcnow, wire
from toolgate_service.hotpath.standing import STANDING, Standing
from toolgate_service.ids import new_id
from toolgate_service.logs.entries import NewEntry, Outcome, Refused, Replayed, Stored, entry_answer
from toolgate_service.plans import UNLIMITED
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.storage.sqlite import PRAGMAS

#: how long the answer to an idempotency key is remembered (decisions §6)
REMEMBERED = timedelta(hours=24)


STILL_PENDING = "SELECT 1 FROM approvals WHERE id = ? AND status = 'pending' AND expires_at > ?"


class SqliteReader:
    """Reads standings over a read-only connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect; the schema must exist."""
        uri = f"{self._path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=16)

    async def standing(self, key_digest: str, agent_id: str, action: str) -> Standing | None:
        """Return what is true at this moment; None for a key that is unknown or revoked."""
        if self._connection is None:
            raise RuntimeError("the reader is not open")
        values = {"key_digest": key_digest, "agent_id": agent_id, "action": action}
        rows = self._connection.execute(STANDING, values).fetchall()
        return Standing._make(rows[0]) if rows else None

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""
        if self._connection is None:
            raise RuntimeError("the reader is not open")
        values = (approval_id, wire(utcnow()))
        return bool(self._connection.execute(STILL_PENDING, values).fetchall())

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect; the schema must exist."""
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            self._connection.execute(pragma)

    def commit(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Store entries that are on disk when this returns, one outcome each, in order.

        One bad entry fails alone: its insert is the first thing it does, and a failed statement leaves no trace.

        Raises:
            sqlite3.Error: nothing of the batch is acknowledged.
        """
        if self._connection is None:
            raise RuntimeError("the store is not open")
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            batch = _Batch(connection, utcnow())
            outcomes = [batch.add(entry) for entry in entries]
            batch.finish()
            connection.execute("COMMIT")
        except BaseException:
            # After some disk errors SQLite has rolled back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Batch:
    """The work of one transaction."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._month = now.strftime("%Y-%m")
        #: (organization, environment) → entries of this month, this transaction's included
        self._used: dict[tuple[str, str], int] = {}

    def add(self, entry: NewEntry) -> Outcome:
        """Store one entry, repeat an earlier answer, or refuse."""
        if entry.idempotency_key is not None:
            remembered = self._remembered(entry)
            if remembered is not None:
                return remembered
        used, limit = self._usage(entry), entry.max_logs_per_month
        if entry.environment == PRODUCTION and limit != UNLIMITED and used >= limit:
            return (
                Refused.plan_limit(used, limit, entry.plan)
                if self._exists(entry)
                else Refused.agent_not_found()
            )
        stored = Stored.at(self._now)
        values = entry.columns() | {"id": stored.id, "created_at": wire(stored.created_at)}
        if self._connection.execute(_INSERT_ENTRY, values).rowcount == 0:
            return Refused.agent_not_found()
        self._used[entry.organization_id, entry.environment] = used + 1
        answer = entry_answer(entry, stored)
        if entry.idempotency_key is not None:
            self._remember(entry, answer)
        return stored.with_body(answer)

    def finish(self) -> None:
        """Write the month's counts."""
        for (organization_id, environment), entries in self._used.items():
            self._connection.execute(_WRITE_USAGE, (organization_id, environment, self._month, entries))

    def _exists(self, entry: NewEntry) -> bool:
        return bool(self._connection.execute(_FIND_AGENT, entry.columns()).fetchall())

    def _usage(self, entry: NewEntry) -> int:
        key = (entry.organization_id, entry.environment)
        if key not in self._used:
            rows = self._connection.execute(_READ_USAGE, (*key, self._month)).fetchall()
            self._used[key] = rows[0][0] if rows else 0
        return self._used[key]

    def _remembered(self, entry: NewEntry) -> Replayed | None:
        key = (entry.organization_id, entry.environment, entry.idempotency_key, wire(self._now))
        rows = self._connection.execute(_READ_KEY, key).fetchall()
        if not rows:
            return None
        answer, fingerprint = rows[0]
        mismatch = fingerprint != entry.fingerprint
        if mismatch:
            self._audit_mismatch(entry)
        return Replayed(answer, mismatch=mismatch)

    def _audit_mismatch(self, entry: NewEntry) -> None:
        values = (
            new_id(),
            entry.organization_id,
            entry.environment,
            "log.idempotency_mismatch",
            entry.key_id,
        )
        self._connection.execute(_WRITE_AUDIT, (*values, entry.address_seen, wire(self._now)))

    def _remember(self, entry: NewEntry, answer: bytes) -> None:
        until = wire(self._now + REMEMBERED)
        key = (entry.organization_id, entry.environment, entry.idempotency_key)
        self._connection.execute(_WRITE_KEY, (*key, entry.fingerprint, answer, wire(self._now), until))


_INSERT_ENTRY = """
INSERT INTO log_entries (id, organization_id, environment, agent_id, action, status, context, ip_address, address_seen,
                         created_at, occurred_at, decision_id, approval_id, call_id, run_id, key_id)
SELECT :id, :organization_id, :environment, :agent_id, :action, :status, :context, :ip_address, :address_seen,
       :created_at, :occurred_at, :decision_id, :approval_id, :call_id, :run_id, :key_id
FROM agents
WHERE id = :agent_id AND organization_id = :organization_id AND environment = :environment AND deleted_at IS NULL
"""

_FIND_AGENT = """
SELECT 1 FROM agents
WHERE id = :agent_id AND organization_id = :organization_id AND environment = :environment AND deleted_at IS NULL
"""

_WRITE_AUDIT = """
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

_READ_USAGE = """
SELECT log_entries FROM monthly_usage WHERE organization_id = ? AND environment = ? AND month = ?
"""

_WRITE_USAGE = """
INSERT INTO monthly_usage (organization_id, environment, month, log_entries) VALUES (?, ?, ?, ?)
ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = excluded.log_entries
"""

_READ_KEY = """
SELECT answer, fingerprint FROM idempotency_keys
WHERE organization_id = ? AND environment = ? AND surface = 'log' AND key = ? AND expires_at > ?
"""

_WRITE_KEY = """
INSERT INTO idempotency_keys (organization_id, environment, surface, key, fingerprint, answer, created_at, expires_at)
VALUES (?, ?, 'log', ?, ?, ?, ?, ?)
ON CONFLICT (organization_id, environment, surface, key)
DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer,
              created_at = excluded.created_at, expires_at = excluded.expires_at
"""
