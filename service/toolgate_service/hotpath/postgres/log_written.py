"""Writing a batch of log entries to PostgreSQL: entries, remembered answers, usage and counts in one statement."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolgate_service.counts.adding import added_by
from toolgate_service.hotpath.batch import REMEMBERED, Batch, tenant_of
from toolgate_service.ids import new_id
from toolgate_service.logs.entries import COLUMNS

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection


async def write(connection: "Connection", batch: Batch) -> None:
    """Write what a batch says, in its transaction."""
    if batch.entries:
        await connection.execute(_WRITE, *_columns(batch))
    if batch.mismatches:
        audits = [
            (
                new_id(),
                *tenant_of(entry),
                "log.idempotency_mismatch",
                entry.key_id,
                entry.address_seen,
                batch.known.now,
            )
            for entry in batch.mismatches
        ]
        await connection.executemany(_WRITE_AUDIT, audits)


def _columns(batch: Batch) -> Iterable[Sequence[Any]]:
    now = batch.known.now
    rows = [
        (stored.id, stored.created_at, entry.occurred_at, *entry.values()) for entry, stored in batch.entries
    ]
    yield from _turned(rows, len(_ENTRY))
    keys = [
        (*tenant_of(entry), "log", entry.idempotency_key, entry.fingerprint, answer, now, now + REMEMBERED)
        for entry, answer in batch.answers
    ]
    yield from _turned(keys, len(_KEY))
    tenants = sorted({tenant_of(entry) for entry, _ in batch.entries})
    usage = [(*tenant, batch.month, batch.known.used[tenant]) for tenant in tenants]
    yield from _turned(usage, len(_USAGE))
    yield from _turned(added_by(batch.entries), len(_COUNT))
    yield from _turned([(*tenant, grown) for tenant, grown in sorted(batch.grown.items())], len(_GROWN))


def _turned(rows: Sequence[Sequence[object]], width: int) -> Iterable[Sequence[object]]:
    return zip(*rows, strict=True) if rows else [()] * width


#: columns and their types
_ENTRY = {
    "id": "uuid", "created_at": "timestamptz", "occurred_at": "timestamptz",
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
    # Identifiers are sent as texts: the driver takes longer over objects.
    return ", ".join(
        f"${place}::text[]::uuid[]" if kind == "uuid" else f"${place}::{kind}[]"
        for place, kind in enumerate(columns.values(), first)
    )


def _insert(table: str, columns: Mapping[str, str], first: int) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({_unnested(columns, first)})"  # noqa: S608 - our own names


_FIRST_OF_KEY = 1 + len(_ENTRY)
_FIRST_OF_USAGE = _FIRST_OF_KEY + len(_KEY)
_FIRST_OF_COUNT = _FIRST_OF_USAGE + len(_USAGE)
_FIRST_OF_GROWN = _FIRST_OF_COUNT + len(_COUNT)

_WRITE = f"""
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
)
{_insert("log_entries", _ENTRY, 1)}
"""  # noqa: S608 - our own names

_WRITE_AUDIT = """
INSERT INTO audit_entries (id, organization_id, environment, kind, resource_id, ip_address, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
