"""Making the next months of the log before their first entry.

No entry waits for it. One that has no month is kept all the same, in a partition of its own (`DEFAULT`): a gateway whose
upkeep was not done for a year goes on, and the log is put in order afterwards (`settling.py`).
"""

from collections.abc import Sequence
from datetime import datetime

from toolgate_service.logs.months.catalogue import Part, moment_of, month_of, parts_of
from toolgate_service.logs.months.making import alone, hurried, make_part
from toolgate_service.logs.months.settling import homeless_before, settle
from toolgate_service.storage.postgres import PostgresDatabase

#: months that there are at the least, the present one among them
AHEAD = 3


async def make_months(database: PostgresDatabase) -> Sequence[str]:
    """Make the present month and the next ones, where they are missing, and return the names of what was made.

    While another gateway does it there is nothing to do.

    Raises:
        StorageFault: the server cannot be used, or others hold the log; the next round tries again.
    """
    async with alone(database) as connection:
        if connection is None:
            return ()
        stretches = missing(await parts_of(connection), await moment_of(connection))
        made: list[str] = []
        if stretches and await homeless_before(connection, stretches[-1][1]):
            made.append(await settle(connection))
            stretches = missing(await parts_of(connection), await moment_of(connection))
        for begins, ends in stretches:
            async with hurried(connection):
                made.append(await make_part(connection, begins, ends))
        return made


def missing(parts: Sequence[Part], moment: datetime) -> Sequence[tuple[datetime, datetime]]:
    """Return which stretches of time are needed at a moment and not there: months, and before them whatever was missed."""
    last = parts[-1].ends if parts else None
    present = month_of(moment)
    months = [(month_of(moment, later), month_of(moment, later + 1)) for later in range(AHEAD)]
    needed = [(begins, ends) for begins, ends in months if last is None or begins >= last]
    # Nothing was written in it, or it would have been settled: one part is enough.
    return needed if last is None or last >= present else [(last, present), *needed]
