"""Current time, calendar months, and the API's timestamp format (ISO 8601 in UTC with microseconds and ``Z``)."""

from datetime import MINYEAR, UTC, datetime


def utcnow() -> datetime:
    """Return the current time as a timezone-aware UTC timestamp."""
    return datetime.now(UTC)


def wire(moment: datetime) -> str:
    """Format a timestamp for the API, for instance ``2026-11-20T22:36:29.123456Z``.

    The alphabetical order of the texts is the order of the timestamps, so SQLite can compare them as text.
    """
    # `strftime` is not used, since it writes the year 999 with three digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_wire(text: str) -> datetime:
    """Parse a timestamp in the format of `wire`."""
    return datetime.fromisoformat(text)


def month_start(moment: datetime, later: int = 0) -> datetime:
    """Return the start of a timestamp's month in UTC, shifted by `later` months (negative: into the past).

    A result before the year 1 becomes January of the year 1, since API queries may contain such early dates.
    """
    moment = moment.astimezone(UTC)
    years, month = divmod(moment.month - 1 + later, 12)
    if moment.year + years < MINYEAR:
        return datetime(MINYEAR, 1, 1, tzinfo=UTC)
    return datetime(moment.year + years, month + 1, 1, tzinfo=UTC)
