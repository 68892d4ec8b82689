"""Removing what is older than it is kept (spec §8, decisions §7, §8, §12)."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Mapped
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.models import Invitation, LoginFailures, PasswordReset, Session
from toolgate_service.accounts.slowing import FAMILIAR
from toolgate_service.approvals.models import Approval, ApprovalVote
from toolgate_service.audit.models import AuditEntry
from toolgate_service.billing.models import ProviderEvent
from toolgate_service.clock import wire
from toolgate_service.counts.ageing import prune_counts
from toolgate_service.grants.models import Grant, GrantVote
from toolgate_service.logs.models import IdempotencyKey, LogEntry
from toolgate_service.logs.months.catalogue import month_of
from toolgate_service.organizations.models import Organization, RateWindow
from toolgate_service.plans import PLAN_NAMES, RETENTION_GRACE, UNLIMITED, Plans, longest, shortest
from toolgate_service.storage.base import PRODUCTION, TEST, Table
from toolgate_service.storage.database import Database
from toolgate_service.upkeep.batches import delete_where, in_batches
from toolgate_service.upkeep.heartbeat import steady_from
from toolgate_service.upkeep.months import drop_months
from toolgate_service.upkeep.rehearsals import prune_test_entries
from toolgate_service.webhooks.retention import prune_webhooks

#: days that test data is kept
TEST_DAYS = 7
#: at least a year
RECORDS = timedelta(days=366)
#: how long an invitation is shown as expired, and failed logins are kept at most
SHOWN = timedelta(days=30)
FAILURES = timedelta(days=30)
#: for how long links to reset a password are counted, also those that a newer one replaced
RESETS = timedelta(hours=1)
RATES = timedelta(hours=1)
#: organizations that one statement looks at
AT_ONCE = 1_000
#: the payment provider sends an event again for 30 days at most
EVENTS = timedelta(days=90)


class RetentionHalted(Exception):
    """Nothing is removed, for the clock has jumped; the message says until when."""


class _Tenant(NamedTuple):
    id: str
    plan: str
    plan_changed_at: datetime | None
    retention_days_before: int | None


async def prune(database: Database, plans: Plans, batch: int, *, force: bool = False) -> Counter[str]:
    """Remove everything that is kept no longer.

    Args:
        database: where it is removed.
        plans: how long log entries are kept.
        batch: how many rows a transaction removes.
        force: although the clock has jumped.

    Returns:
        How many rows of which table were removed.

    Raises:
        RetentionHalted: the clock was a day ahead of the newest heartbeat, less than a day ago.
    """
    moment, trusted = await steady_from(database)
    # Of a clock that was ahead and is no more: until then its organizations would be let through nothing. So also, and
    # above all, while a jump is not over.
    await delete_where(database, batch, RateWindow, col(RateWindow.minute) > _minute(moment + RATES))
    if trusted > moment and not force:
        raise RetentionHalted(
            "the clock is, or was of late, more than a day ahead of the newest heartbeat: nothing is removed until "
            f"{wire(trusted)}"
        )
    counts = await _prune_expired(database, batch, moment)
    counts += await prune_webhooks(database, batch, moment)
    before = moment - timedelta(days=TEST_DAYS)
    for tenant in await _with_old(database, LogEntry, before, TEST):
        counts["log_entries"] += await prune_test_entries(database, batch, tenant.id, before)
    # Behind the test entries, whose bytes are counted, and before all others: what goes whole is not deleted one by one.
    counts["log_entries"] += await drop_months(
        database,
        moment,
        lambda plan, changed_at, kept: kept_days(plans, plan, changed_at, kept, moment),
        TEST_DAYS,
    )
    counts["log_entries"] += await _prune_entries(database, plans, batch, moment)
    counts += await prune_counts(
        database,
        batch,
        moment,
        lambda tenant: kept_days(plans, *tenant[1:], moment),
        shortest=shortest(*(plan.log_retention_days for plan in plans.values())),
        test=TEST_DAYS,
    )
    return counts + await _prune_records(database, batch, moment)


def kept_days(
    plans: Plans, plan: str, changed_at: datetime | None, before: int | None, moment: datetime
) -> int:
    """Return for how many days an organization's log entries are kept; -1 for ever.

    Args:
        plans: how long each plan keeps them.
        plan: the organization's.
        changed_at: since when.
        before: how long the plan before kept them; null when not longer.
        moment: the present one.
    """
    days = plans[plan].log_retention_days
    if before is None or changed_at is None or moment >= changed_at + RETENTION_GRACE:
        return days
    return longest(days, before)


async def _prune_expired(database: Database, batch: int, moment: datetime) -> Counter[str]:
    rules: Sequence[tuple[type[Table], ColumnElement[bool]]] = (
        (Session, (col(Session.expires_at) <= moment) & (col(Session.created_at) <= moment - FAMILIAR)),
        (IdempotencyKey, col(IdempotencyKey.expires_at) <= moment),
        (
            PasswordReset,
            (col(PasswordReset.expires_at) <= moment) & (col(PasswordReset.created_at) <= moment - RESETS),
        ),
        (Invitation, col(Invitation.expires_at) <= moment - SHOWN),
        (ProviderEvent, col(ProviderEvent.received_at) <= moment - EVENTS),
        (LoginFailures, col(LoginFailures.last_failed_at) <= moment - FAILURES),
        (RateWindow, col(RateWindow.minute) < _minute(moment - RATES)),
    )
    return Counter(
        {str(table.__tablename__): await delete_where(database, batch, table, rule) for table, rule in rules}
    )


def _minute(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


async def _with_old(
    database: Database,
    table: type[LogEntry | Approval | Grant | AuditEntry],
    before: datetime,
    environment: str | None = None,
    plan: str | None = None,
) -> Sequence[_Tenant]:
    """Return the organizations whose oldest row in a table is from before a moment.

    For each organization that is one look into an index: most have nothing to remove.
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
    found: list[_Tenant] = []
    last = ""
    async with database.reading() as session:
        # Not all in one statement: where months are many, it would take longer than a statement may.
        ids = select(Organization.id).order_by(col(Organization.id)).limit(AT_ONCE)
        while some := (await session.exec(ids.where(Organization.id > last) if last else ids)).all():
            last = some[-1]
            within = col(Organization.id).between(some[0], last)
            found += [_Tenant._make(row) for row in (await session.exec(query.where(within))).all()]
    return found


async def _prune_entries(database: Database, plans: Plans, batch: int, moment: datetime) -> int:
    removed = 0
    for plan in PLAN_NAMES:
        days = plans[plan].log_retention_days
        if days == UNLIMITED:
            continue
        for tenant in await _with_old(database, LogEntry, moment - timedelta(days=days), PRODUCTION, plan):
            kept = kept_days(plans, *tenant[1:], moment)
            if kept == UNLIMITED:
                continue
            removed += await _prune_tenant(database, batch, tenant.id, moment - timedelta(days=kept))
    return removed


async def _prune_tenant(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete an organization's production entries from before a moment, a month at a time, and return how many."""
    of = (col(LogEntry.organization_id) == organization_id, col(LogEntry.environment) == PRODUCTION)
    made = col(LogEntry.created_at)
    removed, since = 0, datetime.min.replace(tzinfo=UTC)
    while True:
        oldest = select(made).where(*of, made >= since, made < before).order_by(made).limit(1)
        async with database.reading() as session:
            begins = (await session.exec(oldest)).first()
        if begins is None:
            return removed
        since = min(month_of(begins, 1), before)
        removed += await delete_where(database, batch, LogEntry, *of, within=(made >= begins, made < since))


async def _prune_records(database: Database, batch: int, moment: datetime) -> Counter[str]:
    counts: Counter[str] = Counter()
    for environment, age in ((PRODUCTION, RECORDS), (TEST, timedelta(days=TEST_DAYS))):
        before = moment - age
        for tenant in await _with_old(database, Approval, before, environment):
            counts["approvals"] += await _prune_approvals(database, batch, tenant.id, environment, before)
        for tenant in await _with_old(database, Grant, before, environment):
            counts["grants"] += await _prune_grants(database, batch, tenant.id, environment, before)
    for tenant in await _with_old(database, AuditEntry, moment - RECORDS):
        counts["audit_entries"] += await delete_where(
            database,
            batch,
            AuditEntry,
            col(AuditEntry.organization_id) == tenant.id,
            col(AuditEntry.created_at) < moment - RECORDS,
        )
    return counts


async def _prune_approvals(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> int:
    old = select(Approval.id).where(
        Approval.organization_id == organization_id,
        Approval.environment == environment,
        Approval.created_at < before,
        # What may still be used, or was decided later, stays.
        Approval.expires_at < before,
        col(Approval.decided_at).is_(None) | (col(Approval.decided_at) < before),
    )
    votes = col(ApprovalVote.approval_id)
    return await _prune_voted(
        database, batch, organization_id, old, (ApprovalVote, votes), (Approval, col(Approval.id))
    )


async def _prune_grants(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> int:
    old = select(Grant.id).where(
        Grant.organization_id == organization_id,
        Grant.environment == environment,
        Grant.created_at < before,
        Grant.expires_at < before,
    )
    votes = col(GrantVote.grant_id)
    return await _prune_voted(
        database, batch, organization_id, old, (GrantVote, votes), (Grant, col(Grant.id))
    )


async def _prune_voted(
    database: Database,
    batch: int,
    organization_id: str,
    old: SelectOfScalar[str],
    *tables: tuple[type[Table], Mapped[str]],
) -> int:
    async def work(session: AsyncSession) -> int:
        ids = (await session.exec(old.limit(batch))).all()
        for table, owner in tables:
            if ids:
                await session.exec(delete(table).where(owner.in_(ids)))
        return len(ids)

    async with database.reading() as session:
        if (await session.exec(old.limit(1))).first() is None:
            return 0
    return await in_batches(database, batch, work, organization_id)
