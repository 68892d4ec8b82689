"""Bars as a template draws them: numbers in the units of a picture, nothing of anybody's text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toolgate_service.console.overview.ranges import Range, moment_of
from toolgate_service.counts.reading import Counts

#: the picture's own units, stretched to whatever room there is
WIDTH = 1_000
HEIGHT = 200
#: what happened once can be seen beside what happened a thousand times
LEAST = 3
#: of a bar's room, so much is bar
FULL = 0.82

#: what is stacked, from below
KINDS = ("allowed", "held", "blocked")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar: what it counts, and where it stands."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """What happened in a stretch of time, and how that is drawn."""

    since: datetime
    counts: Counts
    x: float
    room: float
    pieces: Sequence[Piece]

    @property
    def inner_x(self) -> float:
        """Where the bar itself begins."""
        return round(self.x + self.room * (1 - FULL) / 2, 2)

    @property
    def inner_width(self) -> float:
        """How wide the bar itself is."""
        return round(self.room * FULL, 2)


@dataclass(frozen=True, slots=True)
class Chart:
    """The bars of a range.

    Attributes:
        bars: the oldest first.
        top: what the highest line stands for.
        total: everything together.
    """

    bars: Sequence[Bar]
    top: int
    total: Counts


def chart_of(wanted: Range, since: int, counted: Sequence[Counts]) -> Chart:
    """Return how the counts of a range are drawn.

    Args:
        wanted: the range.
        since: when it begins, in minutes since the epoch.
        counted: the counts of each of its bars.
    """
    top = rounded_up(max(one.total for one in counted))
    room = WIDTH / len(counted)
    total = Counts()
    bars = []
    for number, one in enumerate(counted):
        total = total.plus(one)
        began = moment_of(since + number * wanted.width)
        bars.append(Bar(began, one, round(number * room, 2), round(room, 2), _pieces(one, top)))
    return Chart(bars, top, total)


def rounded_up(number: int) -> int:
    """Return the next number that is good to read: 1, 2, 4, 6, 8, 10, 20, 40 …; all but 1 have a half."""
    power = 1
    while True:
        for step in (1, 2, 4, 6, 8):
            if number <= step * power:
                return step * power
        power *= 10


def _pieces(counts: Counts, top: int) -> Sequence[Piece]:
    heights = {kind: max(LEAST, number / top * HEIGHT) for kind in KINDS if (number := getattr(counts, kind))}
    # What is drawn larger than it is must not reach beyond the picture.
    scale = min(1, HEIGHT / sum(heights.values())) if heights else 1
    found, at = [], float(HEIGHT)
    for kind, height in heights.items():
        at -= height * scale
        found.append(Piece(kind, round(max(at, 0), 2), round(height * scale, 2)))
    return found
