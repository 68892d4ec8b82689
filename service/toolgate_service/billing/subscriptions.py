"""Which of an organization's subscriptions counts, and which plan it buys."""

import json

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.billing.facts import PAUSED
from toolgate_service.billing.models import Subscription
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import PLAN_NAMES, PlanName, Plans

TRIALING = "trialing"
CANCELED = "canceled"
#: these buy their plan; `incomplete` does not before its first payment
ENTITLED = (TRIALING, "active", "past_due", "unpaid", PAUSED)


async def current_subscription(session: AsyncSession, organization: Organization) -> Subscription | None:
    """Return the subscription that counts: the newest living one, or else the newest that has ended.

    Only those of the customer who is linked now; one whose first payment is still missing comes last.
    """
    query = select(Subscription).where(
        Subscription.organization_id == organization.id,
        Subscription.provider_customer_id == organization.provider_customer_id,
    )
    found = (await session.exec(query)).all()
    return max(found, key=_precedence, default=None)


def plan_of(plans: Plans, subscription: Subscription) -> PlanName | None:
    """Return the plan that a subscription's prices buy, the largest of several; None when they buy none."""
    prices = set(json.loads(subscription.price_ids))
    bought = [name for name in PLAN_NAMES if prices & set(plans[name].provider_price_ids)]
    return bought[-1] if bought else None


def is_entitled(subscription: Subscription) -> bool:
    """Say whether a subscription buys its plan at present."""
    return subscription.status in ENTITLED


def _precedence(subscription: Subscription) -> tuple[int, str, str]:
    standing = 2 if is_entitled(subscription) else int(subscription.status == CANCELED)
    return standing, subscription.provider_created_at.isoformat(), subscription.id
