"""Response bodies of billing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, WithJsonSchema

from toolgate_service.core.schemas import AMOUNT


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
