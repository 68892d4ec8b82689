"""Leaves of the transparency log for log entries, and for audit events that are stored together with log entries."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from toolgate_service.audit.models import audit_leaf
from toolgate_service.core.ids import new_id
from toolgate_service.logs.schemas import NewEntry, Stored
from toolgate_service.transparency.chunks import Chunk, build_chunks
from toolgate_service.transparency.leaves import (
    LOG_ENTRY,
    Leaf,
    build_leaf,
    context_digest,
    new_salt,
    reference,
    row_digest,
)

if TYPE_CHECKING:
    from toolgate_service.logs.writer import Batch


def entry_chunks(entries: Iterable[tuple[NewEntry, Stored]]) -> Sequence[Chunk]:
    """Return the transparency log's leaves for new log entries, grouped into chunks of one environment each."""
    return build_chunks(_entry_leaf(entry, stored) for entry, stored in entries)


def _entry_leaf(entry: NewEntry, stored: Stored) -> Leaf:
    values = (
        entry.action,
        entry.address_seen,
        entry.agent_id,
        entry.approval_id,
        entry.call_id,
        stored.created_at,
        entry.decision_id,
        stored.id,
        entry.ip_address,
        entry.key_id,
        entry.occurred_at,
        entry.run_id,
        entry.status,
    )
    return build_leaf(
        LOG_ENTRY,
        entry.organization_id,
        entry.environment,
        stored.created_at,
        id=stored.id,
        agent=entry.agent_id,
        action=entry.action,
        outcome=entry.status,
        decision=reference(entry.decision_id),
        approval=reference(entry.approval_id),
        context=None if entry.context is None else context_digest(entry.context.encode(), stored.salt),
        digest=row_digest(LOG_ENTRY, values, stored.salt),
    )


class AuditRow(NamedTuple):
    """Audit event that a request with an API key caused. The fields have the order of the columns in the INSERTs."""

    id: str
    organization_id: str
    environment: str
    kind: str
    resource_id: str
    ip_address: str | None
    salt: str
    created_at: datetime

    @property
    def user_id(self) -> None:
        """None, because an API key caused the event."""

    @property
    def changes(self) -> None:
        """None, because the event changes nothing."""


class MismatchEvent(NamedTuple):
    """Audit event about an idempotency key that was used again with different content, and the leaf of the event."""

    row: AuditRow
    chunks: Sequence[Chunk]


def mismatch_events(batch: "Batch") -> Iterator[MismatchEvent]:
    """Yield an audit event for each entry of a batch that uses an idempotency key again with different content."""
    for entry in batch.mismatches:
        row = AuditRow(
            new_id(),
            entry.organization_id,
            entry.environment,
            "log.idempotency_mismatch",
            entry.key_id,
            entry.address_seen,
            new_salt(),
            batch.state.now,
        )
        yield MismatchEvent(row, build_chunks([audit_leaf(row)]))
