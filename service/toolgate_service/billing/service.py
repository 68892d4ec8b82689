"""Plans, usage, subscriptions and invoices of organizations, and deactivation of organizations that have not paid.

The test environment does not count as usage. An organization is deactivated if its payment is overdue or its trial has
expired.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import exists
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.agents.models import Agent
from toolgate_service.billing.models import Invoice, Subscription
from toolgate_service.billing.schemas import (
    PAUSED,
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
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import PRODUCTION
from toolgate_service.db.retry import with_retry
from toolgate_service.organizations.models import PAYMENT, Deactivation, MonthlyUsage, Organization
from toolgate_service.organizations.service import deactivate, reactivate

TRIALING = "trialing"
CANCELED = "canceled"
#: Statuses in which a subscription gives the organization its plan. They do not include `incomplete`, because in this
#: status the first payment has not been made yet.
ENTITLED = (TRIALING, "active", "past_due", "unpaid", PAUSED)


async def current_subscription(session: AsyncSession, organization: Organization) -> Subscription | None:
    """Return the subscription that determines the organization's plan; None if there is none.

    The order of precedence is: subscriptions that give the organization a plan, cancelled subscriptions, subscriptions
    that were never paid. Within each group, the newest one is returned. Subscriptions of a customer to whom the
    organization is no longer linked are ignored.
    """
    query = select(Subscription).where(
        Subscription.organization_id == organization.id,
        Subscription.provider_customer_id == organization.provider_customer_id,
    )
    found = (await session.exec(query)).all()
    return max(found, key=_precedence, default=None)


def plan_of(plans: Plans, subscription: Subscription) -> PlanName | None:
    """Return the largest plan that contains one of the subscription's prices; None if no plan contains any of them."""
    prices = set(json.loads(subscription.price_ids))
    bought = [name for name in PLAN_NAMES if prices & set(plans[name].provider_price_ids)]
    return bought[-1] if bought else None


def is_entitled(subscription: Subscription) -> bool:
    """Return True if the subscription currently gives the organization the plan that it pays for."""
    return subscription.status in ENTITLED


def _precedence(subscription: Subscription) -> tuple[int, str, str]:
    standing = 2 if is_entitled(subscription) else int(subscription.status == CANCELED)
    return standing, subscription.provider_created_at.isoformat(), subscription.id


async def count_usage(session: AsyncSession, organization_id: str) -> CountsView:
    """Count production agents, including disabled ones, and production log entries of the current UTC month."""
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
    """Return the usage of a plan's limits, with a warning for each limit that is nearly reached, or reached."""
    agents = share(counts.agents_count, plan.max_agents)
    logs = share(counts.logs_this_month, plan.max_logs_per_month)
    return UsageView(
        agents=agents,
        logs=logs,
        warnings=[*_warnings("agents", plan.name, agents), *_warnings("logs", plan.name, logs)],
        plan=plan.name,
    )


def share(current: int, limit: int) -> ShareView:
    """Return the used share of a limit.

    The percentage is 0 if there is no limit (-1), and 100 if the limit is 0.
    """
    if limit == UNLIMITED:
        percentage = 0.0
    elif limit == 0:
        percentage = float(FULL)
    else:
        # Integer division rounds down, so that 100 percent appears only when the limit is reached.
        percentage = current * 10_000 // limit / 100
    return ShareView(current=current, limit=limit, percentage=percentage)


def warning_at(kind: str, plan: str, count: int, limit: int) -> UsageWarningView | None:
    """Return a warning if `count` has just reached a warning threshold of the limit; otherwise None.

    `kind` is ``agents`` or ``logs``. `count` already includes the new agent or log entry.
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
    """Return the organization's plan and usage, and all available plans."""
    organization = await _organization(session, organization_id)
    return CurrentPlanView(
        current_plan=organization.plan,
        plan_details=_plan_view(plans[organization.plan]),
        usage=await count_usage(session, organization_id),
        all_plans={name: _plan_view(plan) for name, plan in plans.items()},
    )


async def get_usage(session: AsyncSession, plans: Plans, organization_id: str) -> UsageView:
    """Return the organization's usage of its plan's limits, with a warning for each limit that is (nearly) reached."""
    organization = await _organization(session, organization_id)
    return usage_view(plans[organization.plan], await count_usage(session, organization_id))


async def get_subscription(session: AsyncSession, plans: Plans, organization_id: str) -> SubscriptionView:
    """Return the organization's subscription, even if it has ended.

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
    session: AsyncSession, organization_id: str, *, limit: int | None = None
) -> Sequence[Invoice]:
    """Return the invoices of the organization, newest first; at most `limit`."""
    query = (
        select(Invoice)
        .where(Invoice.organization_id == organization_id)
        .order_by(col(Invoice.created_at).desc(), col(Invoice.id).desc())
        .limit(limit)
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


#: Time after the end of a trial during which the trial does not count as expired, because the provider's event about a
#: payment may arrive late.
TRIAL_SLACK = timedelta(hours=1)

#: Statuses of invoices for which no payment is due.
SETTLED = ("paid", "void")


async def deactivate_overdue(database: Database, grace: timedelta) -> int:
    """Deactivate all organizations with an overdue payment or an expired trial, and return their number.

    Each organization is locked and checked again in its own transaction, because a payment can arrive in the meantime.
    """
    async with database.reading() as session:
        candidates = await overdue_organizations(session, grace)
    return sum(
        [await with_retry(partial(_update_one, database, candidate, grace)) for candidate in candidates]
    )


async def _update_one(database: Database, organization_id: str, grace: timedelta) -> bool:
    async with database.writing(organization_id) as session:
        query = select(Organization).where(Organization.id == organization_id)
        return await update_activation(session, (await session.exec(query)).one(), grace)


async def overdue_organizations(session: AsyncSession, grace: timedelta) -> Sequence[str]:
    """Return the ids of organizations that may have an overdue payment or an expired trial.

    Organizations that are already deactivated for one of these reasons are not included.
    """
    moment = now(session)
    # Run separate queries for unpaid invoices, failing subscriptions and ended trials, so that each query can use a
    # separate index.
    candidates = (
        _select_organizations_with(Invoice).where(
            col(Invoice.failed_at) <= moment - grace, col(Invoice.status).not_in(SETTLED)
        ),
        _select_organizations_with(Subscription).where(col(Subscription.failing_since) <= moment - grace),
        _select_organizations_with(Subscription).where(
            col(Subscription.status) == TRIALING, col(Subscription.trial_ends_at) <= moment - TRIAL_SLACK
        ),
    )
    found = [organization_id for query in candidates for organization_id in (await session.exec(query)).all()]
    return sorted(set(found))


def _select_organizations_with(table: type[Invoice | Subscription]) -> SelectOfScalar[str]:
    """Return a query for the ids of organizations that have a row in `table`: an invoice or a subscription.

    Rows of a customer to whom the organization is no longer linked are ignored. Organizations that are already
    deactivated for an overdue payment or an expired trial are excluded.
    """
    known = exists().where(
        col(Deactivation.organization_id) == col(Organization.id), col(Deactivation.cause) == PAYMENT
    )
    return (
        select(Organization.id)
        .join(table, col(table.organization_id) == col(Organization.id))
        .where(table.provider_customer_id == Organization.provider_customer_id, ~known)
    )


async def update_activation(session: AsyncSession, organization: Organization, grace: timedelta) -> bool:
    """Deactivate the organization if a payment is overdue or its trial has expired; otherwise end such a deactivation.

    Returns:
        True if this call deactivated the organization.
    """
    if await _is_overdue(session, organization, grace):
        return await deactivate(session, organization, PAYMENT)
    await reactivate(session, organization, PAYMENT)
    return False


async def waive_debts(session: AsyncSession, organization: Organization) -> None:
    """Delete the data about failed payments and expired trials, so that no payment of the organization is overdue.

    A later failed payment starts a new grace period.
    """
    for invoice in (
        await session.exec(select(Invoice).where(Invoice.organization_id == organization.id))
    ).all():
        invoice.failed_at = None
    for subscription in (
        await session.exec(select(Subscription).where(Subscription.organization_id == organization.id))
    ).all():
        subscription.failing_since = None
        subscription.trial_ends_at = None
        subscription.trial_expired = False


async def _is_overdue(session: AsyncSession, organization: Organization, grace: timedelta) -> bool:
    moment = now(session)
    subscription = await current_subscription(session, organization)
    if subscription is not None and _trial_is_over(subscription, moment):
        return True
    since = [] if subscription is None else [subscription.failing_since]
    query = select(Invoice.failed_at).where(
        Invoice.organization_id == organization.id,
        Invoice.provider_customer_id == organization.provider_customer_id,
        col(Invoice.failed_at).is_not(None),
        col(Invoice.status).not_in(SETTLED),
    )
    since += (await session.exec(query)).all()
    return any(one is not None and one <= moment - grace for one in since)


def _trial_is_over(subscription: Subscription, moment: datetime) -> bool:
    ran_out = (
        subscription.status == TRIALING
        and subscription.trial_ends_at is not None
        and subscription.trial_ends_at <= moment - TRIAL_SLACK
    )
    return ran_out or subscription.trial_expired
