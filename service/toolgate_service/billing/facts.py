"""What an event of the provider says, reduced to what the gateway acts on. It can be written down and read again."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from toolgate_service.billing import provider_json as provider
from toolgate_service.errors import FieldErrors
from toolgate_service.exact_json import Json

#: where a kind stands among those of the same second: the provider counts no finer
SUBSCRIPTION_KINDS = {
    "customer.subscription.created": 0,
    "customer.subscription.updated": 1,
    "customer.subscription.deleted": 2,
}
#: the status that a kind means where the invoice does not say it, and where the kind stands
INVOICE_KINDS = {
    "invoice.payment_failed": ("open", 0),
    "invoice.marked_uncollectible": ("uncollectible", 1),
    "invoice.voided": ("void", 2),
    "invoice.payment_succeeded": ("paid", 3),
    "invoice.paid": ("paid", 3),
}
PAYMENT_FAILED = "invoice.payment_failed"
#: a trial ended without a means of payment
PAUSED = "paused"
#: a trial that ran out ends its subscription at once, give or take the provider's own pace
AT_ONCE = timedelta(hours=1)

M = TypeVar("M", bound=BaseModel)


class SubscriptionFacts(BaseModel):
    """What an event says of a subscription. `before` holds what it changed of the fields we keep."""

    provider_id: str
    price_ids: list[str]
    status: str
    period_start: datetime | None
    period_end: datetime | None
    cancel_at_period_end: bool
    trial_ends_at: datetime | None
    trial_expired: bool
    created_at: datetime
    before: dict[str, str | bool | list[str]]


class InvoiceFacts(BaseModel):
    """What an event says of an invoice."""

    provider_id: str
    amount: int
    currency: str
    status: str
    invoice_pdf: str | None
    failed: bool
    created_at: datetime


class EventFacts(BaseModel):
    """What an event says. One of kinds that the gateway does not know says nothing of either."""

    id: str
    kind: str
    at: datetime
    rank: int = 0
    livemode: bool
    customer_id: str | None = None
    subscription: SubscriptionFacts | None = None
    invoice: InvoiceFacts | None = None


def read_event(content: Mapping[str, Json]) -> EventFacts:
    """Read an event of any kind.

    Raises:
        FieldErrors: it lacks what every event of its kind has; the message names the field.
    """
    envelope = _read(provider.Envelope, content, "")
    facts = EventFacts(id=envelope.id, kind=envelope.type, at=envelope.created, livemode=envelope.livemode)
    about = envelope.data.object
    if envelope.type in SUBSCRIPTION_KINDS:
        subscription = _read(provider.SubscriptionObject, about, "data.object.")
        facts.rank = SUBSCRIPTION_KINDS[envelope.type]
        facts.customer_id = subscription.customer
        facts.subscription = _subscription(subscription, envelope.data.previous_attributes or {})
    elif envelope.type in INVOICE_KINDS:
        invoice = _read(provider.InvoiceObject, about, "data.object.")
        status, facts.rank = INVOICE_KINDS[envelope.type]
        facts.customer_id = invoice.customer
        facts.invoice = _invoice(invoice, status, failed=envelope.type == PAYMENT_FAILED)
    return facts


def _read(model: type[M], content: Mapping[str, Any], where: str) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fields: dict[str, list[str]] = {}
        for problem in error.errors():
            name = where + ".".join(map(str, problem["loc"]))
            fields.setdefault(name, []).append(problem["msg"].removeprefix("Value error, "))
        raise FieldErrors(fields) from None


def _subscription(found: provider.SubscriptionObject, previous: Mapping[str, object]) -> SubscriptionFacts:
    items = found.items.data
    starts = [item.current_period_start for item in items if item.current_period_start]
    ends = [item.current_period_end for item in items if item.current_period_end]
    ended_with_trial = (
        found.ended_at is not None
        and found.trial_end is not None
        and timedelta() <= found.ended_at - found.trial_end <= AT_ONCE
    )
    return SubscriptionFacts(
        provider_id=found.id,
        price_ids=_prices(found.items),
        status=found.status,
        # Of items with periods of their own the whole is shown.
        period_start=found.current_period_start or min(starts, default=None),
        period_end=found.current_period_end or max(ends, default=None),
        cancel_at_period_end=found.cancel_at_period_end,
        trial_ends_at=found.trial_end,
        # Whoever gave notice during the trial leaves as agreed.
        trial_expired=found.status == PAUSED or (ended_with_trial and not found.cancel_at_period_end),
        created_at=found.created,
        before=_before(previous),
    )


def _prices(items: provider.Items) -> list[str]:
    return [one for item in items.data if (one := item.price or item.plan)]


def _before(previous: Mapping[str, object]) -> dict[str, str | bool | list[str]]:
    before: dict[str, str | bool | list[str]] = {
        name: value
        for name in ("status", "cancel_at_period_end")
        if isinstance(value := previous.get(name), str | bool)
    }
    if isinstance(items := previous.get("items"), dict):
        before["price_ids"] = _prices(_read(provider.Items, items, "data.previous_attributes.items."))
    return before


def _invoice(found: provider.InvoiceObject, status: str, *, failed: bool) -> InvoiceFacts:
    amounts = (found.total, found.amount_due, found.amount_paid)
    link = found.invoice_pdf
    return InvoiceFacts(
        provider_id=found.id,
        amount=next((amount for amount in amounts if amount is not None), 0),
        currency=found.currency.lower(),
        status=found.status or status,
        # It is shown as a link.
        invoice_pdf=link if link is not None and link.startswith("https://") else None,
        failed=failed,
        created_at=found.created,
    )
