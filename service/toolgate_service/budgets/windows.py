"""Time windows of budgets: calendar hours, days and months, and rolling windows.

A day or month starts at the first instant of its first date in the time zone, even if a clock change skips or repeats
midnight. Each window ends when the next one starts, so every instant belongs to exactly one window.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

HOUR = "hour"
DAY = "day"
MONTH = "month"
ROLLING = "rolling"

#: value of `starts_at` for all totals of rolling windows
ROLLING_START = datetime(1970, 1, 1, tzinfo=UTC)
#: maximum length of a rolling window in seconds (31 days)
MAX_SECONDS = 31 * 24 * 3600

RULE = (
    "must be 'hour', 'day', 'month', 'day(ZONE)' or 'month(ZONE)' with a time zone such as Europe/Berlin, or "
    f"'rolling(SECONDS)' with 1-{MAX_SECONDS} seconds"
)
_PATTERN = re.compile(
    r"(?P<kind>hour|day|month)|(?P<local>day|month)\((?P<zone>[A-Za-z0-9_+/-]{1,64})\)|rolling\((?P<seconds>[1-9][0-9]{0,6})\)"
)
#: names in the time zone database that depend on the machine or are not time zones
_NOT_ZONES = frozenset({"localtime", "Factory"})


class Span(NamedTuple):
    """Time from `starts_at`, inclusive, until `ends_at`, exclusive."""

    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Window:
    """Time window of a budget.

    Attributes:
        kind: `HOUR`, `DAY`, `MONTH` or `ROLLING`.
        zone: Time zone in which days and months begin. Hours always begin in UTC.
        seconds: Length of a rolling window in seconds; 0 for other windows.
    """

    kind: str
    zone: ZoneInfo
    seconds: int = 0

    @property
    def is_rolling(self) -> bool:
        """True if the window is rolling: it covers the last `seconds` seconds."""
        return self.kind == ROLLING

    @property
    def length(self) -> timedelta:
        """Length of a rolling window."""
        return timedelta(seconds=self.seconds)

    def span(self, moment: datetime) -> Span:
        """Return the start and end of the calendar window that contains the time `moment`.

        For a rolling window, the start is `ROLLING_START`, and the end is the time at which `moment` leaves the window.
        """
        if self.kind == ROLLING:
            return Span(ROLLING_START, moment + self.length)
        if self.kind == HOUR:
            starts_at = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            return Span(starts_at, starts_at + timedelta(hours=1))
        first = moment.astimezone(self.zone).date()
        if self.kind == MONTH:
            first = first.replace(day=1)
        # The local date alone does not determine the window: if the clock is set back over midnight, the previous date
        # occurs again after the day has begun.
        while self._instant(first) > moment:
            first = self._step(first, -1)
        while (ends_at := self._instant(self._step(first, 1))) <= moment:
            first = self._step(first, 1)
        return Span(self._instant(first), ends_at)

    def _step(self, first: date, steps: int) -> date:
        if self.kind == DAY:
            return first + timedelta(days=steps)
        years, month = divmod(first.month - 1 + steps, 12)
        return date(first.year + years, month + 1, 1)

    def _instant(self, first: date) -> datetime:
        return datetime(first.year, first.month, first.day, tzinfo=self.zone).astimezone(UTC)


def parse_window(text: str) -> Window:
    """Parse a time window in the format of the API, such as ``day(Europe/Berlin)``.

    Raises:
        ValueError: The text is not a window, or the time zone is not in the time zone database of this machine.
    """
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(RULE)
    if found["seconds"] is not None:
        seconds = int(found["seconds"])
        if seconds > MAX_SECONDS:
            raise ValueError(RULE)
        return Window(ROLLING, ZoneInfo("UTC"), seconds)
    name = found["zone"] or "UTC"
    if name != "UTC" and name not in _zones():
        raise ValueError(
            f"{name!r} is not in the time zone database of this gateway; use a name such as Europe/Berlin"
        )
    return Window(found["kind"] or found["local"], ZoneInfo(name))


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - _NOT_ZONES
