"""Changes and deletions of many rows in small transactions, so that other writers never wait long."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, tuple_
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.db.database import Database
from toolgate_service.db.models import Table
from toolgate_service.db.retry import with_retry

#: Function that changes one batch of rows in the session's write transaction, and returns the number of changed rows.
Work = Callable[[AsyncSession], Awaitable[int]]


async def in_batches(database: Database, batch: int, work: Work, *locks: str) -> int:
    """Call `work` repeatedly, each time in a new transaction, until it changes fewer than `batch` rows.

    `locks` are the names of the database locks that each transaction holds.

    Returns:
        Total number of changed rows.
    """
    total, loop, began = 0, asyncio.get_running_loop(), 0.0

    async def once() -> int:
        nonlocal began
        async with database.writing(*locks) as session:
            began = loop.time()
            return await work(session)

    while True:
        changed = await with_retry(once)
        total += changed
        if changed < batch:
            return total
        # Pause for as long as the batch took, so that this job holds the write lock for at most half of the time.
        await asyncio.sleep(loop.time() - began)


async def delete_where(
    database: Database,
    batch: int,
    table: type[Table],
    *conditions: ColumnElement[bool],
    within: Sequence[ColumnElement[bool]] = (),
) -> int:
    """Delete all rows of a table that meet the conditions, and return their number.

    Each transaction deletes at most `batch` rows. `within` contains further conditions, which restrict the search to
    some partitions of a partitioned table.
    """
    conditions += tuple(within)
    keys = [col(getattr(table, column.name)) for column in table.__table__.primary_key]  # type: ignore[attr-defined]  # mypy does not know it
    # Skip rows that another transaction has locked, because that transaction may renew them, for example an expired
    # idempotency key. If they are still expired at the next run of the maintenance job, that run deletes them. Two
    # gateways that delete rows therefore never wait for each other.
    chosen = select(*keys).where(*conditions).limit(batch).with_for_update(skip_locked=True)
    key: Any = keys[0] if len(keys) == 1 else tuple_(*keys)

    async def work(session: AsyncSession) -> int:
        return (await session.exec(delete(table).where(key.in_(chosen), *within))).rowcount

    async with database.reading() as session:
        # Start a write transaction only if there are rows to delete, because this read is cheaper than a write
        # transaction.
        if (await session.exec(select(keys[0]).where(*conditions).limit(1))).first() is None:
            return 0
    return await in_batches(database, batch, work)
