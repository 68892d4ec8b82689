"""For how long back the overview looks: as far as log entries are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from toolgate_service.counts.adding import minute_of
from toolgate_service.counts.models import DAY, HOUR, MINUTE
from toolgate_service.plans import UNLIMITED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: bars of a chart of days; of more days each is of several
MOST_BARS = 100


@dataclass(frozen=True, slots=True)
class Range:
    """How far back one looks.

    Attributes:
        name: in an address.
        title: in words.
        width: how long one bar stands for, in minutes.
        bars: how many there are.
    """

    name: str
    title: str
    width: int
    bars: int

    @property
    def days(self) -> float:
        """How long it is."""
        return self.width * self.bars / DAY

    @property
    def bar(self) -> str:
        """What one bar stands for, in words."""
        for length, word in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
            if self.width % length == 0:
                number = self.width // length
                return word if number == 1 else f"{number} {word}s"
        raise AssertionError(self.width)

    @property
    def by_the_minute(self) -> bool:
        """Whether its bars are minutes."""
        return self.width == MINUTE

    def since(self, moment: datetime) -> int:
        """Return when it begins that ends now, in minutes since the epoch: with a whole minute, hour or UTC day."""
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
#: what is shown where none is asked for
USUAL = "day"


def ranges_of(kept_days: int) -> Sequence[Range]:
    """Return the ranges within which entries are kept, the last of them as long as they are.

    Args:
        kept_days: for how many days entries are kept; -1 for ever.
    """
    if kept_days == UNLIMITED:
        return STANDARD
    within = [one for one in STANDARD if one.days <= kept_days]
    if within[-1].days < kept_days < STANDARD[-1].days:
        several = -(-kept_days // MOST_BARS)
        within.append(Range("kept", f"{kept_days} days", several * DAY, -(-kept_days // several)))
    return within


def moment_of(minute: int) -> datetime:
    """Return a moment that is written as minutes since the epoch."""
    return _EPOCH + timedelta(minutes=minute)
