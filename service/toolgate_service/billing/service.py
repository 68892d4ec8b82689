"""Plans, usage, subscriptions and invoices of an organization. The test environment does not count as usage."""

import json
from collections.abc import Iterator, Sequence

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.billing.models import Invoice, Subscription
from toolgate_service.billing.schemas import (
    CountsView,
    CurrentPlanView,
    LimitsView,
    PlanView,
    ShareView,
    SubscriptionView,
    UsageView,
    UsageWarningView,
    WarningView,
)
from toolgate_service.billing.stripe_schemas import PAUSED
from toolgate_service.core.errors import not_found
from toolgate_service.core.plans import (
    FULL,
    INTERVAL,
    PLAN_NAMES,
    UNLIMITED,
    WARN_AT,
    Plan,
    PlanName,
    Plans,
    crosses,
)
from toolgate_service.db.database import now
from toolgate_service.db.models import PRODUCTION
from toolgate_service.organizations.models import MonthlyUsage, Organization

TRIALING = "trialing"
CANCELED = "canceled"
#: statuses that entitle the organization to the plan of its subscription; `incomplete` means that nothing was paid yet
ENTITLED = (TRIALING, "active", "past_due", "unpaid", PAUSED)


async def current_subscription(session: AsyncSession, organization: Organization) -> Subscription | None:
    """Return the organization's current subscription; None if it never had one.

    A subscription that entitles to its plan takes precedence over a cancelled one. A subscription without a first
    payment comes last. Among equal subscriptions, the newest one is returned. Only subscriptions of the customer that
    is linked to the organization now are considered.
    """
    query = select(Subscription).where(
        Subscription.organization_id == organization.id,
        Subscription.provider_customer_id == organization.provider_customer_id,
    )
    found = (await session.exec(query)).all()
    return max(found, key=_precedence, default=None)


def plan_of(plans: Plans, subscription: Subscription) -> PlanName | None:
    """Return the largest plan that contains one of the subscription's prices; None if no plan does."""
    prices = set(json.loads(subscription.price_ids))
    bought = [name for name in PLAN_NAMES if prices & set(plans[name].provider_price_ids)]
    return bought[-1] if bought else None


def is_entitled(subscription: Subscription) -> bool:
    """Return whether the organization is entitled to the plan of this subscription now."""
    return subscription.status in ENTITLED


def _precedence(subscription: Subscription) -> tuple[int, str, str]:
    standing = 2 if is_entitled(subscription) else int(subscription.status == CANCELED)
    return standing, subscription.provider_created_at.isoformat(), subscription.id


async def count_usage(session: AsyncSession, organization_id: str) -> CountsView:
    """Count production agents, including inactive ones, and production log entries of the current UTC month."""
    agents = select(func.count()).where(
        Agent.organization_id == organization_id,
        Agent.environment == PRODUCTION,
        col(Agent.deleted_at).is_(None),
    )
    entries = select(MonthlyUsage.log_entries).where(
        MonthlyUsage.organization_id == organization_id,
        MonthlyUsage.environment == PRODUCTION,
        MonthlyUsage.month == now(session).strftime("%Y-%m"),
    )
    return CountsView(
        agents_count=(await session.exec(agents)).one(),
        logs_this_month=(await session.exec(entries)).first() or 0,
    )


def usage_view(plan: Plan, counts: CountsView) -> UsageView:
    """Return the usage of a plan, with a warning for each limit that is nearly or completely used."""
    agents = share(counts.agents_count, plan.max_agents)
    logs = share(counts.logs_this_month, plan.max_logs_per_month)
    return UsageView(
        agents=agents,
        logs=logs,
        warnings=[*_warnings("agents", plan.name, agents), *_warnings("logs", plan.name, logs)],
        plan=plan.name,
    )


def share(current: int, limit: int) -> ShareView:
    """Return the used share of a limit. The percentage is 0 if there is no limit, and 100 if the limit is 0."""
    if limit == UNLIMITED:
        percentage = 0.0
    elif limit == 0:
        percentage = float(FULL)
    else:
        # Integer division rounds down, so that usage below the limit is never shown as 100 percent.
        percentage = current * 10_000 // limit / 100
    return ShareView(current=current, limit=limit, percentage=percentage)


def warning_at(kind: str, plan: str, count: int, limit: int) -> UsageWarningView | None:
    """Return a usage warning if the count has just reached a warning threshold of the limit, otherwise None.

    `kind` is ``agents`` or ``logs``. `count` includes the new agent or log entry.
    """
    if crosses(count, limit) is None:
        return None
    used = share(count, limit)
    (warning,) = _warnings(kind, plan, used)
    return UsageWarningView(**warning.model_dump(), **used.model_dump(), plan=plan)


def _warnings(kind: str, plan: str, used: ShareView) -> Iterator[WarningView]:
    if used.percentage >= FULL:
        severity, how = "critical", "is reached"
    elif used.percentage >= WARN_AT:
        severity, how = "warning", "is near"
    else:
        return
    message = f"The {plan} plan's limit of {kind} {how}: {used.current}/{used.limit} used"
    yield WarningView(type=kind, message=message, severity=severity)


async def get_current_plan(session: AsyncSession, plans: Plans, organization_id: str) -> CurrentPlanView:
    """Return the organization's plan and usage, and all plans."""
    organization = await _organization(session, organization_id)
    return CurrentPlanView(
        current_plan=organization.plan,
        plan_details=_plan_view(plans[organization.plan]),
        usage=await count_usage(session, organization_id),
        all_plans={name: _plan_view(plan) for name, plan in plans.items()},
    )


async def get_usage(session: AsyncSession, plans: Plans, organization_id: str) -> UsageView:
    """Return the organization's usage of its plan."""
    organization = await _organization(session, organization_id)
    return usage_view(plans[organization.plan], await count_usage(session, organization_id))


async def get_subscription(session: AsyncSession, plans: Plans, organization_id: str) -> SubscriptionView:
    """Return the organization's subscription, including one that has ended.

    Raises:
        ApiError: 404 if the organization never had a subscription.
    """
    organization = await _organization(session, organization_id)
    found = await current_subscription(session, organization)
    if found is None:
        raise not_found("Subscription")
    return SubscriptionView(
        id=found.id,
        provider_subscription_id=found.provider_subscription_id,
        plan=plan_of(plans, found) or organization.plan,
        status=found.status,
        current_period_start=found.current_period_start,
        current_period_end=found.current_period_end,
        cancel_at_period_end=found.cancel_at_period_end,
    )


async def list_invoices(
    session: AsyncSession, organization_id: str, *, at_most: int | None = None
) -> Sequence[Invoice]:
    """Return the organization's invoices, newest first."""
    query = (
        select(Invoice)
        .where(Invoice.organization_id == organization_id)
        .order_by(col(Invoice.created_at).desc(), col(Invoice.id).desc())
        .limit(at_most)
    )
    return (await session.exec(query)).all()


def _plan_view(plan: Plan) -> PlanView:
    limits = LimitsView(
        max_agents=plan.max_agents,
        max_logs_per_month=plan.max_logs_per_month,
        log_retention_days=plan.log_retention_days,
        max_team_members=plan.max_team_members,
        features=list(plan.features),
    )
    return PlanView(
        name=plan.name, price=plan.price, interval=INTERVAL, limits=limits, description=plan.description
    )


async def _organization(session: AsyncSession, organization_id: str) -> Organization:
    return (await session.exec(select(Organization).where(Organization.id == organization_id))).one()
