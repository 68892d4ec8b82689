"""Taking the provider's events: each applied once, whoever delivers it how often and in which order (decisions §11)."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.billing.apply import apply_invoice, apply_subscription
from toolgate_service.billing.facts import EventFacts
from toolgate_service.billing.models import APPLIED, STALE, UNLINKED, UNPRICED, ProviderEvent, Subscription
from toolgate_service.billing.overdue import settle
from toolgate_service.billing.subscriptions import (
    CANCELED,
    current_subscription,
    is_entitled,
    plan_of,
)
from toolgate_service.organizations.models import Organization
from toolgate_service.organizations.plan_changes import change_plan
from toolgate_service.plans import PlanName, Plans
from toolgate_service.storage.database import Database, now

logger = logging.getLogger("toolgate.gateway")

#: an event of this id was applied before
DUPLICATE = "duplicate"
#: the plan of whoever's subscription has ended
ENDED: PlanName = "free"


@dataclass(frozen=True, slots=True)
class Terms:
    """What follows from an event besides what it says."""

    plans: Plans
    grace: timedelta


async def take(database: Database, terms: Terms, event: EventFacts) -> str:
    """Apply an event to the organization that an operator linked its customer to; return what became of it.

    An event that waited for its customer's link, or for a plan with its price, may be sent again.
    """
    while True:
        async with database.reading() as session:
            organization_id = await _linked(session, event.customer_id)
        turns = [customer_turn(event.customer_id)] + ([organization_id] if organization_id else [])
        async with database.writing(*turns) as session:
            # Linking takes the customer's turn too: within it the answer stays what it is.
            if await _linked(session, event.customer_id) == organization_id:
                return await _take(session, terms, organization_id, event)


async def catch_up(session: AsyncSession, terms: Terms, organization: Organization) -> int:
    """Apply what came for an organization's customer before it was linked, in order; return how many events."""
    query = (
        select(ProviderEvent)
        .where(
            ProviderEvent.provider_customer_id == organization.provider_customer_id,
            ProviderEvent.outcome == UNLINKED,
        )
        .order_by(col(ProviderEvent.provider_created_at), col(ProviderEvent.received_at))
    )
    waiting = (await session.exec(query)).all()
    for record in waiting:
        event = EventFacts.model_validate_json(record.facts or "")
        record.outcome = await _apply(session, terms, organization, event)
        record.facts = None
    return len(waiting)


def customer_turn(customer_id: str | None) -> str:
    """Return the turn of whoever acts on a customer of the provider."""
    return f"provider customer {customer_id}"


async def _linked(session: AsyncSession, customer_id: str | None) -> str | None:
    # A null customer would be found in every organization that is not linked.
    if customer_id is None:
        return None
    query = select(Organization.id).where(Organization.provider_customer_id == customer_id)
    return (await session.exec(query)).first()


async def _take(session: AsyncSession, terms: Terms, organization_id: str | None, event: EventFacts) -> str:
    record = (await session.exec(select(ProviderEvent).where(ProviderEvent.id == event.id))).first()
    if record is not None and record.outcome in {APPLIED, STALE}:
        return DUPLICATE
    if record is None:
        record = ProviderEvent(
            id=event.id,
            kind=event.kind,
            provider_customer_id=event.customer_id,
            provider_created_at=event.at,
            outcome=UNLINKED,
            received_at=now(session),
        )
        session.add(record)
        # The primary key settles what no turn does: one of two deliveries stops here.
        await session.flush()
    if organization_id is None:
        record.facts = event.model_dump_json()
        logger.warning(
            "event %r is about customer %r, who is linked to no organization; link it with: "
            "toolgate admin link-customer ORGANIZATION %s",
            event.id,
            event.customer_id,
            event.customer_id,
        )
        return UNLINKED
    organization = (await session.exec(select(Organization).where(Organization.id == organization_id))).one()
    again = record.outcome == UNPRICED
    record.outcome = await _apply(session, terms, organization, event, again=again)
    record.facts = None
    return record.outcome


async def _apply(
    session: AsyncSession, terms: Terms, organization: Organization, event: EventFacts, *, again: bool = False
) -> str:
    outcome = STALE
    if event.subscription is not None:
        row, changed = await apply_subscription(session, organization.id, event, event.subscription)
        # What is known already is looked at again where it lacked nothing but a plan.
        if changed or again:
            outcome = await _follow(session, terms, organization, row)
    elif event.invoice is not None and await apply_invoice(session, organization.id, event, event.invoice):
        outcome = APPLIED
    if outcome != STALE:
        await settle(session, organization, terms.grace)
    return outcome


async def _follow(
    session: AsyncSession, terms: Terms, organization: Organization, changed: Subscription
) -> str:
    current = await current_subscription(session, organization)
    if current is None or not is_entitled(current):
        # One that never began has bought nothing that could end.
        if changed.status == CANCELED:
            change_plan(session, terms.plans, organization, ENDED, by="provider")
        return APPLIED
    plan = plan_of(terms.plans, current)
    if plan is None:
        logger.warning(
            "subscription %r of organization %r has the prices %s, which buy no plan; name one in "
            "'provider_price_ids' of the plan file and send the event again",
            current.provider_subscription_id,
            organization.slug,
            current.price_ids,
        )
        return UNPRICED
    change_plan(session, terms.plans, organization, plan, by="provider")
    return APPLIED
