"""Events of the payment provider (Stripe): verification of signatures, and updates of subscriptions and invoices.

The gateway applies each event at most once. Events can arrive in any order, so an event that is older than the stored
state changes nothing.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.billing.models import (
    APPLIED,
    STALE,
    UNLINKED,
    UNPRICED,
    Invoice,
    ProviderEvent,
    Subscription,
)
from toolgate_service.billing.schemas import EventFacts, InvoiceFacts, Receipt, SubscriptionFacts
from toolgate_service.billing.service import (
    CANCELED,
    current_subscription,
    is_entitled,
    plan_of,
    update_activation,
)
from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import PlanName, Plans
from toolgate_service.db.database import Database, now
from toolgate_service.organizations.models import Organization
from toolgate_service.organizations.service import change_plan

#: Maximum age of a signature in seconds. It prevents an attacker from sending a recorded event again later.
TOLERANCE = 300

HEADER = "Stripe-Signature"
#: Maximum length of the signature header in characters. A timestamp and a few signatures take about 300.
MAX_HEADER = 2_000


class ProviderSignature:
    """Verifier for the signatures of events. A valid signature proves that the payment provider sent the event.

    Raises:
        ModuleNotFoundError: The optional packages for billing are not installed: `pip install 'toolgate[billing]'`.
    """

    def __init__(self, secret: str) -> None:
        # Only gateways with billing import the library `stripe`. They create this object when they start, so that the
        # slow import does not delay the first event.
        from stripe import SignatureVerificationError, WebhookSignature

        self._secret = secret
        self._verify = WebhookSignature.verify_header
        self._wrong = SignatureVerificationError

    def require(self, header: str | None) -> str:
        """Return the signature header of a request, or raise an error if there is none.

        Call this method before the body is read, so that unsigned requests cost little.

        Raises:
            ApiError: 400 if the header is missing or too long.
        """
        if not header or len(header) > MAX_HEADER:
            raise _not_signed()
        return header

    def verify(self, body: bytes, header: str) -> None:
        """Verify that the provider signed the body with the shared secret within the last five minutes.

        Raises:
            ApiError: 400 if the signature is wrong or too old.
        """
        try:
            self._verify(body.decode("utf-8"), header, self._secret, TOLERANCE)
        except (self._wrong, ValueError, TypeError):
            # Do not show the library's message: it quotes the header and the body, and the exact reason would help an
            # attacker.
            raise _not_signed() from None


def _not_signed() -> ApiError:
    return ApiError(
        400,
        f"The {HEADER} header is missing, wrong or older than {TOLERANCE // 60} minutes; the provider "
        "must sign the body with the secret in TOOLGATE_STRIPE_WEBHOOK_SECRET",
    )


#: Statuses of subscriptions that have a failed payment.
FAILING = ("past_due", "unpaid")


class _Dated(Protocol):
    provider_updated_at: datetime
    provider_rank: int


async def apply_subscription(
    session: AsyncSession, organization_id: str, event: EventFacts, facts: SubscriptionFacts
) -> tuple[Subscription, bool]:
    """Store the subscription that an event reports, unless the stored state is newer.

    Returns:
        The stored subscription, and True if the event changed it.
    """
    query = select(Subscription).where(
        Subscription.organization_id == organization_id,
        Subscription.provider_subscription_id == facts.provider_id,
    )
    row = (await session.exec(query)).first()
    if row is not None and not (_is_newer(event, row) or _follows(event, facts, row)):
        return row, False
    failing_since = None
    if facts.status in FAILING:
        failing_since = event.at if row is None or row.failing_since is None else row.failing_since
    seen = not facts.before or (row is not None and _matches(facts.before, _stored_state(row)))
    values = _event_columns(event) | {
        "unseen": None if seen else strict_json.dumps(facts.before),
        "price_ids": strict_json.dumps(facts.price_ids),
        "status": facts.status,
        "current_period_start": facts.period_start,
        "current_period_end": facts.period_end,
        "cancel_at_period_end": facts.cancel_at_period_end,
        "trial_ends_at": facts.trial_ends_at,
        "trial_expired": facts.trial_expired,
        "failing_since": failing_since,
        "provider_created_at": facts.created_at,
    }
    if row is None:
        row = Subscription(
            id=new_id(),
            organization_id=organization_id,
            provider_subscription_id=facts.provider_id,
            created_at=now(session),
            **values,
        )
    session.add(row.sqlmodel_update(values))
    await session.flush()
    return row, True


async def apply_invoice(
    session: AsyncSession, organization_id: str, event: EventFacts, facts: InvoiceFacts
) -> bool:
    """Store the invoice that an event reports, and return True. If the stored state is newer, return False."""
    query = select(Invoice).where(
        Invoice.organization_id == organization_id, Invoice.provider_invoice_id == facts.provider_id
    )
    row = (await session.exec(query)).first()
    if row is not None and not _is_newer(event, row):
        return False
    failed_at = row.failed_at if row is not None else None
    # Only the first failed payment starts the grace period; later failures do not extend it.
    if facts.failed and failed_at is None:
        failed_at = event.at
    values = _event_columns(event) | {
        "amount": facts.amount,
        "currency": facts.currency,
        "status": facts.status,
        "invoice_pdf": facts.invoice_pdf,
        "failed_at": failed_at,
        "created_at": facts.created_at,
    }
    if row is None:
        row = Invoice(
            id=new_id(), organization_id=organization_id, provider_invoice_id=facts.provider_id, **values
        )
    session.add(row.sqlmodel_update(values))
    await session.flush()
    return True


def _event_columns(event: EventFacts) -> dict[str, Any]:
    return {
        "provider_customer_id": event.customer_id,
        "provider_updated_at": event.at,
        "provider_rank": event.rank,
    }


def _is_newer(event: EventFacts, row: _Dated) -> bool:
    return (event.at, event.rank) > (row.provider_updated_at, row.provider_rank)


def _follows(event: EventFacts, facts: SubscriptionFacts, row: Subscription) -> bool:
    # Stripe's timestamps are whole seconds, so two events can have the same timestamp. Each event contains the values
    # that its fields had before, which shows the order. This event is newer if its previous values equal the stored
    # state. It is older if the previous values of the stored event equal the values of this event.
    if (event.at, event.rank) != (row.provider_updated_at, row.provider_rank):
        return False
    came_before = row.unseen is not None and _matches(json.loads(row.unseen), facts.model_dump())
    return bool(facts.before) and _matches(facts.before, _stored_state(row)) and not came_before


def _stored_state(row: Subscription) -> dict[str, object]:
    return {
        "status": row.status,
        "cancel_at_period_end": row.cancel_at_period_end,
        "price_ids": json.loads(row.price_ids),
    }


def _matches(before: Mapping[str, object], state: Mapping[str, object]) -> bool:
    return all(state[name] == value for name, value in before.items())


logger = logging.getLogger("toolgate.gateway")

#: Result of processing an event: not applied, because the earlier result for the same event was `applied` or `stale`.
DUPLICATE = "duplicate"
#: Plan of an organization after its subscription has ended.
ENDED: PlanName = "free"


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """Settings for billing events: the plans, and the time that customers have to pay after a failed payment."""

    plans: Plans
    grace: timedelta


async def receive_event(context: AppContext, event: EventFacts) -> Receipt:
    """Apply an event of the payment provider, and return the response to the provider.

    Events that the gateway does not use are acknowledged but ignored: events about anything but subscriptions and
    invoices, and events of the wrong mode (live or test).
    """
    expected = context.settings.provider_livemode
    if event.livemode != expected:
        # Acknowledge the event: after an error, the provider would repeat it for three days and then disable the
        # endpoint.
        logger.warning(
            "event %r is ignored: its livemode is %s, but this gateway accepts only %s (TOOLGATE_PROVIDER_LIVEMODE)",
            event.id,
            event.livemode,
            expected,
        )
        detail = (
            f"livemode is {event.livemode}; this gateway accepts only {expected} (TOOLGATE_PROVIDER_LIVEMODE)"
        )
        return Receipt(outcome="ignored", detail=detail)
    if event.subscription is None and event.invoice is None:
        return Receipt(outcome="ignored", detail=f"the gateway does not use events of type {event.kind!r}")
    terms = BillingTerms(context.plans, timedelta(days=context.settings.payment_grace_days))
    return Receipt(outcome=await apply_event(context.database, terms, event))


async def apply_event(database: Database, terms: BillingTerms, event: EventFacts) -> str:
    """Apply an event to the organization that is linked to the event's customer, and return the result.

    If no organization is linked to the customer, the event is stored, and applied when an operator links the customer.
    If no plan contains a price of the subscription, an operator can add the price to a plan, and have the provider send
    the event again.
    """
    while True:
        async with database.reading() as session:
            organization_id = await _find_linked_organization(session, event.customer_id)
        locks = [customer_lock(event.customer_id)] + ([organization_id] if organization_id else [])
        async with database.writing(*locks) as session:
            # The link of the customer cannot change in this transaction: it holds the customer's lock, which every
            # transaction that links the customer also needs.
            if await _find_linked_organization(session, event.customer_id) == organization_id:
                return await _apply_once(session, terms, organization_id, event)


async def apply_waiting_events(session: AsyncSession, terms: BillingTerms, organization: Organization) -> int:
    """Apply the events that arrived before the organization was linked to its customer, and return their number."""
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


def customer_lock(customer_id: str | None) -> str:
    """Return the name of the lock that transactions hold while they change data of this customer."""
    return f"provider customer {customer_id}"


async def _find_linked_organization(session: AsyncSession, customer_id: str | None) -> str | None:
    # An event without a customer must not match the organizations whose customer id is null.
    if customer_id is None:
        return None
    query = select(Organization.id).where(Organization.provider_customer_id == customer_id)
    return (await session.exec(query)).first()


async def _apply_once(
    session: AsyncSession, terms: BillingTerms, organization_id: str | None, event: EventFacts
) -> str:
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
        # Write the row now: if another transaction stores the same event at the same time, one of the two fails because
        # of the duplicate primary key, and the event is applied only once.
        await session.flush()
    if organization_id is None:
        record.facts = event.model_dump_json()
        logger.warning(
            "event %r belongs to customer %r, who is not linked to an organization; link the customer with: "
            "toolgate admin link-customer ORGANIZATION %s",
            event.id,
            event.customer_id,
            event.customer_id,
        )
        return UNLINKED
    organization = (await session.exec(select(Organization).where(Organization.id == organization_id))).one()
    is_repeated = record.outcome == UNPRICED
    record.outcome = await _apply(session, terms, organization, event, is_repeated=is_repeated)
    record.facts = None
    return record.outcome


async def _apply(
    session: AsyncSession,
    terms: BillingTerms,
    organization: Organization,
    event: EventFacts,
    *,
    is_repeated: bool = False,
) -> str:
    outcome = STALE
    if event.subscription is not None:
        row, changed = await apply_subscription(session, organization.id, event, event.subscription)
        # A repeated event does not change the subscription. But an operator may have added the subscription's prices to
        # a plan since the first attempt, so look up the plan again.
        if changed or is_repeated:
            outcome = await _follow(session, terms, organization, row)
    elif event.invoice is not None and await apply_invoice(session, organization.id, event, event.invoice):
        outcome = APPLIED
    if outcome != STALE:
        await update_activation(session, organization, terms.grace)
    return outcome


async def _follow(
    session: AsyncSession, terms: BillingTerms, organization: Organization, changed: Subscription
) -> str:
    current = await current_subscription(session, organization)
    if current is None or not is_entitled(current):
        # Only a cancelled subscription ends the plan. Any other subscription without entitlement was never active, so
        # it has not changed the plan.
        if changed.status == CANCELED:
            change_plan(session, terms.plans, organization, ENDED, by="provider")
        return APPLIED
    plan = plan_of(terms.plans, current)
    if plan is None:
        logger.warning(
            "subscription %r of organization %r has the prices %s, none of which belongs to a plan; add one "
            "to 'provider_price_ids' in the plan file, and let the provider send the event again",
            current.provider_subscription_id,
            organization.slug,
            current.price_ids,
        )
        return UNPRICED
    change_plan(session, terms.plans, organization, plan, by="provider")
    return APPLIED
