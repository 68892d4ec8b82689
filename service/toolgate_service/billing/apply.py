"""Writing down what an event says, by the provider's order and not by that of arrival (decisions §11)."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.billing.facts import EventFacts, InvoiceFacts, SubscriptionFacts
from toolgate_service.billing.models import Invoice, Subscription
from toolgate_service.ids import new_id
from toolgate_service.storage.database import now

#: the provider asked for money and did not get it
FAILING = ("past_due", "unpaid")


class _Dated(Protocol):
    provider_updated_at: datetime
    provider_rank: int


async def apply_subscription(
    session: AsyncSession, organization_id: str, event: EventFacts, facts: SubscriptionFacts
) -> tuple[Subscription, bool]:
    """Return the event's subscription and whether the event changed it; older than what is known, it does not."""
    query = select(Subscription).where(
        Subscription.organization_id == organization_id,
        Subscription.provider_subscription_id == facts.provider_id,
    )
    row = (await session.exec(query)).first()
    if row is not None and not (_is_newer(event, row) or _continues(event, facts, row)):
        return row, False
    failing_since = None
    if facts.status in FAILING:
        failing_since = event.at if row is None or row.failing_since is None else row.failing_since
    seen = not facts.before or (row is not None and _holds(facts.before, _known(row)))
    values = _of(event) | {
        "unseen": None if seen else exact_json.dumps(facts.before),
        "price_ids": exact_json.dumps(facts.price_ids),
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
    """Say whether the event changed the invoice."""
    query = select(Invoice).where(
        Invoice.organization_id == organization_id, Invoice.provider_invoice_id == facts.provider_id
    )
    row = (await session.exec(query)).first()
    if row is not None and not _is_newer(event, row):
        return False
    failed_at = row.failed_at if row is not None else None
    # The grace runs from the first failure, however often the provider tries again.
    if facts.failed and failed_at is None:
        failed_at = event.at
    values = _of(event) | {
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


def _of(event: EventFacts) -> dict[str, Any]:
    return {
        "provider_customer_id": event.customer_id,
        "provider_updated_at": event.at,
        "provider_rank": event.rank,
    }


def _is_newer(event: EventFacts, row: _Dated) -> bool:
    return (event.at, event.rank) > (row.provider_updated_at, row.provider_rank)


def _continues(event: EventFacts, facts: SubscriptionFacts, row: Subscription) -> bool:
    # The provider's clock counts seconds. Of two updates within one, each says what it found and changed: the later
    # found what we have, unless what we have was made of what this one left.
    if (event.at, event.rank) != (row.provider_updated_at, row.provider_rank):
        return False
    came_before = row.unseen is not None and _holds(json.loads(row.unseen), facts.model_dump())
    return bool(facts.before) and _holds(facts.before, _known(row)) and not came_before


def _known(row: Subscription) -> dict[str, object]:
    return {
        "status": row.status,
        "cancel_at_period_end": row.cancel_at_period_end,
        "price_ids": json.loads(row.price_ids),
    }


def _holds(before: Mapping[str, object], state: Mapping[str, object]) -> bool:
    return all(state[name] == value for name, value in before.items())
