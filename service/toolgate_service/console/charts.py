"""Time ranges and bar charts of the overview page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from toolgate_service.core.plans import UNLIMITED
from toolgate_service.logs.models import DAY, HOUR, MINUTE
from toolgate_service.logs.stats import Counts, minute_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Maximum number of bars in a chart. If a range has more days than this, each bar covers several days.
MAX_BARS = 100

#: Width and height of the chart's SVG view box in SVG units. The page scales the chart to the available space.
WIDTH = 1_000
HEIGHT = 200
#: Minimum height of a bar segment in SVG units, so that a single call stays visible next to a bar of a thousand calls.
MIN_HEIGHT = 3
#: Width of a bar as a fraction of the space for it; the rest is the gap to the next bar.
BAR_WIDTH = 0.82

#: Segments of a bar, from bottom to top: allowed calls, calls that wait for an approval, denied calls.
KINDS = ("allowed", "held", "blocked")


@dataclass(frozen=True, slots=True)
class Range:
    """Time range of a chart; it ends now.

    Attributes:
        name: Value of the query parameter that selects the range.
        title: Label on the page.
        width: Duration of one bar in minutes.
        bars: Number of bars.
    """

    name: str
    title: str
    width: int
    bars: int

    @property
    def days(self) -> float:
        """Duration of the range in days."""
        return self.width * self.bars / DAY

    @property
    def bar(self) -> str:
        """Duration of one bar as text, such as "hour" or "6 hours"."""
        for length, word in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
            if self.width % length == 0:
                number = self.width // length
                return word if number == 1 else f"{number} {word}s"
        raise AssertionError(self.width)

    @property
    def by_the_minute(self) -> bool:
        """True if each bar covers one minute."""
        return self.width == MINUTE

    def since(self, moment: datetime) -> int:
        """Return the start of the range that ends at `moment`, in minutes since the Unix epoch.

        The start is the beginning of a minute, an hour or a UTC day, depending on the range.
        """
        step = min(self.width, DAY) if self.days <= 1 else DAY
        minute = minute_of(moment)
        return minute - minute % step + step - self.bars * self.width


STANDARD: Sequence[Range] = (
    Range("hour", "Hour", MINUTE, 60),
    Range("day", "24 hours", HOUR, 24),
    Range("week", "7 days", 6 * HOUR, 28),
    Range("month", "30 days", DAY, 30),
    Range("quarter", "90 days", DAY, 90),
    Range("year", "53 weeks", 7 * DAY, 53),
)
DEFAULT_RANGE = "day"


def list_ranges(kept_days: int) -> Sequence[Range]:
    """Return the time ranges that the retention period of log entries covers.

    If the retention period lies between two standard ranges, the result ends with a range of that length.

    Args:
        kept_days: Retention period in days; -1 for unlimited.
    """
    if kept_days == UNLIMITED:
        return STANDARD
    within = [one for one in STANDARD if one.days <= kept_days]
    if within[-1].days < kept_days < STANDARD[-1].days:
        several = -(-kept_days // MAX_BARS)
        within.append(Range("kept", f"{kept_days} days", several * DAY, -(-kept_days // several)))
    return within


def moment_of(minute: int) -> datetime:
    """Convert a number of minutes since the Unix epoch to a UTC time."""
    return _EPOCH + timedelta(minutes=minute)


@dataclass(frozen=True, slots=True)
class Piece:
    """Segment of a stacked bar; position and height are in SVG units."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of a stacked bar chart; positions and widths are in SVG units."""

    since: datetime
    counts: Counts
    x: float
    room: float
    pieces: Sequence[Piece]

    @property
    def inner_x(self) -> float:
        """X coordinate of the bar's left edge, after half of the gap."""
        return round(self.x + self.room * (1 - BAR_WIDTH) / 2, 2)

    @property
    def inner_width(self) -> float:
        """Width of the bar without the gap."""
        return round(self.room * BAR_WIDTH, 2)


@dataclass(frozen=True, slots=True)
class Chart:
    """Bar chart of a time range.

    Attributes:
        bars: Bars, oldest first.
        top: Number of calls at the top of the vertical axis.
        total: Number of calls in all bars together, by decision.
    """

    bars: Sequence[Bar]
    top: int
    total: Counts


def build_chart(time_range: Range, since: int, counted: Sequence[Counts]) -> Chart:
    """Return the chart of a time range.

    Args:
        time_range: Time range of the chart.
        since: Start of the time range in minutes since the Unix epoch.
        counted: Number of calls by decision, for each bar; oldest first.
    """
    top = round_up(max(one.total for one in counted))
    room = WIDTH / len(counted)
    total = Counts()
    bars = []
    for number, one in enumerate(counted):
        total = total.plus(one)
        began = moment_of(since + number * time_range.width)
        bars.append(Bar(began, one, round(number * room, 2), round(room, 2), _pieces(one, top)))
    return Chart(bars, top, total)


def round_up(number: int) -> int:
    """Round a number up to the next of 1, 2, 4, 6, 8, 10, 20, 40 and so on.

    The result is the top value of an axis. It is even, except for 1, so that the label at half height is an integer
    too.
    """
    power = 1
    while True:
        for step in (1, 2, 4, 6, 8):
            if number <= step * power:
                return step * power
        power *= 10


def _pieces(counts: Counts, top: int) -> Sequence[Piece]:
    heights = {
        kind: max(MIN_HEIGHT, number / top * HEIGHT) for kind in KINDS if (number := getattr(counts, kind))
    }
    # The minimum height may make a bar higher than the chart. In this case, all its segments are scaled down.
    scale = min(1, HEIGHT / sum(heights.values())) if heights else 1
    found, at = [], float(HEIGHT)
    for kind, height in heights.items():
        at -= height * scale
        found.append(Piece(kind, round(max(at, 0), 2), round(height * scale, 2)))
    return found


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Share(NamedTuple):
    """Segment of a horizontal bar; position and width are percentages of the available width."""

    kind: str
    x: float
    width: float


def format_duration(length: timedelta) -> str:
    """Return a duration as text in at most two units, such as "4 min 10 s" or "2 h"."""
    left = max(0, round(length.total_seconds()))
    words = []
    for seconds, unit in _UNITS:
        number, left = divmod(left, seconds)
        if number:
            words.append(f"{number} {unit}")
        if words and (not number or len(words) == 2):  # noqa: PLR2004 - two units
            break
    return " ".join(words) or "0 s"


def build_shares(counts: Counts, whole: int) -> Sequence[Share]:
    """Return the segments of a horizontal bar; `whole` is the number of calls that corresponds to the full width."""
    found, at = [], 0.0
    for kind in KINDS:
        width = 100 * getattr(counts, kind) / whole
        if width:
            found.append(Share(kind, round(at, 2), round(width, 2)))
            at += width
    return found
