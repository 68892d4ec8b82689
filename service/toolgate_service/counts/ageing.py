"""Removing counts with the log entries that they count: as old as the plan says, in the test environment seven days."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlmodel import col, select

from toolgate_service.counts.adding import minute_of
from toolgate_service.counts.models import ACTION, AGENT, ALL, DAY, HOUR, DayCount, LogCount
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import UNLIMITED
from toolgate_service.storage.base import ENVIRONMENTS, TEST
from toolgate_service.storage.database import Database
from toolgate_service.upkeep.batches import delete_where


class Tenant(NamedTuple):
    """Whose counts, and what says how long they are kept."""

    id: str
    plan: str
    plan_changed_at: datetime | None
    retention_days_before: int | None


async def prune_counts(
    database: Database,
    batch: int,
    moment: datetime,
    kept: Callable[[Tenant], int],
    *,
    shortest: int,
    test: int,
) -> Counter[str]:
    """Remove what counts nothing any more, and return how many rows of which table.

    Args:
        database: where.
        batch: how many rows a transaction removes.
        moment: the present one.
        kept: says for how many days an organization's production entries are kept; -1 for ever.
        shortest: for how many days the plan keeps them that keeps them shortest; -1 if all keep them for ever.
        test: for how many days test entries are kept.
    """
    removed: Counter[str] = Counter()
    for environment in ENVIRONMENTS:
        least = test if environment == TEST else shortest
        if least == UNLIMITED:
            continue
        for tenant in await _with_old(database, environment, moment - timedelta(days=least)):
            days = test if environment == TEST else kept(tenant)
            if days != UNLIMITED:
                before = moment - timedelta(days=days)
                removed += await _prune_tenant(database, batch, tenant.id, environment, before)
    return removed


async def _with_old(database: Database, environment: str, before: datetime) -> Sequence[Tenant]:
    # Whoever has entries of a day has them in an hour: one look into an index for each organization.
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
        return [Tenant._make(row) for row in (await session.exec(query)).all()]


async def _prune_tenant(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> Counter[str]:
    days = (
        col(DayCount.organization_id) == organization_id,
        col(DayCount.environment) == environment,
        # Whole days alone: some of this one's entries are still there.
        col(DayCount.day) < minute_of(before) // DAY,
    )
    # The hours last: by them it is seen that there is something left.
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
