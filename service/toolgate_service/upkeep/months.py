"""The months in which PostgreSQL keeps the log: SQLite has none."""

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from toolgate_service.errors import StorageFault
from toolgate_service.storage.database import Database
from toolgate_service.storage.sqlite import SqliteDatabase
from toolgate_service.upkeep.heartbeat import steady_from

if TYPE_CHECKING:
    from toolgate_service.logs.months.dropping import Kept

logger = logging.getLogger("toolgate.gateway")


async def make_months(database: Database) -> None:
    """Make the next months of the log, where they are missing; not by a clock that has just jumped."""
    if isinstance(database, SqliteDatabase):
        return
    moment, trusted = await steady_from(database)
    if trusted > moment:
        return
    # Looked up late: without PostgreSQL its driver need not be there.
    from toolgate_service.logs.months import ahead
    from toolgate_service.storage.postgres import PostgresDatabase

    if isinstance(database, PostgresDatabase):
        try:
            made = await ahead.make_months(database)
        except StorageFault as fault:
            # Others have the log, or the gateway's user does not own it. No entry waits for its month.
            logger.warning(
                "months of the log are not made in this round: %s; entries without a month are kept all the same",
                fault,
            )
            return
        if made:
            logger.info("made months of the log: %s", ", ".join(made))


async def drop_months(database: Database, moment: datetime, kept: "Kept", test: int) -> int:
    """Drop the months of the log of which nobody keeps anything, and return how many entries they had.

    Args:
        database: where.
        moment: the present one.
        kept: says how long an organization's production entries are kept.
        test: for how many days test entries are kept.
    """
    if isinstance(database, SqliteDatabase):
        return 0
    from toolgate_service.logs.months import dropping
    from toolgate_service.storage.postgres import PostgresDatabase

    if not isinstance(database, PostgresDatabase):
        return 0
    try:
        return await dropping.drop_months(database, moment, kept, test)
    except StorageFault as fault:
        # An export may take its time. What nobody keeps is deleted entry by entry meanwhile.
        logger.warning("months of the log are not dropped in this round: %s", fault)
        return 0
