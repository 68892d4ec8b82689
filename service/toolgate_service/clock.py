"""The gateway's clock and its one way to write a moment: UTC, ISO 8601, microseconds, ``Z`` (decisions §2)."""

from datetime import UTC, datetime


def utcnow() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)


def wire(moment: datetime) -> str:
    """Write a moment as the API shows it, for instance ``2026-11-20T22:36:29.123456Z``.

    The text sorts as the moments do, so that SQLite may compare it.
    """
    # Not strftime: it writes the year 999 with three digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_wire(text: str) -> datetime:
    """Read what `wire` wrote."""
    return datetime.fromisoformat(text)
