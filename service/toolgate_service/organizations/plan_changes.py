"""Putting an organization on another plan (decisions §7)."""

from datetime import datetime
from typing import Literal

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit import service as audit
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import RETENTION_GRACE, PlanName, Plans, longest
from toolgate_service.storage.database import now


def change_plan(
    session: AsyncSession,
    plans: Plans,
    organization: Organization,
    plan: PlanName,
    *,
    by: Literal["operator", "provider"],
) -> bool:
    """Put an organization on a plan at once; say whether it was on another.

    What a smaller plan retains for a shorter time is kept for 30 more days.
    """
    before = organization.plan
    if plan == before:
        return False
    _keep_longer(organization, plans, plan, now(session))
    organization.plan = plan
    changes = {"from": before, "to": plan, "by": by}
    audit.record_outside(session, organization.id, "organization.plan_changed", changes=changes)
    return True


def _keep_longer(organization: Organization, plans: Plans, plan: PlanName, moment: datetime) -> None:
    old, new = plans[organization.plan].log_retention_days, plans[plan].log_retention_days
    changed_at, running = organization.plan_changed_at, organization.retention_days_before
    if changed_at is None or moment >= changed_at + RETENTION_GRACE:
        running = None
    if longest(old, new) != new:
        # Of two shortenings within 30 days the longest retention holds until the second one's end: one pair of columns
        # has room for one, and nothing may be removed early.
        organization.retention_days_before = old if running is None else longest(old, running)
        organization.plan_changed_at = moment
    elif running is None:
        organization.retention_days_before = None
        organization.plan_changed_at = moment
