"""Background jobs, for example the expiry of approval requests, reminders, and the deletion of old rows."""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Mapped
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.access_requests.callbacks import send_callbacks
from toolgate_service.access_requests.models import AccessRequest, AccessRequestItem
from toolgate_service.accounts.login_throttle import KNOWN_ADDRESS_PERIOD
from toolgate_service.accounts.models import Invitation, LoginFailures, PasswordReset, Session
from toolgate_service.approvals.models import Approval, ApprovalVote
from toolgate_service.approvals.service import expire_approvals, remind
from toolgate_service.audit.models import AuditEntry
from toolgate_service.billing.models import ProviderEvent
from toolgate_service.billing.service import deactivate_overdue
from toolgate_service.budgets.service import prune_budgets
from toolgate_service.core.clock import wire
from toolgate_service.core.plans import Plans
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import Database
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION, TEST, Table
from toolgate_service.decisions.service import ContextRetention, prune_decisions
from toolgate_service.grants.models import Grant, GrantVote
from toolgate_service.jobs.batches import delete_where, in_batches
from toolgate_service.jobs.scheduler import Job, RetentionHalted, steady_from
from toolgate_service.logs.counts import roll_up
from toolgate_service.logs.models import IdempotencyKey, LogEntry
from toolgate_service.logs.repository import tenants_with_old_rows
from toolgate_service.logs.service import (
    TEST_DAYS,
    announce_deletions,
    drop_months,
    make_months,
    prune_counts,
    prune_entries,
    prune_test_entries,
)
from toolgate_service.organizations.models import RateWindow
from toolgate_service.scratch.service import remove_scratch
from toolgate_service.transparency.chunks import announce_retention
from toolgate_service.transparency.leaves import APPROVAL, AUDIT_EVENT
from toolgate_service.webhooks.repository import prune_webhooks

logger = logging.getLogger("toolgate.gateway")

#: Time after which approval requests and temporary approvals of the production environment, and all audit events, are
#: deleted. With 366 days, they are kept for at least one year, even in a leap year.
RECORDS = timedelta(days=366)
#: Time for which an expired invitation is kept before it is deleted.
INVITATIONS = timedelta(days=30)
FAILED_LOGINS = timedelta(days=30)
#: Minimum age at which an expired password reset is deleted. Until then, it counts towards the hourly limit of reset
#: e-mails.
PASSWORD_RESETS = timedelta(hours=1)
RATE_WINDOWS = timedelta(hours=1)
#: Time after which events of the payment provider are deleted. The provider repeats an event for at most 30 days.
PROVIDER_EVENTS = timedelta(days=90)


def frequent_jobs(database: Database, settings: Settings) -> Sequence[Job]:
    """Return the jobs that every gateway process runs every few seconds.

    Locks in the database ensure that each change is made by only one process.
    """

    async def reminding() -> None:
        await remind(database, settings.prune_batch)

    async def expiry() -> None:
        expired = await expire_approvals(database, settings.prune_batch)
        if expired:
            logger.info("%d approval requests have expired", expired)

    async def callbacks() -> None:
        await send_callbacks(database)

    async def scratch() -> None:
        await remove_scratch(database, settings.prune_batch)

    return (reminding, expiry, callbacks, scratch)


def maintenance_jobs(database: Database, settings: Settings, plans: Plans) -> Sequence[Job]:
    """Return the maintenance jobs, in the order in which the scheduler runs them."""
    contexts = ContextRetention(settings.decision_context_days)

    async def retention() -> None:
        counts = await prune(database, plans, settings.prune_batch, contexts)
        if counts.total():
            removed = ", ".join(f"{count} {table}" for table, count in sorted(counts.items()) if count)
            logger.info("retention removed %s", removed)

    async def months() -> None:
        await make_months(database)

    async def folding() -> None:
        await roll_up(database, settings.prune_batch)

    async def payments() -> None:
        deactivated = await deactivate_overdue(database, timedelta(days=settings.payment_grace_days))
        if deactivated:
            logger.warning("%d organizations were deactivated: their payments are overdue", deactivated)

    return (payments, months, folding, retention)


async def prune(
    database: Database,
    plans: Plans,
    batch: int,
    contexts: ContextRetention | None = None,
    *,
    force: bool = False,
) -> Counter[str]:
    """Delete rows whose retention period has ended, and return the number of deleted rows by table name.

    Args:
        database: Database of the gateway.
        plans: Plans, which define how long log entries are kept.
        batch: Maximum number of rows that one transaction deletes.
        contexts: Retention of the contexts of decisions; None to keep all contexts.
        force: True to delete rows even if the clock has recently jumped forward.

    Raises:
        RetentionHalted: The clock has recently jumped forward by more than a day, so rows may look older than they are,
            and `force` is False.
    """
    moment, trusted = await steady_from(database)
    # Delete rate limit windows in the future even while other deletions are halted. A wrong clock has created them, and
    # they would limit the requests of their organizations until the time of the windows.
    await delete_where(database, batch, RateWindow, col(RateWindow.minute) > _minute(moment + RATE_WINDOWS))
    if trusted > moment and not force:
        raise RetentionHalted(
            "this machine's clock is, or recently was, more than a day ahead of the time of the latest "
            "maintenance round; to protect data from a wrong clock, no rows are deleted until "
            f"{wire(trusted)}"
        )
    counts = await _prune_expired(database, batch, moment)
    counts += await prune_webhooks(database, batch, moment)
    before = moment - timedelta(days=TEST_DAYS)
    for tenant in await tenants_with_old_rows(database, LogEntry, before, TEST):
        counts["log_entries"] += await prune_test_entries(database, batch, tenant.id, before)
    # Drop partitions only after old test entries were deleted, because the sizes of those entries must first be
    # subtracted from the stored size of each test log. Drop them before old production entries are deleted, because
    # dropping is faster than deleting row by row.
    await announce_deletions(database, plans, moment)
    counts["log_entries"] += await drop_months(database, plans, moment)
    counts["log_entries"] += await prune_entries(database, plans, batch, moment)
    counts += await prune_counts(database, plans, batch, moment)
    counts += await prune_budgets(database, batch, moment)
    counts["decisions"] += await prune_decisions(database, plans, batch, moment)
    if contexts is not None:
        counts["contexts of decisions"] += await contexts.clear(database, batch, moment)
    return counts + await _prune_records(database, batch, moment)


async def _prune_expired(database: Database, batch: int, moment: datetime) -> Counter[str]:
    rules: Sequence[tuple[type[Table], ColumnElement[bool]]] = (
        (
            Session,
            (col(Session.expires_at) <= moment) & (col(Session.created_at) <= moment - KNOWN_ADDRESS_PERIOD),
        ),
        (IdempotencyKey, col(IdempotencyKey.expires_at) <= moment),
        (
            PasswordReset,
            (col(PasswordReset.expires_at) <= moment)
            & (col(PasswordReset.created_at) <= moment - PASSWORD_RESETS),
        ),
        (Invitation, col(Invitation.expires_at) <= moment - INVITATIONS),
        (ProviderEvent, col(ProviderEvent.received_at) <= moment - PROVIDER_EVENTS),
        # Delete the items before the access requests to which they refer.
        (AccessRequestItem, _has_ended(AccessRequestItem, moment)),
        (AccessRequest, _has_ended(AccessRequest, moment)),
        (LoginFailures, col(LoginFailures.last_failed_at) <= moment - FAILED_LOGINS),
        (RateWindow, col(RateWindow.minute) < _minute(moment - RATE_WINDOWS)),
    )
    return Counter(
        {str(table.__tablename__): await delete_where(database, batch, table, rule) for table, rule in rules}
    )


def _has_ended(table: type[AccessRequest | AccessRequestItem], moment: datetime) -> ColumnElement[bool]:
    """Return the condition for rows that are deleted: as old as the approval requests that are deleted."""
    is_old = col(table.expires_at) <= moment - timedelta(days=TEST_DAYS)
    return is_old & ((col(table.environment) == TEST) | (col(table.expires_at) <= moment - RECORDS))


def _minute(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


async def _prune_records(database: Database, batch: int, moment: datetime) -> Counter[str]:
    counts: Counter[str] = Counter()
    for environment, age in ((PRODUCTION, RECORDS), (TEST, timedelta(days=TEST_DAYS))):
        before = moment - age
        for tenant in await tenants_with_old_rows(database, Approval, before, environment):
            await announce_retention(database, APPROVAL, tenant.id, environment, before)
            counts["approvals"] += await _prune_approvals(database, batch, tenant.id, environment, before)
        for tenant in await tenants_with_old_rows(database, Grant, before, environment):
            counts["grants"] += await _prune_grants(database, batch, tenant.id, environment, before)
    for tenant in await tenants_with_old_rows(database, AuditEntry, moment - RECORDS):
        for environment in ENVIRONMENTS:
            await announce_retention(database, AUDIT_EVENT, tenant.id, environment, moment - RECORDS)
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
        # Delete only requests that expired before this time and, if they were decided, were decided before it.
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
