"""Removal of log entries past their retention, and maintenance of the monthly partitions on PostgreSQL."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, tuple_
from sqlmodel import col, delete, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.clock import month_start
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.plans import PLAN_NAMES, RETENTION_GRACE, UNLIMITED, Plans, longest
from toolgate_service.db.database import Database
from toolgate_service.db.models import PRODUCTION, TEST, PartitionHint
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.jobs.batches import delete_where, in_batches
from toolgate_service.jobs.scheduler import steady_from
from toolgate_service.logs.entries import entry_bytes
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.rollup import RetentionTerms
from toolgate_service.organizations.models import Environment, Organization

if TYPE_CHECKING:
    from toolgate_service.logs.partitions import RetentionDays

logger = logging.getLogger("toolgate.gateway")

#: retention of data of test environments, in days
TEST_DAYS = 7
#: maximum number of organizations that one statement reads
ORGANIZATIONS_PER_QUERY = 1_000


async def make_months(database: Database) -> None:
    """On PostgreSQL, create missing partitions for the coming months, unless the clock recently jumped forward."""
    if isinstance(database, SqliteDatabase):
        return
    moment, trusted = await steady_from(database)
    if trusted > moment:
        return
    # Imported late, because the driver is only installed for PostgreSQL.
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.logs import partitions

    if isinstance(database, PostgresDatabase):
        try:
            made = await partitions.make_months(database)
        except StorageFault as fault:
            # The table is locked, or the gateway's database role does not own it. A warning suffices, because entries
            # of a month without a partition are stored in the default partition.
            logger.warning(
                "months of the log are not made in this round: %s; entries without a month are kept all the same",
                fault,
            )
            return
        if made:
            logger.info("made months of the log: %s", ", ".join(made))


async def drop_months(database: Database, moment: datetime, kept: "RetentionDays", test: int) -> int:
    """On PostgreSQL, drop partitions whose entries are all past their retention; return the number of dropped entries.

    `kept` returns the retention of an organization's production entries in days. `test` is the retention of test
    entries in days.
    """
    if isinstance(database, SqliteDatabase):
        return 0
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.logs import partitions

    if not isinstance(database, PostgresDatabase):
        return 0
    try:
        return await partitions.drop_months(database, moment, kept, test)
    except StorageFault as fault:
        # A long export can lock the partition. Until it ends, `prune_entries` deletes the entries row by row.
        logger.warning("months of the log are not dropped in this round: %s", fault)
        return 0


async def prune_test_entries(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete the test entries of an organization that are older than `before`, and return their number."""
    of = (LogEntry.organization_id == organization_id, LogEntry.environment == TEST)
    place = tuple_(col(LogEntry.created_at), col(LogEntry.id))
    old = (
        select(LogEntry)
        .where(*of, LogEntry.created_at < before)
        .order_by(col(LogEntry.created_at), col(LogEntry.id))
    )

    async def work(session: AsyncSession) -> int:
        # Rows are locked, and rows locked by another gateway are skipped: otherwise both gateways would subtract the
        # size of the same entries from `log_bytes`.
        entries = (await session.exec(old.limit(batch).with_for_update(skip_locked=True))).all()
        if not entries:
            return 0
        places = [(entry.created_at, entry.id) for entry in entries]
        made = col(LogEntry.created_at)
        near = PartitionHint(made.between(places[0][0], places[-1][0]))
        await session.exec(delete(LogEntry).where(*of, near, place.in_(places)))  # type: ignore[arg-type]  # SQLModel's columns
        size = sum(entry_bytes(entry.action, entry.context) for entry in entries)
        held = col(Environment.log_bytes)
        await session.exec(
            update(Environment)
            .where(col(Environment.organization_id) == organization_id, col(Environment.name) == TEST)
            .values(log_bytes=case((held > size, held - size), else_=0))
        )
        return len(entries)

    async with database.reading() as session:
        if (await session.exec(old.limit(1))).first() is None:
            return 0
    return await in_batches(database, batch, work)


def kept_days(
    plans: Plans, plan: str, changed_at: datetime | None, before: int | None, moment: datetime
) -> int:
    """Return the retention of an organization's log entries in days; -1 means without limit.

    For a grace period after a change of plan, the longer retention of the two plans applies.

    Args:
        plans: All plans.
        plan: Name of the current plan.
        changed_at: Time of the last change of plan; None if the plan never changed.
        before: Retention of the previous plan in days; None if there is no previous plan.
        moment: The current time.
    """
    days = plans[plan].log_retention_days
    if before is None or changed_at is None or moment >= changed_at + RETENTION_GRACE:
        return days
    return longest(days, before)


async def tenants_with_old_rows(
    database: Database,
    table: type[Any],
    before: datetime,
    environment: str | None = None,
    plan: str | None = None,
) -> Sequence[RetentionTerms]:
    """Return the organizations that have rows older than `before` in a table, optionally of one environment or plan.

    The query reads only one index entry per organization, because most organizations have no such rows.
    """
    oldest = select(table.created_at).where(
        table.organization_id == Organization.id, col(table.created_at) < before
    )
    if environment is not None:
        oldest = oldest.where(table.environment == environment)
    oldest = oldest.order_by(col(table.created_at)).limit(1).correlate(Organization)
    query = select(
        Organization.id,
        Organization.plan,
        col(Organization.plan_changed_at),
        col(Organization.retention_days_before),
    ).where(oldest.scalar_subquery().is_not(None))
    if plan is not None:
        query = query.where(Organization.plan == plan)
    found: list[RetentionTerms] = []
    last = ""
    async with database.reading() as session:
        # The organizations are read in several statements. With many partitions, a single statement would exceed the
        # statement timeout.
        ids = select(Organization.id).order_by(col(Organization.id)).limit(ORGANIZATIONS_PER_QUERY)
        while some := (await session.exec(ids.where(Organization.id > last) if last else ids)).all():
            last = some[-1]
            within = col(Organization.id).between(some[0], last)
            found += [RetentionTerms._make(row) for row in (await session.exec(query.where(within))).all()]
    return found


async def prune_entries(database: Database, plans: Plans, batch: int, moment: datetime) -> int:
    """Delete the production entries that are past their organization's retention, and return their number."""
    removed = 0
    for plan in PLAN_NAMES:
        days = plans[plan].log_retention_days
        if days == UNLIMITED:
            continue
        for tenant in await tenants_with_old_rows(
            database, LogEntry, moment - timedelta(days=days), PRODUCTION, plan
        ):
            kept = kept_days(plans, *tenant[1:], moment)
            if kept == UNLIMITED:
                continue
            removed += await _prune_tenant(database, batch, tenant.id, moment - timedelta(days=kept))
    return removed


async def _prune_tenant(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete the production entries of an organization that are older than `before`, and return their number.

    Each step covers one month, so that PostgreSQL reads only one partition.
    """
    of = (col(LogEntry.organization_id) == organization_id, col(LogEntry.environment) == PRODUCTION)
    made = col(LogEntry.created_at)
    removed, since = 0, datetime.min.replace(tzinfo=UTC)
    while True:
        oldest = select(made).where(*of, made >= since, made < before).order_by(made).limit(1)
        async with database.reading() as session:
            begins = (await session.exec(oldest)).first()
        if begins is None:
            return removed
        since = min(month_start(begins, 1), before)
        removed += await delete_where(database, batch, LogEntry, *of, within=(made >= begins, made < since))
