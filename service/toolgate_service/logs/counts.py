"""Counts of log entries by time, agent, action and outcome.

Each log entry increments three counts: those of its environment, its agent and its action. Entries with the status
`pending` are not counted; instead, each approval request is counted once. A maintenance job adds up the counts per
minute of an environment to counts per hour ("roll-up"), and the counts per hour of agents and actions to counts per
day. At any time, each entry is counted in exactly one row of its environment, one of its agent and one of its action.
Sums over the tables `log_counts` and `day_counts` are therefore always correct.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Insert, bindparam, delete, text, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import TextClause
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.db.database import Database, now
from toolgate_service.db.models import Id, Table
from toolgate_service.jobs.batches import in_batches
from toolgate_service.logs.models import (
    ACTION,
    AGENT,
    ALL,
    COUNTED,
    DAY,
    HELD,
    HOUR,
    MINUTE,
    DayCount,
    LogCount,
)
from toolgate_service.logs.schemas import NewEntry, Stored
from toolgate_service.organizations.models import Environment

#: columns of the primary key of the table `log_counts`
KEY = ("organization_id", "environment", "subject", "span", "starts", "name")
_Key: TypeAlias = tuple[str, str, str, int, int, str]
#: increment of one row of `log_counts`: the six columns of the primary key, then the numbers to add to the four counts
CountRow: TypeAlias = tuple[str, str, str, int, int, str, int, int, int, int]

#: number of agents or actions in a ranking
TOP_COUNT = 10
#: A ranking first selects candidates and then adds up only their counts. CANDIDATES is the number of agents or actions
#: that are selected from each sampled day or hour: those with the most entries.
CANDIDATES = 20
#: maximum number of days that are searched for the candidates of a ranking; the days are spread evenly over the time
#: range of the ranking
SAMPLED_DAYS = 31
#: number of newest hours that are searched for the candidates of a ranking; earlier hours need no search, because the
#: maintenance job has usually added up their counts to counts per day
SAMPLED_HOURS = 2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
#: for each status, the index (0 to 3) of the count in a row that entries with this status increment
_POSITIONS = {status: position for position, status in enumerate(COUNTED)}


class Counts(NamedTuple):
    """Numbers of tool calls by outcome.

    Attributes:
        succeeded: Calls that ran and succeeded.
        failed: Calls that ran and failed.
        blocked: Calls that were denied.
        held: Calls for which an approval request was created. Retries of such a call are not counted again.
    """

    succeeded: int = 0
    failed: int = 0
    blocked: int = 0
    held: int = 0

    @property
    def allowed(self) -> int:
        """Number of calls that ran."""
        return self.succeeded + self.failed

    @property
    def total(self) -> int:
        """Sum of the four counts."""
        return sum(self)

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of these counts and `other`, separately for each outcome."""
        return Counts(*(one + two for one, two in zip(self, other, strict=True)))


class EnvironmentKey(NamedTuple):
    """Identifier of an environment: the id of the organization and the name of the environment."""

    organization_id: str
    environment: str


class TopEntry(NamedTuple):
    """Agent or action in a ranking, with its counts.

    Attributes:
        name: Id of the agent, or the action.
        counts: Numbers of its tool calls.
    """

    name: str
    counts: Counts


def minute_of(moment: datetime) -> int:
    """Return a time as the number of whole minutes since 1970-01-01 UTC."""
    return (moment - _EPOCH) // _MINUTE


def count_rows(entries: Iterable[tuple[NewEntry, Stored]]) -> list[CountRow]:
    """Return the increments to rows of the table `log_counts` for stored log entries: one increment per row.

    Entries with the status `pending` are not counted. The increments are sorted by primary key, so that all gateways
    lock the rows in the same order and cannot deadlock.
    """
    rows: dict[_Key, list[int]] = {}
    for entry, stored in entries:
        if COUNTED[entry.status] == HELD:
            continue
        environment = (entry.organization_id, entry.environment)
        for key in _keys(environment, entry.agent_id, entry.action, stored.created_at):
            counts = rows.get(key)
            if counts is None:
                counts = rows[key] = [0] * len(_POSITIONS)
            counts[_POSITIONS[entry.status]] += 1
    return [(*key, *rows[key]) for key in sorted(rows)]  # type: ignore[misc]  # the key has six values, and there are four counts


def request_count_rows(
    environment: tuple[str, str], agent_id: str, action: str, created_at: datetime
) -> list[dict[str, object]]:
    """Return the increments to rows of the table `log_counts` for a new approval request, sorted by primary key.

    `environment` contains the id of the organization and the name of the environment.
    """
    none = dict.fromkeys(COUNTED.values(), 0)
    keys = sorted(_keys(environment, agent_id, action, created_at))
    return [dict(zip(KEY, key, strict=True)) | none | {HELD: 1} for key in keys]


def _keys(environment: tuple[str, str], agent_id: str, action: str, moment: datetime) -> Iterable[_Key]:
    minute = minute_of(moment)
    hour = minute - minute % HOUR
    return (
        (*environment, ALL, MINUTE, minute, ""),
        (*environment, AGENT, HOUR, hour, agent_id),
        (*environment, ACTION, HOUR, hour, action),
    )


async def counts_over_time(
    session: AsyncSession, environment: EnvironmentKey, since: int, width: int, bars: int
) -> Sequence[Counts]:
    """Return the counts of log entries in `bars` consecutive periods.

    `since` is the start of the first period, in minutes since 1970-01-01 UTC. `width` is the length of each period in
    minutes: 1 if all periods are within the last hour, otherwise a multiple of 60, because older counts are stored per
    hour. The query reads about one row per hour of the time range.
    """
    period = ((col(LogCount.starts) - since) // width).label("place")
    sums = [func.sum(col(getattr(LogCount, name))) for name in Counts._fields]
    query = (
        select(period, *sums)
        .where(
            LogCount.organization_id == environment.organization_id,
            LogCount.environment == environment.environment,
            LogCount.subject == ALL,
            col(LogCount.span).in_((MINUTE, HOUR)),
            LogCount.starts >= since,
            LogCount.starts < since + bars * width,
        )
        .group_by(period)
    )
    rows: Sequence[Any] = (await session.exec(query)).all()
    found = {int(at): Counts(*map(int, counts)) for at, *counts in rows}
    return [found.get(at, Counts()) for at in range(bars)]


async def top_n(
    session: AsyncSession,
    environment: EnvironmentKey,
    subject: str,
    since: int,
    until: int,
    *,
    hours_only: bool = False,
) -> Sequence[TopEntry]:
    """Return the `TOP_COUNT` agents or actions with the most log entries, in descending order.

    Adding up the counts of all agents would take too long, because an environment can have ten thousand agents on each
    of hundreds of days. The function therefore first chooses candidates: the agents or actions with the most entries on
    sampled days and in the newest hours. It then adds up all counts of these candidates.

    Args:
        session: A database session.
        environment: Environment whose entries are counted.
        subject: `AGENT` for a ranking of agents, `ACTION` for a ranking of actions.
        since: Start of the time range in minutes since 1970-01-01 UTC, at the start of a day or hour.
        until: Current time in minutes since 1970-01-01 UTC.
        hours_only: True to add up only counts per hour, and no counts per day.
    """
    points: Counter[str] = Counter()
    if not hours_only:
        days = _sample_days(since // DAY, until // DAY)
        points += await _sum_of_tops(session, environment, subject, "day_counts", days)
    # For a long time range, skip the query for hours if the days yielded enough candidates. The query for hours is
    # slow, because no index contains the counts of hours, and it changes little, because one hour has few entries
    # compared with the whole range.
    if until - since <= 2 * DAY or len(points) < CANDIDATES:
        hours = range(until - until % HOUR, max(since - 1, until - SAMPLED_HOURS * HOUR), -HOUR)
        points += await _sum_of_tops(session, environment, subject, "log_counts", hours)
    names = [name for name, _ in points.most_common(CANDIDATES)]
    if not names:
        return []
    counted = await _count_names(session, environment, subject, names, since, until, hours_only=hours_only)
    return sorted(counted, key=lambda one: (-one.counts.total, one.name))[:TOP_COUNT]


def _sample_days(first: int, last: int) -> Sequence[int]:
    """Return at most `SAMPLED_DAYS` evenly spaced days of a range. The last day is always included."""
    step = -(-(last - first + 1) // SAMPLED_DAYS)
    return range(last, first - 1, -step)


async def _sum_of_tops(
    session: AsyncSession,
    environment: EnvironmentKey,
    subject: str,
    table: Literal["day_counts", "log_counts"],
    slots: Sequence[int],
) -> Counter[str]:
    """Return the approximate number of entries of each agent, or of each action.

    Only the `CANDIDATES` largest counts of each day or hour in `slots` are added up; smaller counts are ignored.
    """
    values = {**environment._asdict(), "subject": subject} | {
        f"slot{n}": slot for n, slot in enumerate(slots)
    }
    found = await (await session.connection()).execute(_tops_statement(table, len(slots)), values)
    points: Counter[str] = Counter()
    for name, total in found:
        points[name] += int(total)
    return points


@cache
def _tops_statement(table: Literal["day_counts", "log_counts"], slots: int) -> TextClause:
    # Cache the statement as text, because SQLAlchemy takes longer to build it than the database to execute it.
    total, slot = "total", "day"
    if table == "log_counts":
        total, slot = " + ".join(Counts._fields), f"span = {HOUR} AND starts"
    each = " UNION ALL ".join(
        f"SELECT name, total FROM (SELECT name, {total} AS total FROM {table} "  # noqa: S608 - the inserted texts are constants
        f"WHERE organization_id = :organization_id AND environment = :environment AND subject = :subject "
        f"AND {slot} = :slot{number} ORDER BY total DESC LIMIT {CANDIDATES}) AS slot{number}"
        for number in range(slots)
    )
    return text(each).bindparams(bindparam("organization_id", type_=Id()))


async def _count_names(
    session: AsyncSession,
    environment: EnvironmentKey,
    subject: str,
    names: Sequence[str],
    since: int,
    until: int,
    *,
    hours_only: bool,
) -> Sequence[TopEntry]:
    in_hours = (
        LogCount.organization_id == environment.organization_id,
        LogCount.environment == environment.environment,
        LogCount.subject == subject,
        LogCount.span == HOUR,
    )
    earliest = select(LogCount.starts).where(*in_hours, LogCount.starts >= since)
    first = (await session.exec(earliest.order_by(col(LogCount.starts)).limit(1))).first()
    # Select the rows by complete primary keys, because a condition on a range of hours would read the rows of all
    # names.
    starts = range(until if first is None else first, until + 1, HOUR)
    hours = select(LogCount.name, *(col(getattr(LogCount, name)) for name in Counts._fields)).where(
        *in_hours, col(LogCount.starts).in_(starts), col(LogCount.name).in_(names)
    )
    days = select(DayCount.name, *(col(getattr(DayCount, name)) for name in Counts._fields)).where(
        DayCount.organization_id == environment.organization_id,
        DayCount.environment == environment.environment,
        DayCount.subject == subject,
        col(DayCount.name).in_(names),
        DayCount.day >= since // DAY,
    )
    rows = (hours if hours_only else union_all(hours, days)).subquery()
    query = select(rows.c.name, *(func.sum(rows.c[name]) for name in Counts._fields)).group_by(rows.c.name)
    return [TopEntry(name, Counts(*map(int, counts))) for name, *counts in (await session.exec(query)).all()]


#: subject and span (length of the period in minutes) of the rows that the roll-up adds up to rows of longer periods
_FINE = ((ALL, MINUTE), (AGENT, HOUR), (ACTION, HOUR))

_COUNTS = tuple(COUNTED.values())
_DELETE = delete(LogCount).where(
    *(col(getattr(LogCount, column)) == bindparam(f"its_{column}") for column in KEY)
)


async def roll_up(database: Database, batch: int) -> int:
    """Add up the counts of minutes to hours and of hours to days. Return the number of rows that were replaced.

    Only counts from before the previous hour are changed. Each transaction replaces at most `batch` rows.
    """
    total = 0
    for subject, span in _FINE:
        for organization_id, environment in await _environments_with_old(database, subject, span):

            async def work(
                session: AsyncSession,
                of: tuple[str, str, str, int] = (organization_id, environment, subject, span),
            ) -> int:
                return await _roll_up_batch(session, batch, *of)

            total += await in_batches(database, batch, work)
    return total


async def count_request(
    session: AsyncSession, environment: tuple[str, str], agent_id: str, action: str, created_at: datetime
) -> None:
    """Count a new approval request, in the transaction that creates the request.

    `environment` contains the id of the organization and the name of the environment.
    """
    connection = await session.connection()
    rows = request_count_rows(environment, agent_id, action, created_at)
    await connection.execute(_upsert(LogCount, connection.dialect.name), rows)


def _roll_up_before(minute: int) -> int:
    """Return the first minute of the previous hour. Only counts from before this minute are added up.

    `minute` is the current time in minutes since 1970-01-01 UTC.
    """
    return minute - minute % HOUR - HOUR


async def _environments_with_old(database: Database, subject: str, span: int) -> Sequence[tuple[str, str]]:
    oldest = (
        select(LogCount.starts)
        .where(
            LogCount.organization_id == Environment.organization_id,
            LogCount.environment == Environment.name,
            LogCount.subject == subject,
            LogCount.span == span,
        )
        .order_by(col(LogCount.starts))
        .limit(1)
        .correlate(Environment)
    )
    async with database.reading() as session:
        query = select(Environment.organization_id, Environment.name).where(
            oldest.scalar_subquery() < _roll_up_before(minute_of(now(session)))
        )
        return (await session.exec(query)).all()


async def _roll_up_batch(
    session: AsyncSession, batch: int, organization_id: str, environment: str, subject: str, span: int
) -> int:
    chosen = (
        select(LogCount)
        .where(
            LogCount.organization_id == organization_id,
            LogCount.environment == environment,
            LogCount.subject == subject,
            LogCount.span == span,
            LogCount.starts < _roll_up_before(minute_of(now(session))),
        )
        .order_by(col(LogCount.starts), col(LogCount.name))
        .limit(batch)
        # Lock the rows and skip rows that another gateway has locked, because otherwise two gateways could add the
        # counts of the same row to the sum.
        .with_for_update(skip_locked=True)
    )
    rows = (await session.exec(chosen)).all()
    if rows:
        connection = await session.connection()
        await connection.execute(
            _DELETE, [{f"its_{column}": getattr(row, column) for column in KEY} for row in rows]
        )
        table = LogCount if subject == ALL else DayCount
        await connection.execute(_upsert(table, connection.dialect.name), _sums(rows))
    return len(rows)


def _upsert(table: type[LogCount | DayCount], dialect: str) -> Insert:
    """Return a statement that inserts a row of counts, or adds the counts to those of the existing row."""
    declared = Table.metadata.tables[str(table.__tablename__)]
    insert = sqlite.insert(declared) if dialect == "sqlite" else postgresql.insert(declared)
    key = declared.primary_key.columns.keys()
    sums = {
        column.name: column + insert.excluded[column.name]
        for column in declared.columns
        if column.name not in key
    }
    return insert.on_conflict_do_update(index_elements=key, set_=sums)


def _sums(rows: Sequence[LogCount]) -> list[dict[str, object]]:
    """Add up the counts in `rows`, and return the sums as rows to insert, sorted by period and name.

    All rows must have the same environment and subject. For the subject `ALL`, the sums are by hour, for the table
    `log_counts`; for other subjects by day, for `day_counts`.
    """
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * len(_COUNTS))
    first = rows[0]
    width = HOUR if first.subject == ALL else DAY
    for row in rows:
        total = sums[row.starts // width, row.name]
        for position, column in enumerate(_COUNTS):
            total[position] += getattr(row, column)
    tenant: dict[str, object] = {"organization_id": first.organization_id, "environment": first.environment}
    return [
        tenant
        | {"subject": first.subject, "name": name}
        | dict(zip(_COUNTS, counts, strict=True))
        | ({"span": HOUR, "starts": at * HOUR} if width == HOUR else {"day": at, "total": sum(counts)})
        for (at, name), counts in sorted(sums.items())
    ]
