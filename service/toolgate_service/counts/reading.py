"""Reading counts: how much happened, and when. Whatever the range, as many rows are read as it has hours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.counts.models import ALL, HOUR, MINUTE, LogCount


class Counts(NamedTuple):
    """How many calls, by their outcome.

    Attributes:
        succeeded: the tool ran, and did.
        failed: it ran, and did not.
        blocked: it was not let run.
        held: approval requests; a retry of a call that waits is not another one.
    """

    succeeded: int = 0
    failed: int = 0
    blocked: int = 0
    held: int = 0

    @property
    def allowed(self) -> int:
        """How many ran."""
        return self.succeeded + self.failed

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)

    def plus(self, other: "Counts") -> "Counts":
        """Return both together."""
        return Counts(*(one + two for one, two in zip(self, other, strict=True)))


class Whose(NamedTuple):
    """An organization, and one of its environments."""

    organization_id: str
    environment: str


async def over_time(
    session: AsyncSession, whose: Whose, since: int, width: int, bars: int
) -> Sequence[Counts]:
    """Return the counts of stretches of time of the same width, one after another.

    Args:
        session: one snapshot.
        whose: whose entries.
        since: when the first begins, in minutes since the epoch.
        width: how long each is, in minutes: one alone for the last hour, otherwise whole hours.
        bars: how many.
    """
    place = ((col(LogCount.starts) - since) // width).label("place")
    sums = [func.sum(col(getattr(LogCount, name))) for name in Counts._fields]
    query = (
        select(place, *sums)
        .where(
            LogCount.organization_id == whose.organization_id,
            LogCount.environment == whose.environment,
            LogCount.subject == ALL,
            col(LogCount.span).in_((MINUTE, HOUR)),
            LogCount.starts >= since,
            LogCount.starts < since + bars * width,
        )
        .group_by(place)
    )
    rows: Sequence[Any] = (await session.exec(query)).all()
    found = {int(at): Counts(*map(int, counts)) for at, *counts in rows}
    return [found.get(at, Counts()) for at in range(bars)]
