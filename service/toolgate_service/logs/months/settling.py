"""Giving bounds to entries that have no month: to those of a large log of an earlier version, or of a year without upkeep.

They stand in the way of a new month, and are too many to be moved: their table itself becomes a part, of all the time that
they are from. The server reads it once to see that it is so, while everybody writes; only then, for some milliseconds,
one is alone with the log.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from toolgate_service.logs.months.catalogue import DEFAULT, PAST, bound, moment_of, month_of, parts_of
from toolgate_service.logs.months.making import attaching, hurried, make_part, name_of
from toolgate_service.storage.postgres_connection import DRIVER_FAULTS

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

logger = logging.getLogger("toolgate.gateway")

#: so often it is tried to be alone with the log, and seconds between two tries
TRIES = 60
PAUSE = 0.5
#: seconds that reading a very large table may take
READING = 6 * 3600.0

#: Agents come first, as in a writer's transaction. A key of theirs is changed when tables change their places.
_LOCK = "LOCK TABLE agents, log_entries IN ACCESS EXCLUSIVE MODE"
_HOMELESS = f"SELECT EXISTS (SELECT 1 FROM {DEFAULT} WHERE created_at < $1)"  # noqa: S608 - our own name
_NEWEST = f"SELECT max(created_at) FROM {DEFAULT}"  # noqa: S608 - our own name
_WITHOUT_END = "SET LOCAL statement_timeout = 0"
_VALIDATE = f"ALTER TABLE {DEFAULT} VALIDATE CONSTRAINT log_entries_bounds"
_FORGET = f"ALTER TABLE {DEFAULT} DROP CONSTRAINT IF EXISTS log_entries_bounds"


async def homeless_before(connection: "Connection", moment: datetime) -> bool:
    """Say whether there are entries without a month from before a moment."""
    found: bool = await connection.fetchval(_HOMELESS, moment)
    return found


async def settle(connection: "Connection") -> str:
    """Make entries that have no month a part of their own, and return its name.

    It goes to the end of the next month, that there is no haste, or to that of the newest entry: a clock may have been ahead.

    Raises:
        asyncpg.LockNotAvailableError: somebody reads the log without end; all is as it was.
    """
    parts = await parts_of(connection)
    begins = parts[-1].ends if parts else None
    async with connection.transaction():
        await connection.execute(_WITHOUT_END)
        newest = await connection.fetchval(_NEWEST, timeout=READING)
    ends = month_of(max(month_of(await moment_of(connection), 1), newest), 1)
    name = PAST if begins is None else name_of(begins)
    lower = "" if begins is None else f"created_at >= {bound(begins)} AND "
    async with hurried(connection):
        await connection.execute(_FORGET)
        await connection.execute(
            f"ALTER TABLE {DEFAULT} ADD CONSTRAINT log_entries_bounds "
            f"CHECK ({lower}created_at < {bound(ends)}) NOT VALID"
        )
    try:
        async with hurried(connection):
            await connection.execute(_WITHOUT_END)
            await connection.execute(_VALIDATE, timeout=READING)
        await _change_places(connection, name, begins, ends)
    except BaseException:
        # Left behind, it would refuse whatever is written after its end.
        with suppress(*DRIVER_FAULTS):
            async with hurried(connection):
                await connection.execute(_FORGET)
        raise
    logger.info("the log's entries until %s are in a part of their own, %s", f"{ends:%Y-%m}", name)
    return name


async def _change_places(
    connection: "Connection", name: str, begins: datetime | None, ends: datetime
) -> None:
    for left in reversed(range(TRIES)):
        try:
            async with hurried(connection):
                await connection.execute(_LOCK)
                await connection.execute(f"ALTER TABLE log_entries DETACH PARTITION {DEFAULT}")
                await connection.execute(f"ALTER TABLE {DEFAULT} RENAME TO {name}")
                await connection.execute(attaching(name, begins, ends))
                await connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT log_entries_bounds")
                # The first month after it, that there is one whenever this one ends.
                await make_part(connection, ends, month_of(ends, 1))
                await connection.execute(f"CREATE TABLE {DEFAULT} PARTITION OF log_entries DEFAULT")
        except asyncpg.LockNotAvailableError:
            if not left:
                raise
            await asyncio.sleep(PAUSE)
        else:
            return
