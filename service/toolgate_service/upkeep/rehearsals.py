"""Removing test entries, and taking their bytes off what the test environment holds (decisions §8)."""

from datetime import datetime

from sqlalchemy import case, tuple_
from sqlmodel import col, delete, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.logs.entries import entry_bytes
from toolgate_service.logs.models import LogEntry
from toolgate_service.organizations.models import Environment
from toolgate_service.storage.base import TEST
from toolgate_service.storage.database import Database
from toolgate_service.storage.pruning import ForPartitions
from toolgate_service.upkeep.batches import in_batches


async def prune_test_entries(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete an organization's test entries from before a moment and return how many."""
    of = (LogEntry.organization_id == organization_id, LogEntry.environment == TEST)
    place = tuple_(col(LogEntry.created_at), col(LogEntry.id))
    old = (
        select(LogEntry)
        .where(*of, LogEntry.created_at < before)
        .order_by(col(LogEntry.created_at), col(LogEntry.id))
    )

    async def work(session: AsyncSession) -> int:
        # Locked, and none that another removes: what two took off the bytes held would be taken off twice.
        entries = (await session.exec(old.limit(batch).with_for_update(skip_locked=True))).all()
        if not entries:
            return 0
        places = [(entry.created_at, entry.id) for entry in entries]
        made = col(LogEntry.created_at)
        near = ForPartitions(made.between(places[0][0], places[-1][0]))
        await session.exec(delete(LogEntry).where(*of, near, place.in_(places)))  # type: ignore[arg-type]  # SQLModel's columns
        size = sum(entry_bytes(entry.action, entry.context) for entry in entries)
        held = col(Environment.log_bytes)
        await session.exec(
            update(Environment)
            .where(col(Environment.organization_id) == organization_id, col(Environment.name) == TEST)
            .values(log_bytes=case((held > size, held - size), else_=0))
        )
        return len(entries)

    async with database.reading() as session:
        if (await session.exec(old.limit(1))).first() is None:
            return 0
    return await in_batches(database, batch, work)
