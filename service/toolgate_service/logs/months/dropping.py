"""Dropping months of the log of which nobody keeps anything: a table goes at once, however much it holds."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from toolgate_service.logs.months.catalogue import PAST, Part, bound, parts_of
from toolgate_service.logs.months.making import alone, hurried
from toolgate_service.plans import UNLIMITED, longest
from toolgate_service.storage.postgres import PostgresDatabase

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

#: says for how many days entries are kept, -1 for ever: by a plan, since when, and how long the plan before kept them
Kept: TypeAlias = Callable[[str, datetime | None, int | None], int]

#: entries that are counted before they go; of more, the server's own estimate is told
COUNTED = 1_000_000
#: so often it is tried to be alone with the log, and seconds between two tries
TRIES = 10
PAUSE = 0.5

#: As few rows as there are plans: of those with the same, whoever changed last keeps most.
_RETENTIONS = """
SELECT plan, max(plan_changed_at), retention_days_before FROM organizations GROUP BY plan, retention_days_before
"""
_LOCK = "LOCK TABLE log_entries IN ACCESS EXCLUSIVE MODE"


async def drop_months(database: PostgresDatabase, moment: datetime, kept: Kept, test: int) -> int:
    """Drop the oldest months while nobody keeps anything of them, and return how many entries they had.

    A month of which all entries were deleted goes too. Entries of the test environment must have been, if they are no
    longer kept: their bytes are counted.

    Args:
        database: where.
        moment: the present one.
        kept: says how long an organization's production entries are kept.
        test: for how many days test entries are kept.

    Raises:
        StorageFault: the server cannot be used, or others hold the log; the next round tries again.
    """
    async with alone(database) as connection:
        if connection is None:
            return 0
        over = await _over(connection, moment, kept, test)
        rows = sum([await _rows_of(connection, part) for part in over])
        if not rows and [part.name for part in over] in ([], [PAST]):
            return 0
        for left in reversed(range(TRIES)):
            try:
                async with hurried(connection):
                    await _drop(connection, over, moment, kept, test)
            except asyncpg.LockNotAvailableError:
                if not left:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                break
        return rows


async def _drop(
    connection: "Connection", over: Sequence[Part], moment: datetime, kept: Kept, test: int
) -> None:
    for part in over:
        # Nothing comes in meanwhile, copied from elsewhere for instance; and that it is empty is seen before all wait.
        await connection.execute(f"LOCK TABLE {part.name} IN SHARE MODE")
    # Again: since it was counted an organization may have got a plan that keeps more.
    names = [part.name for part in await _over(connection, moment, kept, test)]
    dropped = [part for part in over if part.name in names]
    if not dropped:
        return
    await connection.execute(_LOCK)
    for part in dropped:
        await connection.execute(f"DROP TABLE {part.name}")
    # Whatever is copied into the log from before its first month has its place, and is in no new month's way.
    await connection.execute(
        f"CREATE TABLE {PAST} PARTITION OF log_entries FOR VALUES FROM (MINVALUE) TO ({bound(dropped[-1].ends)})"
    )


async def _over(connection: "Connection", moment: datetime, kept: Kept, test: int) -> Sequence[Part]:
    """Return the oldest parts, one after another, of which nobody keeps anything."""
    days = longest(test, *(kept(*row) for row in await connection.fetch(_RETENTIONS)))
    ended = takewhile(
        # The newest stays: by it one knows which months there are.
        lambda part: part.ends <= moment - timedelta(days=test),
        (await parts_of(connection))[:-1],
    )
    over = []
    for part in ended:
        expired = days != UNLIMITED and part.ends <= moment - timedelta(days=days)
        if not expired and await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {part.name})"):  # noqa: S608 - our own name
            break
        over.append(part)
    return over


async def _rows_of(connection: "Connection", part: Part) -> int:
    if part.rows >= COUNTED:
        return part.rows
    rows: int = await connection.fetchval(f"SELECT count(*) FROM {part.name}")  # noqa: S608 - our own name
    return rows
