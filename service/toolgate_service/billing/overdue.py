"""Who owes: an organization whose payment failed and whose grace is over, or whose trial has run out (decisions §11)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import exists
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.billing.models import Invoice, Subscription
from toolgate_service.billing.subscriptions import TRIALING, current_subscription
from toolgate_service.organizations.activity import deactivate, reactivate
from toolgate_service.organizations.models import PAYMENT, Deactivation, Organization
from toolgate_service.storage.database import Database, now
from toolgate_service.storage.races import anew

#: how long after a trial's end the provider may take to say what became of it
TRIAL_SLACK = timedelta(hours=1)

#: an invoice of these is owed no longer
SETTLED = ("paid", "void")


async def deactivate_overdue(database: Database, grace: timedelta) -> int:
    """Deactivate every organization whose time to pay has passed; return how many.

    Each in a transaction and turn of its own, in which everything is looked at again: a payment that comes meanwhile
    wins.
    """
    async with database.reading() as session:
        suspects = await overdue_organizations(session, grace)
    return sum([await anew(partial(_settle_one, database, suspect, grace)) for suspect in suspects])


async def _settle_one(database: Database, organization_id: str, grace: timedelta) -> bool:
    async with database.writing(organization_id) as session:
        query = select(Organization).where(Organization.id == organization_id)
        return await settle(session, (await session.exec(query)).one(), grace)


async def overdue_organizations(session: AsyncSession, grace: timedelta) -> Sequence[str]:
    """Return the organizations that may have to be deactivated and are not yet."""
    moment = now(session)
    # A select each, so that each finds its few rows by an index of its own.
    suspects = (
        _having(Invoice).where(col(Invoice.failed_at) <= moment - grace, col(Invoice.status).not_in(SETTLED)),
        _having(Subscription).where(col(Subscription.failing_since) <= moment - grace),
        _having(Subscription).where(
            col(Subscription.status) == TRIALING, col(Subscription.trial_ends_at) <= moment - TRIAL_SLACK
        ),
    )
    found = [organization_id for query in suspects for organization_id in (await session.exec(query)).all()]
    return sorted(set(found))


def _having(what: type[Invoice | Subscription]) -> SelectOfScalar[str]:
    """Return the query for organizations by what their present customer owes, unless they are known for it."""
    known = exists().where(
        col(Deactivation.organization_id) == col(Organization.id), col(Deactivation.cause) == PAYMENT
    )
    return (
        select(Organization.id)
        .join(what, col(what.organization_id) == col(Organization.id))
        .where(what.provider_customer_id == Organization.provider_customer_id, ~known)
    )


async def settle(session: AsyncSession, organization: Organization, grace: timedelta) -> bool:
    """Make an organization inactive if its time to pay has passed, and take that back once it has paid.

    Returns:
        Whether it was deactivated just now.
    """
    if await _is_overdue(session, organization, grace):
        return await deactivate(session, organization, PAYMENT)
    await reactivate(session, organization, PAYMENT)
    return False


async def forgive(session: AsyncSession, organization: Organization) -> None:
    """Let go what is owed until now: an operator's word. The next failure begins a grace of its own."""
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
