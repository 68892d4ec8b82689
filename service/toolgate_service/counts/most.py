"""Who did most: the agents, or the actions, with the most log entries of a range.

There may be ten thousand of them on each of hundreds of days. So it is not asked of everybody: whoever is among the first
of some day, or of an hour that is not folded yet, is a candidate, and the candidates' entries are counted exactly.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from sqlalchemy import bindparam, text, union_all
from sqlalchemy.sql.elements import TextClause
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.counts.models import DAY, HOUR, DayCount, LogCount
from toolgate_service.counts.reading import Counts, Whose
from toolgate_service.storage.types import Id

#: how many are named
NAMED = 10
#: candidates of one day, and of the hours that are not folded yet
CANDIDATES = 20
#: days that are looked at for candidates, spread evenly over the range
SAMPLED_DAYS = 31
#: hours that are looked at for candidates, the newest: what is older is folded into its day as a rule
NEWEST_HOURS = 2


class Most(NamedTuple):
    """One of those who did most."""

    name: str
    counts: Counts


async def most(
    session: AsyncSession, whose: Whose, subject: str, since: int, until: int, *, by_the_hour: bool = False
) -> Sequence[Most]:
    """Return who did most, the one who did most first.

    Args:
        session: one snapshot.
        whose: whose entries.
        subject: agents or actions.
        since: from when on, in minutes since the epoch: the beginning of a day, or of an hour.
        until: the present minute.
        by_the_hour: whether only hours count that are not folded yet.
    """
    points: Counter[str] = Counter()
    if not by_the_hour:
        points += await _first_of(session, whose, subject, "day_counts", _spread(since // DAY, until // DAY))
    # Where there are many, who was first in some hour of a week is seldom first in the week, and hours are not sorted.
    if until - since <= 2 * DAY or len(points) < CANDIDATES:
        newest = range(until - until % HOUR, max(since - 1, until - NEWEST_HOURS * HOUR), -HOUR)
        points += await _first_of(session, whose, subject, "log_counts", newest)
    names = [name for name, _ in points.most_common(CANDIDATES)]
    if not names:
        return []
    counted = await _counted(session, whose, subject, names, since, until, by_the_hour=by_the_hour)
    return sorted(counted, key=lambda one: (-one.counts.total, one.name))[:NAMED]


def _spread(first: int, last: int) -> Sequence[int]:
    """Return at most so many days of a range, the last one among them."""
    step = -(-(last - first + 1) // SAMPLED_DAYS)
    return range(last, first - 1, -step)


async def _first_of(
    session: AsyncSession,
    whose: Whose,
    subject: str,
    table: Literal["day_counts", "log_counts"],
    slots: Sequence[int],
) -> Counter[str]:
    """Add up what the first of each day, or of each hour, have in it."""
    values = {**whose._asdict(), "subject": subject} | {f"slot{n}": slot for n, slot in enumerate(slots)}
    found = await (await session.connection()).execute(_firsts(table, len(slots)), values)
    points: Counter[str] = Counter()
    for name, total in found:
        points[name] += int(total)
    return points


@cache
def _firsts(table: Literal["day_counts", "log_counts"], slots: int) -> TextClause:
    # Written out, and kept: built of parts, it would take longer to write than to answer.
    total, slot = "total", "day"
    if table == "log_counts":
        total, slot = " + ".join(Counts._fields), f"span = {HOUR} AND starts"
    each = " UNION ALL ".join(
        f"SELECT name, total FROM (SELECT name, {total} AS total FROM {table} "  # noqa: S608 - words of ours
        f"WHERE organization_id = :organization_id AND environment = :environment AND subject = :subject "
        f"AND {slot} = :slot{number} ORDER BY total DESC LIMIT {CANDIDATES}) AS slot{number}"
        for number in range(slots)
    )
    return text(each).bindparams(bindparam("organization_id", type_=Id()))


async def _counted(
    session: AsyncSession,
    whose: Whose,
    subject: str,
    names: Sequence[str],
    since: int,
    until: int,
    *,
    by_the_hour: bool,
) -> Sequence[Most]:
    of_hours = (
        LogCount.organization_id == whose.organization_id,
        LogCount.environment == whose.environment,
        LogCount.subject == subject,
        LogCount.span == HOUR,
    )
    earliest = select(LogCount.starts).where(*of_hours, LogCount.starts >= since)
    first = (await session.exec(earliest.order_by(col(LogCount.starts)).limit(1))).first()
    # Each by its key: a range of hours would be that of everybody.
    starts = range(until if first is None else first, until + 1, HOUR)
    hours = select(LogCount.name, *(col(getattr(LogCount, name)) for name in Counts._fields)).where(
        *of_hours, col(LogCount.starts).in_(starts), col(LogCount.name).in_(names)
    )
    days = select(DayCount.name, *(col(getattr(DayCount, name)) for name in Counts._fields)).where(
        DayCount.organization_id == whose.organization_id,
        DayCount.environment == whose.environment,
        DayCount.subject == subject,
        col(DayCount.name).in_(names),
        DayCount.day >= since // DAY,
    )
    rows = (hours if by_the_hour else union_all(hours, days)).subquery()
    query = select(rows.c.name, *(func.sum(rows.c[name]) for name in Counts._fields)).group_by(rows.c.name)
    return [Most(name, Counts(*map(int, counts))) for name, *counts in (await session.exec(query)).all()]
