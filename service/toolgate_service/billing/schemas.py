"""Response bodies of billing, and events of the payment provider: validation of the JSON, and the facts that are used.

The gateway accepts events in the formats of older and newer versions of the provider's API. The facts can be stored as
JSON.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema

from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import AMOUNT
from toolgate_service.core.strict_json import Json


class LimitsView(BaseModel):
    """Limits of a plan; -1 means unlimited."""

    max_agents: int
    max_logs_per_month: int
    log_retention_days: int
    max_team_members: int
    features: Sequence[str]


class PlanView(BaseModel):
    """Plan with its price and limits."""

    name: str
    price: Annotated[int | Decimal, WithJsonSchema(AMOUNT)]
    interval: str
    limits: LimitsView
    description: str


class CountsView(BaseModel):
    """Usage of the production environment."""

    logs_this_month: int
    agents_count: int


class CurrentPlanView(BaseModel):
    """Response of GET /api/billing/plan."""

    current_plan: str
    plan_details: PlanView
    usage: CountsView
    all_plans: Mapping[str, PlanView]


class ShareView(BaseModel):
    """Used share of a limit. `percentage` has two decimals and is rounded down: 100 means that the limit is reached."""

    current: int
    limit: int
    percentage: float


class WarningView(BaseModel):
    """Warning that a limit is nearly or completely used."""

    type: str
    message: str
    severity: str


class UsageWarningView(WarningView, ShareView):
    """Content of the event `usage.warning`: the usage of a limit has just reached a warning threshold."""

    plan: str


class UsageView(BaseModel):
    """Response of GET /api/billing/usage."""

    agents: ShareView
    logs: ShareView
    warnings: Sequence[WarningView]
    plan: str


class SubscriptionView(BaseModel):
    """Response of GET /api/billing/subscription."""

    id: str
    provider_subscription_id: str
    plan: str
    status: str
    current_period_start: datetime | None
    current_period_end: datetime | None
    cancel_at_period_end: bool


class InvoiceView(BaseModel):
    """Invoice. `amount` is in minor units of the currency, for example cents."""

    id: str
    provider_invoice_id: str
    amount: int
    currency: str
    status: str
    invoice_pdf: str | None
    created_at: datetime


#: Unix time of the last second of the year 9999
LAST_SECOND = 253_402_300_799


def _from_seconds(value: object) -> datetime:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LAST_SECOND:
        raise ValueError("must be seconds since the epoch")
    return datetime.fromtimestamp(value, UTC)


def _id_of(value: object) -> object:
    # The provider sends either the id of an object or, if configured, the object that contains the id.
    return value.get("id") if isinstance(value, dict) else value


Seconds = Annotated[datetime, BeforeValidator(_from_seconds)]
ProviderId = Annotated[str, BeforeValidator(_id_of), Field(min_length=1, max_length=255)]
#: amount in minor units of the currency, for example cents; the database column has 64 bits
MinorUnits = Annotated[int, Field(ge=-(2**63), lt=2**63)]
#: currency code; only ASCII letters, because other letters may become several characters in lower case
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{1,10}$")]
Status = Annotated[str, Field(min_length=1, max_length=32)]


class Receipt(BaseModel):
    """Response to an event. The provider reads only the status; operators see the body in the provider's dashboard."""

    received: bool = True
    outcome: str
    detail: str | None = None


class Data(BaseModel):
    """Part of an event that contains the changed object."""

    object: dict[str, Any]
    #: in update events: the previous values of the changed attributes
    previous_attributes: dict[str, Any] | None = None


class Envelope(BaseModel):
    """Event in the format in which the provider sends it."""

    id: Annotated[str, Field(min_length=1, max_length=255)]
    type: Annotated[str, Field(min_length=1, max_length=255)]
    created: Seconds
    livemode: Annotated[bool, Field(strict=True)]
    data: Data


class Item(BaseModel):
    """Item of a subscription.

    Since 2025, the provider's API sends the billing period as fields of the item; older versions send it as fields of
    the subscription.
    """

    price: ProviderId | None = None
    plan: ProviderId | None = None
    current_period_start: Seconds | None = None
    current_period_end: Seconds | None = None


class Items(BaseModel):
    """List of the items of a subscription."""

    data: Sequence[Item] = ()


class SubscriptionObject(BaseModel):
    """Subscription in the format in which the provider sends it."""

    id: ProviderId
    customer: ProviderId
    status: Status
    created: Seconds
    cancel_at_period_end: bool = False
    current_period_start: Seconds | None = None
    current_period_end: Seconds | None = None
    trial_end: Seconds | None = None
    ended_at: Seconds | None = None
    items: Items = Items()


class InvoiceObject(BaseModel):
    """Invoice in the format in which the provider sends it."""

    id: ProviderId
    customer: ProviderId
    created: Seconds
    status: Status | None = None
    currency: Currency
    total: MinorUnits | None = None
    amount_due: MinorUnits | None = None
    amount_paid: MinorUnits | None = None
    invoice_pdf: str | None = None


#: rank of each kind of event; it orders events of the same second, because the provider sends whole seconds
SUBSCRIPTION_KINDS = {
    "customer.subscription.created": 0,
    "customer.subscription.updated": 1,
    "customer.subscription.deleted": 2,
}
#: for each kind of event: the status of invoices that contain none, and the rank among events of the same second
INVOICE_KINDS = {
    "invoice.payment_failed": ("open", 0),
    "invoice.marked_uncollectible": ("uncollectible", 1),
    "invoice.voided": ("void", 2),
    "invoice.payment_succeeded": ("paid", 3),
    "invoice.paid": ("paid", 3),
}
PAYMENT_FAILED = "invoice.payment_failed"
#: status of a subscription whose trial ended without a payment method
PAUSED = "paused"
#: maximum time between the end of a trial and the end of a subscription that ended because of the trial
AT_ONCE = timedelta(hours=1)

ModelT = TypeVar("ModelT", bound=BaseModel)


class SubscriptionFacts(BaseModel):
    """Facts about a subscription. `before` contains the previous values of the fields that the event changed."""

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
    """Facts about an invoice."""

    provider_id: str
    amount: int
    currency: str
    status: str
    invoice_pdf: str | None
    failed: bool
    created_at: datetime


class EventFacts(BaseModel):
    """Facts about an event. If the event is about another kind of object, `subscription` and `invoice` are None."""

    id: str
    kind: str
    at: datetime
    rank: int = 0
    livemode: bool
    customer_id: str | None = None
    subscription: SubscriptionFacts | None = None
    invoice: InvoiceFacts | None = None


def read_event(content: Mapping[str, Json]) -> EventFacts:
    """Return the facts about an event of any kind.

    Raises:
        FieldErrors: A required field is missing or invalid; the message names the field.
    """
    envelope = _read(Envelope, content, "")
    facts = EventFacts(id=envelope.id, kind=envelope.type, at=envelope.created, livemode=envelope.livemode)
    about = envelope.data.object
    if envelope.type in SUBSCRIPTION_KINDS:
        subscription = _read(SubscriptionObject, about, "data.object.")
        facts.rank = SUBSCRIPTION_KINDS[envelope.type]
        facts.customer_id = subscription.customer
        facts.subscription = _subscription(subscription, envelope.data.previous_attributes or {})
    elif envelope.type in INVOICE_KINDS:
        invoice = _read(InvoiceObject, about, "data.object.")
        status, facts.rank = INVOICE_KINDS[envelope.type]
        facts.customer_id = invoice.customer
        facts.invoice = _invoice(invoice, status, failed=envelope.type == PAYMENT_FAILED)
    return facts


def _read(model: type[ModelT], content: Mapping[str, Any], where: str) -> ModelT:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fields: dict[str, list[str]] = {}
        for problem in error.errors():
            name = where + ".".join(map(str, problem["loc"]))
            fields.setdefault(name, []).append(problem["msg"].removeprefix("Value error, "))
        raise FieldErrors(fields) from None


def _subscription(found: SubscriptionObject, previous: Mapping[str, object]) -> SubscriptionFacts:
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
        # If the items have different periods, the range from the first start to the last end is used.
        period_start=found.current_period_start or min(starts, default=None),
        period_end=found.current_period_end or max(ends, default=None),
        cancel_at_period_end=found.cancel_at_period_end,
        trial_ends_at=found.trial_end,
        # If the customer cancelled during the trial, the subscription ended as planned and did not expire.
        trial_expired=found.status == PAUSED or (ended_with_trial and not found.cancel_at_period_end),
        created_at=found.created,
        before=_before(previous),
    )


def _prices(items: Items) -> list[str]:
    return [one for item in items.data if (one := item.price or item.plan)]


def _before(previous: Mapping[str, object]) -> dict[str, str | bool | list[str]]:
    before: dict[str, str | bool | list[str]] = {
        name: value
        for name in ("status", "cancel_at_period_end")
        if isinstance(value := previous.get(name), str | bool)
    }
    if isinstance(items := previous.get("items"), dict):
        before["price_ids"] = _prices(_read(Items, items, "data.previous_attributes.items."))
    return before


def _invoice(found: InvoiceObject, status: str, *, failed: bool) -> InvoiceFacts:
    amounts = (found.total, found.amount_due, found.amount_paid)
    link = found.invoice_pdf
    return InvoiceFacts(
        provider_id=found.id,
        amount=next((amount for amount in amounts if amount is not None), 0),
        currency=found.currency.lower(),
        status=found.status or status,
        # The console displays the value as a link, so only an https URL is accepted.
        invoice_pdf=link if link is not None and link.startswith("https://") else None,
        failed=failed,
        created_at=found.created,
    )
