"""Current time, calendar months, and the timestamp format of the API.

The format is ISO 8601 in UTC with microseconds and ``Z``.
"""

from datetime import MINYEAR, UTC, datetime
from functools import lru_cache


def utcnow() -> datetime:
    """Return the current time as a timezone-aware UTC timestamp."""
    return datetime.now(UTC)


# Cache the texts, because the time of a log entry is formatted three times: for its row in the database, for its leaf
# in the transparency log, and for the response.
@lru_cache(maxsize=1024)
def wire(moment: datetime) -> str:
    """Format a timestamp for the API, for example ``2026-11-20T22:36:29.123456Z``.

    The alphabetical order of the texts is the chronological order, so SQLite can store and compare timestamps as texts.
    """
    # Do not use `strftime`, because it writes the year 999 with three digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_wire(text: str) -> datetime:
    """Parse a timestamp that the function `wire` formatted."""
    return datetime.fromisoformat(text)


def month_start(moment: datetime, later: int = 0) -> datetime:
    """Return the start of the month (UTC) that is `later` months after the month of `moment`.

    `later` may be negative. API queries may contain very early dates, but `datetime` has no year before 1. A result
    before the year 1 therefore becomes January of the year 1.
    """
    moment = moment.astimezone(UTC)
    years, month = divmod(moment.month - 1 + later, 12)
    if moment.year + years < MINYEAR:
        return datetime(MINYEAR, 1, 1, tzinfo=UTC)
    return datetime(moment.year + years, month + 1, 1, tzinfo=UTC)
