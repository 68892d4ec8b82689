"""Response bodies of the billing API, and parsing of the payment provider's events.

An event is validated and reduced to the facts that the gateway uses. The facts can be stored as JSON. The parser
accepts the formats of older and newer versions of the provider's API.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, ValidationError, WithJsonSchema

from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import AMOUNT, EXAMPLE_ID, EXAMPLE_TIME, CreatedAt, ResourceId, example
from toolgate_service.core.strict_json import Json


class LimitsView(BaseModel):
    """Limits of a plan. A limit of -1 means unlimited."""

    max_agents: int = Field(
        description="Maximum number of agents in the production environment; -1 for no limit."
    )
    max_logs_per_month: int = Field(
        description="Maximum number of production log entries per calendar month (UTC); -1 for no limit."
    )
    log_retention_days: int = Field(
        description="Number of days after which log entries are deleted; -1 if log entries are never deleted."
    )
    max_team_members: int = Field(description="Maximum number of users; -1 for no limit.")
    features: Sequence[str] = Field(
        description="Included features: `webhooks`, `approval_workflows`, `advanced_permissions`, `priority_support`."
    )


_PRO: dict[str, JsonValue] = {
    "name": "pro",
    "price": 29,
    "interval": "month",
    "limits": {
        "max_agents": 10,
        "max_logs_per_month": 50000,
        "log_retention_days": 30,
        "max_team_members": 5,
        "features": ["webhooks", "approval_workflows"],
    },
    "description": "For small teams with agents in production",
}


class PlanView(BaseModel):
    """Plan with its price and limits."""

    name: str = Field(description="`free`, `pro`, `business` or `enterprise`.")
    price: Annotated[int | Decimal, WithJsonSchema(AMOUNT)] = Field(
        description="Price per interval, in the currency of the operator."
    )
    interval: str = Field(description="Billing interval, always `month`.")
    limits: LimitsView = Field(description="Limits and features of the plan.")
    description: str = Field(description="One line that describes the plan.")


class CountsView(BaseModel):
    """Current usage of the production environment, which counts against the plan's limits."""

    logs_this_month: int = Field(
        description="Number of production log entries in the current calendar month (UTC)."
    )
    agents_count: int = Field(description="Number of production agents, including disabled ones.")


class CurrentPlanView(BaseModel):
    """Response of GET /api/billing/plan."""

    model_config = example(
        current_plan="pro",
        plan_details=_PRO,
        usage={"logs_this_month": 12750, "agents_count": 4},
        all_plans={"pro": _PRO},
    )

    current_plan: str = Field(
        description="Plan of the organization: `free`, `pro`, `business` or `enterprise`."
    )
    plan_details: PlanView = Field(description="The organization's plan.")
    usage: CountsView = Field(description="Current usage of the plan's limits.")
    all_plans: Mapping[str, PlanView] = Field(description="All plans of this gateway, by name.")


class ShareView(BaseModel):
    """Used share of a limit."""

    current: int = Field(description="Current number.")
    limit: int = Field(description="Limit of the plan; -1 for no limit.")
    percentage: float = Field(
        description="Used share of the limit in percent, rounded down to two decimals; 0 if there is no limit. 100 "
        "means that the limit is reached."
    )


class WarningView(BaseModel):
    """Warning that a limit of the plan is nearly reached, or reached."""

    type: str = Field(description="Limit that is reached or almost reached: `agents` or `logs`.")
    message: str = Field(description="Message for people.")
    severity: str = Field(description="`warning` from 80 percent, `critical` from 100 percent.")


class UsageWarningView(WarningView, ShareView):
    """Content of the event `usage.warning`, sent when usage reaches a warning threshold of a plan limit."""

    plan: str = Field(description="Plan of the organization: `free`, `pro`, `business` or `enterprise`.")


class UsageView(BaseModel):
    """Response of GET /api/billing/usage."""

    model_config = example(
        agents={"current": 4, "limit": 10, "percentage": 40.0},
        logs={"current": 12750, "limit": 50000, "percentage": 25.5},
        warnings=[],
        plan="pro",
    )

    agents: ShareView = Field(description="Production agents, including disabled ones.")
    logs: ShareView = Field(description="Production log entries in the current calendar month (UTC).")
    warnings: Sequence[WarningView] = Field(
        description="A warning for each limit that is used to at least 80 percent."
    )
    plan: str = Field(description="Plan of the organization: `free`, `pro`, `business` or `enterprise`.")


class SubscriptionView(BaseModel):
    """Response of GET /api/billing/subscription."""

    model_config = example(
        id=EXAMPLE_ID,
        provider_subscription_id="sub_1Q",
        plan="pro",
        status="active",
        current_period_start=EXAMPLE_TIME,
        current_period_end="2026-12-21T14:30:02Z",
        cancel_at_period_end=False,
    )

    id: ResourceId
    provider_subscription_id: str = Field(description="Id of the subscription at the payment provider.")
    plan: str = Field(description="Plan that the subscription pays for.")
    status: str = Field(description="Status at the payment provider, such as `active` or `past_due`.")
    current_period_start: datetime | None = Field(description="Start of the current billing period, or null.")
    current_period_end: datetime | None = Field(description="End of the current billing period, or null.")
    cancel_at_period_end: bool = Field(description="True if the subscription ends with the current period.")


class InvoiceView(BaseModel):
    """Invoice of the organization."""

    model_config = example(
        id=EXAMPLE_ID,
        provider_invoice_id="in_1Q",
        amount=2900,
        currency="usd",
        status="paid",
        invoice_pdf="https://pay.example.com/in_1Q.pdf",
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    provider_invoice_id: str = Field(description="Id of the invoice at the payment provider.")
    amount: int = Field(description="Amount in the currency's smallest unit, such as cents.")
    currency: str = Field(description="Currency code in lower case, such as `usd`.")
    status: str = Field(description="Status at the payment provider, such as `paid` or `open`.")
    invoice_pdf: str | None = Field(description="URL of the invoice as a PDF file, or null.")
    created_at: CreatedAt


#: Last second of the year 9999 as Unix time. A datetime cannot represent later times.
LAST_SECOND = 253_402_300_799


def _from_seconds(value: object) -> datetime:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LAST_SECOND:
        raise ValueError("must be a Unix time in seconds")
    return datetime.fromtimestamp(value, UTC)


def _id_of(value: object) -> object:
    # Accept an id, or an object that contains its id: depending on the account's configuration, the provider sends the
    # whole object instead of the id.
    return value.get("id") if isinstance(value, dict) else value


Seconds = Annotated[datetime, BeforeValidator(_from_seconds)]
ProviderId = Annotated[str, BeforeValidator(_id_of), Field(min_length=1, max_length=255)]
#: Amount in the currency's smallest unit, such as cents. The limits are those of a 64-bit database column.
MinorUnits = Annotated[int, Field(ge=-(2**63), lt=2**63)]
#: Currency code, which is stored in lower case. Only ASCII letters are allowed: some other letters become several
#: characters in lower case, and the code could then exceed the length of its database column.
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{1,10}$")]
Status = Annotated[str, Field(min_length=1, max_length=32)]


class Receipt(BaseModel):
    """Response to an event of the payment provider.

    The provider evaluates only the HTTP status, but operators can see the body in the provider's dashboard.
    """

    received: bool = True
    outcome: str
    detail: str | None = None


class Data(BaseModel):
    """Part of the provider's event that contains the changed object, such as a subscription."""

    object: dict[str, Any]
    #: Previous values of the changed attributes. Only update events contain them.
    previous_attributes: dict[str, Any] | None = None


class Envelope(BaseModel):
    """Event as the payment provider sends it."""

    id: Annotated[str, Field(min_length=1, max_length=255)]
    type: Annotated[str, Field(min_length=1, max_length=255)]
    created: Seconds
    livemode: Annotated[bool, Field(strict=True)]
    data: Data


class Item(BaseModel):
    """Item of a subscription, as the payment provider sends it.

    Newer versions of the provider's API (since 2025) send the billing period in each item, older versions in the
    subscription.
    """

    price: ProviderId | None = None
    plan: ProviderId | None = None
    current_period_start: Seconds | None = None
    current_period_end: Seconds | None = None


class Items(BaseModel):
    """Items of a subscription, as the payment provider sends them."""

    data: Sequence[Item] = ()


class SubscriptionObject(BaseModel):
    """Subscription as the payment provider sends it."""

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
    """Invoice as the payment provider sends it."""

    id: ProviderId
    customer: ProviderId
    created: Seconds
    status: Status | None = None
    currency: Currency
    total: MinorUnits | None = None
    amount_due: MinorUnits | None = None
    amount_paid: MinorUnits | None = None
    invoice_pdf: str | None = None


#: Rank of each type of event. It orders events with equal timestamps, because the provider's timestamps are whole
#: seconds.
SUBSCRIPTION_KINDS = {
    "customer.subscription.created": 0,
    "customer.subscription.updated": 1,
    "customer.subscription.deleted": 2,
}
#: For each type of event: the invoice status if the event contains none, and the rank that orders events with equal
#: timestamps.
INVOICE_KINDS = {
    "invoice.payment_failed": ("open", 0),
    "invoice.marked_uncollectible": ("uncollectible", 1),
    "invoice.voided": ("void", 2),
    "invoice.payment_succeeded": ("paid", 3),
    "invoice.paid": ("paid", 3),
}
PAYMENT_FAILED = "invoice.payment_failed"
#: Status of a subscription whose trial has ended without a payment method.
PAUSED = "paused"
#: A subscription that ends at most this long after its trial counts as ended by the trial.
AT_ONCE = timedelta(hours=1)

ModelT = TypeVar("ModelT", bound=BaseModel)


class SubscriptionFacts(BaseModel):
    """Facts about a subscription that an event reports. `before` contains the previous values of changed fields."""

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
    """Facts about an invoice that an event reports."""

    provider_id: str
    amount: int
    currency: str
    status: str
    invoice_pdf: str | None
    failed: bool
    created_at: datetime


class EventFacts(BaseModel):
    """Facts about an event of the payment provider.

    `subscription` and `invoice` are None if the event is not about a subscription or invoice.
    """

    id: str
    kind: str
    at: datetime
    rank: int = 0
    livemode: bool
    customer_id: str | None = None
    subscription: SubscriptionFacts | None = None
    invoice: InvoiceFacts | None = None


def read_event(content: Mapping[str, Json]) -> EventFacts:
    """Validate an event of the payment provider, and return the facts that the gateway uses.

    Raises:
        FieldErrors: A required field is missing or invalid. The message contains the name of the field.
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
        # If only the items contain billing periods, the period of the subscription lasts from the earliest start to the
        # latest end.
        period_start=found.current_period_start or min(starts, default=None),
        period_end=found.current_period_end or max(ends, default=None),
        cancel_at_period_end=found.cancel_at_period_end,
        trial_ends_at=found.trial_end,
        # If the customer cancelled the subscription during the trial, it ended as planned and not for lack of payment.
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
        # The console shows the value as a link, so only https URLs are accepted.
        invoice_pdf=link if link is not None and link.startswith("https://") else None,
        failed=failed,
        created_at=found.created,
    )
