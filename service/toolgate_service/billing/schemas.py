"""What billing looks like on the wire (spec §2)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, WithJsonSchema

from toolgate_service.web.field_schemas import AMOUNT


class LimitsView(BaseModel):
    """What a plan allows; -1 is unlimited."""

    max_agents: int
    max_logs_per_month: int
    log_retention_days: int
    max_team_members: int
    features: Sequence[str]


class PlanView(BaseModel):
    """A plan."""

    name: str
    price: Annotated[int | Decimal, WithJsonSchema(AMOUNT)]
    interval: str
    limits: LimitsView
    description: str


class CountsView(BaseModel):
    """What the production environment has used."""

    logs_this_month: int
    agents_count: int


class CurrentPlanView(BaseModel):
    """GET /api/billing/plan."""

    current_plan: str
    plan_details: PlanView
    usage: CountsView
    all_plans: Mapping[str, PlanView]


class ShareView(BaseModel):
    """How much of a limit is used. `percentage` has two decimals, rounded down: 100 is full and not before."""

    current: int
    limit: int
    percentage: float


class WarningView(BaseModel):
    """A limit that is near or reached."""

    type: str
    message: str
    severity: str


class UsageWarningView(WarningView, ShareView):
    """What the event `usage.warning` tells: a limit that has just come near or been reached."""

    plan: str


class UsageView(BaseModel):
    """GET /api/billing/usage."""

    agents: ShareView
    logs: ShareView
    warnings: Sequence[WarningView]
    plan: str


class SubscriptionView(BaseModel):
    """GET /api/billing/subscription."""

    id: str
    provider_subscription_id: str
    plan: str
    status: str
    current_period_start: datetime | None
    current_period_end: datetime | None
    cancel_at_period_end: bool


class InvoiceView(BaseModel):
    """One of GET /api/billing/invoices; `amount` is in minor units of the currency."""

    id: str
    provider_invoice_id: str
    amount: int
    currency: str
    status: str
    invoice_pdf: str | None
    created_at: datetime
