"""Reading what an organization has, uses and pays (spec §2, §4)."""

from collections.abc import Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.billing.models import Invoice
from toolgate_service.billing.schemas import (
    CurrentPlanView,
    LimitsView,
    PlanView,
    SubscriptionView,
    UsageView,
)
from toolgate_service.billing.subscriptions import current_subscription, plan_of
from toolgate_service.billing.usage import count_usage, usage_view
from toolgate_service.errors import not_found
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import INTERVAL, Plan, Plans


async def current_plan(session: AsyncSession, plans: Plans, organization_id: str) -> CurrentPlanView:
    """Return the organization's plan beside all others, and what of it is used."""
    organization = await _organization(session, organization_id)
    return CurrentPlanView(
        current_plan=organization.plan,
        plan_details=_plan_view(plans[organization.plan]),
        usage=await count_usage(session, organization_id),
        all_plans={name: _plan_view(plan) for name, plan in plans.items()},
    )


async def usage(session: AsyncSession, plans: Plans, organization_id: str) -> UsageView:
    """Return how much of its plan the organization uses."""
    organization = await _organization(session, organization_id)
    return usage_view(plans[organization.plan], await count_usage(session, organization_id))


async def subscription(session: AsyncSession, plans: Plans, organization_id: str) -> SubscriptionView:
    """Return the organization's subscription; one that has ended until another begins.

    Raises:
        ApiError: 404, there never was one.
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


async def invoices(
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
