"""Dunning: deactivation of organizations whose payment is overdue or whose trial has expired."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import exists
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.billing.models import Invoice, Subscription
from toolgate_service.billing.service import TRIALING, current_subscription
from toolgate_service.db.database import Database, now
from toolgate_service.db.retry import with_retry
from toolgate_service.organizations.lifecycle import deactivate, reactivate
from toolgate_service.organizations.models import PAYMENT, Deactivation, Organization

#: time that the gateway waits after the end of a trial, so that the provider can report the outcome
TRIAL_SLACK = timedelta(hours=1)

#: statuses of invoices that need no payment
SETTLED = ("paid", "void")


async def deactivate_overdue(database: Database, grace: timedelta) -> int:
    """Deactivate all organizations with overdue payments, and return their number.

    A payment may arrive during this job. Each organization is therefore locked and checked again in its own
    transaction.
    """
    async with database.reading() as session:
        candidates = await overdue_organizations(session, grace)
    return sum(
        [await with_retry(partial(_update_one, database, candidate, grace)) for candidate in candidates]
    )


async def _update_one(database: Database, organization_id: str, grace: timedelta) -> bool:
    async with database.writing(organization_id) as session:
        query = select(Organization).where(Organization.id == organization_id)
        return await update_activation(session, (await session.exec(query)).one(), grace)


async def overdue_organizations(session: AsyncSession, grace: timedelta) -> Sequence[str]:
    """Return the ids of organizations that may be overdue and are not deactivated for this reason yet."""
    moment = now(session)
    # One query per kind of debt, so that each query can use its own index.
    candidates = (
        _select_organizations_with(Invoice).where(
            col(Invoice.failed_at) <= moment - grace, col(Invoice.status).not_in(SETTLED)
        ),
        _select_organizations_with(Subscription).where(col(Subscription.failing_since) <= moment - grace),
        _select_organizations_with(Subscription).where(
            col(Subscription.status) == TRIALING, col(Subscription.trial_ends_at) <= moment - TRIAL_SLACK
        ),
    )
    found = [organization_id for query in candidates for organization_id in (await session.exec(query)).all()]
    return sorted(set(found))


def _select_organizations_with(what: type[Invoice | Subscription]) -> SelectOfScalar[str]:
    """Return a query for the ids of organizations that have an invoice or subscription in the table `what`.

    Only rows of the organization's current customer at the provider count. Organizations that are already deactivated
    for a missing payment are excluded.
    """
    known = exists().where(
        col(Deactivation.organization_id) == col(Organization.id), col(Deactivation.cause) == PAYMENT
    )
    return (
        select(Organization.id)
        .join(what, col(what.organization_id) == col(Organization.id))
        .where(what.provider_customer_id == Organization.provider_customer_id, ~known)
    )


async def update_activation(session: AsyncSession, organization: Organization, grace: timedelta) -> bool:
    """Deactivate the organization if a payment is overdue; otherwise end a deactivation for this reason.

    Return True if this call deactivated the organization.
    """
    if await _is_overdue(session, organization, grace):
        return await deactivate(session, organization, PAYMENT)
    await reactivate(session, organization, PAYMENT)
    return False


async def waive_debts(session: AsyncSession, organization: Organization) -> None:
    """Waive all overdue payments of the organization. A payment that fails later starts a new grace period."""
    for invoice in (
        await session.exec(select(Invoice).where(Invoice.organization_id == organization.id))
    ).all():
        invoice.failed_at = None
    for subscription in (
        await session.exec(select(Subscription).where(Subscription.organization_id == organization.id))
    ).all():
        subscription.failing_since = None
        subscription.trial_ends_at = None
        subscription.trial_expired = False


async def _is_overdue(session: AsyncSession, organization: Organization, grace: timedelta) -> bool:
    moment = now(session)
    subscription = await current_subscription(session, organization)
    if subscription is not None and _trial_is_over(subscription, moment):
        return True
    since = [] if subscription is None else [subscription.failing_since]
    query = select(Invoice.failed_at).where(
        Invoice.organization_id == organization.id,
        Invoice.provider_customer_id == organization.provider_customer_id,
        col(Invoice.failed_at).is_not(None),
        col(Invoice.status).not_in(SETTLED),
    )
    since += (await session.exec(query)).all()
    return any(one is not None and one <= moment - grace for one in since)


def _trial_is_over(subscription: Subscription, moment: datetime) -> bool:
    ran_out = (
        subscription.status == TRIALING
        and subscription.trial_ends_at is not None
        and subscription.trial_ends_at <= moment - TRIAL_SLACK
    )
    return ran_out or subscription.trial_expired
