"""Removing rows in batches so small that nobody notices: between two of them everybody else has a turn."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, tuple_
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.base import Table
from toolgate_service.storage.database import Database
from toolgate_service.storage.races import anew

#: does one batch in a write transaction of its own, and returns how many rows it changed
Work = Callable[[AsyncSession], Awaitable[int]]


async def in_batches(database: Database, batch: int, work: Work, *turns: str) -> int:
    """Repeat a piece of work until it changes fewer rows than a batch has, and return how many it changed."""
    total, loop, began = 0, asyncio.get_running_loop(), 0.0

    async def once() -> int:
        nonlocal began
        async with database.writing(*turns) as session:
            began = loop.time()
            return await work(session)

    while True:
        changed = await anew(once)
        total += changed
        if changed < batch:
            return total
        # As long as it took: at most half of the time that there is to write goes here.
        await asyncio.sleep(loop.time() - began)


async def delete_where(
    database: Database,
    batch: int,
    table: type[Table],
    *conditions: ColumnElement[bool],
    within: Sequence[ColumnElement[bool]] = (),
) -> int:
    """Delete a table's rows that meet conditions, and return how many.

    Args:
        database: where.
        batch: how many rows a transaction removes.
        table: whose.
        conditions: which.
        within: further conditions, by which a table in partitions is entered in few of them.
    """
    conditions += tuple(within)
    keys = [col(getattr(table, column.name)) for column in table.__table__.primary_key]  # type: ignore[attr-defined]  # of a table=True class
    # What somebody is writing just now is left to the next round: it may be about to be kept again, as a key that has
    # expired and is used anew, and two that remove never wait for each other.
    chosen = select(*keys).where(*conditions).limit(batch).with_for_update(skip_locked=True)
    key: Any = keys[0] if len(keys) == 1 else tuple_(*keys)

    async def work(session: AsyncSession) -> int:
        return (await session.exec(delete(table).where(key.in_(chosen), *within))).rowcount

    async with database.reading() as session:
        # Nobody's turn is taken for nothing.
        if (await session.exec(select(keys[0]).where(*conditions).limit(1))).first() is None:
            return 0
    return await in_batches(database, batch, work)
