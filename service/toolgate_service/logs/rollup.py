"""Roll-up of counts of log entries into longer periods, and removal of counts whose entries are past their retention.

Counts of an environment are rolled up from minutes into hours. Counts of agents and actions are rolled up from hours
into days. At any time, each entry is counted in exactly one row per subject (environment, agent, action), so sums over
`log_counts` and `day_counts` together are correct.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Insert, bindparam, delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.plans import UNLIMITED
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import ENVIRONMENTS, TEST, Table
from toolgate_service.jobs.batches import delete_where, in_batches
from toolgate_service.logs.models import ACTION, AGENT, ALL, COUNTED, DAY, HOUR, MINUTE, DayCount, LogCount
from toolgate_service.logs.stats import KEY, minute_of, request_count_rows
from toolgate_service.organizations.models import Environment, Organization

#: subject and span (in minutes) of the rows that are rolled up
_FINE = ((ALL, MINUTE), (AGENT, HOUR), (ACTION, HOUR))

_COUNTS = tuple(COUNTED.values())
_DELETE = delete(LogCount).where(
    *(col(getattr(LogCount, column)) == bindparam(f"its_{column}") for column in KEY)
)


class RetentionTerms(NamedTuple):
    """An organization, with the values that determine the retention of its log entries.

    Attributes:
        id: Id of the organization.
        plan: Name of its plan.
        plan_changed_at: Time of the last change of the plan; None if the plan never changed.
        retention_days_before: Retention of the previous plan in days; -1 means without limit; None if there is no
            previous plan.
    """

    id: str
    plan: str
    plan_changed_at: datetime | None
    retention_days_before: int | None


async def roll_up(database: Database, batch: int) -> int:
    """Roll up all counts from before the previous hour, and return the number of rows that were rolled up.

    Each transaction rolls up at most `batch` rows.
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
    """Increment the counts of approval requests, in the transaction that creates a request.

    `environment` consists of the organization's id and the environment's name.
    """
    connection = await session.connection()
    rows = request_count_rows(environment, agent_id, action, created_at)
    await connection.execute(_upsert(LogCount, connection.dialect.name), rows)


async def prune_counts(
    database: Database,
    batch: int,
    moment: datetime,
    kept: Callable[[RetentionTerms], int],
    *,
    shortest: int,
    test: int,
) -> Counter[str]:
    """Remove the counts of log entries that are past their retention.

    Args:
        database: The database.
        batch: Maximum number of rows that one transaction removes.
        moment: The current time.
        kept: Function that returns the retention of an organization's production entries in days; -1 means without
            limit.
        shortest: Shortest retention of all plans in days; -1 if all plans keep entries without limit.
        test: Retention of test entries in days.

    Returns:
        Number of removed rows by table name.
    """
    removed: Counter[str] = Counter()
    for environment in ENVIRONMENTS:
        least = test if environment == TEST else shortest
        if least == UNLIMITED:
            continue
        for tenant in await _tenants_with_expired(database, environment, moment - timedelta(days=least)):
            days = test if environment == TEST else kept(tenant)
            if days != UNLIMITED:
                before = moment - timedelta(days=days)
                removed += await _prune_tenant(database, batch, tenant.id, environment, before)
    return removed


def _first_kept(minute: int) -> int:
    """Return the first minute of the previous hour; only counts from before this minute are rolled up.

    `minute` is the current time in minutes since the epoch.
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
            oldest.scalar_subquery() < _first_kept(minute_of(now(session)))
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
            LogCount.starts < _first_kept(minute_of(now(session))),
        )
        .order_by(col(LogCount.starts), col(LogCount.name))
        .limit(batch)
        # Rows are locked, and rows locked by another gateway are skipped: if two gateways rolled up the same row, it
        # would count twice.
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
    """Return an insert statement that adds the counts to those of the existing row, if there is one."""
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
    """Sum the counts of `rows` by hour or day, and return the sums as rows to insert, sorted by key."""
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


async def _tenants_with_expired(
    database: Database, environment: str, before: datetime
) -> Sequence[RetentionTerms]:
    # Only counts of hours are searched, which costs one index entry per organization. An organization with counts of
    # days always has counts of hours too.
    oldest = (
        select(LogCount.starts)
        .where(
            LogCount.organization_id == Organization.id,
            LogCount.environment == environment,
            LogCount.subject == ALL,
            LogCount.span == HOUR,
        )
        .order_by(col(LogCount.starts))
        .limit(1)
        .correlate(Organization)
    )
    query = select(
        Organization.id,
        Organization.plan,
        col(Organization.plan_changed_at),
        col(Organization.retention_days_before),
    ).where(oldest.scalar_subquery() <= minute_of(before) - HOUR)
    async with database.reading() as session:
        return [RetentionTerms._make(row) for row in (await session.exec(query)).all()]


async def _prune_tenant(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> Counter[str]:
    days = (
        col(DayCount.organization_id) == organization_id,
        col(DayCount.environment) == environment,
        # Only whole days are removed, because some entries of the day of `before` are still within their retention.
        col(DayCount.day) < minute_of(before) // DAY,
    )
    # Hours are removed last: if a failure interrupts the removal, `_tenants_with_expired` still finds the organization.
    hours = (
        col(LogCount.organization_id) == organization_id,
        col(LogCount.environment) == environment,
        col(LogCount.subject) == ALL,
        col(LogCount.span) == HOUR,
        col(LogCount.starts) <= minute_of(before) - HOUR,
    )
    removed: Counter[str] = Counter()
    for subject in (AGENT, ACTION):
        of = (*days, col(DayCount.subject) == subject)
        removed["day_counts"] += await delete_where(database, batch, DayCount, *of)
    removed["log_counts"] += await delete_where(database, batch, LogCount, *hours)
    return removed
