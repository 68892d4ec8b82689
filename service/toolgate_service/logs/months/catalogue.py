"""Which months of the log the server has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import MINYEAR, UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

#: entries from before the first month
PAST = "log_entries_past"
#: entries that have no month
DEFAULT = "log_entries_default"

_NOW = "SELECT clock_timestamp() AS moment"
_PARTS = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), c.reltuples::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'log_entries'::regclass
"""
_BOUNDS = re.compile(r"FROM \((?:MINVALUE|'([^']*)')\) TO \('([^']*)'\)")


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of a stretch of time, of a month as a rule.

    Attributes:
        name: the table's.
        begins: its first moment; None for all that is past.
        ends: the first moment after it.
        rows: how many entries the server thinks it has; -1 when it has not looked.
    """

    name: str
    begins: datetime | None
    ends: datetime
    rows: int


async def parts_of(connection: "Connection") -> Sequence[Part]:
    """Return all parts of the log in order, but for that of entries which have no month."""
    found = [
        # Connections of the gateway are told moments in UTC.
        Part(name, datetime.fromisoformat(begins) if begins else None, datetime.fromisoformat(ends), rows)
        for name, bounds, rows in await connection.fetch(_PARTS)
        for begins, ends in _BOUNDS.findall(bounds)
    ]
    return sorted(found, key=lambda part: part.ends)


async def moment_of(connection: "Connection") -> datetime:
    """Return the present moment by the server's clock."""
    moment: datetime = await connection.fetchval(_NOW)
    return moment


def month_of(moment: datetime, later: int = 0) -> datetime:
    """Return when a moment's month began, in UTC, or the one so many months later; a negative number is earlier.

    Before the first month that there is, it is that one: somebody may ask for what was before the year 2.
    """
    moment = moment.astimezone(UTC)
    years, month = divmod(moment.month - 1 + later, 12)
    if moment.year + years < MINYEAR:
        return datetime(MINYEAR, 1, 1, tzinfo=UTC)
    return datetime(moment.year + years, month + 1, 1, tzinfo=UTC)


def bound(moment: datetime) -> str:
    """Return the beginning of a month as it is written into a statement that takes no values."""
    return f"'{moment.astimezone(UTC):%Y-%m-%d} 00:00+00'"
