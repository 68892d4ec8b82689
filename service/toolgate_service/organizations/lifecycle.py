"""Lifecycle of an organization: changes of its plan, deactivation and reactivation.

An organization is inactive as long as at least one cause of its deactivation is stored. A payment removes only the
cause `payment`.
"""

from datetime import datetime
from typing import Literal

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit import service as audit
from toolgate_service.core.plans import RETENTION_GRACE, PlanName, Plans, longest
from toolgate_service.db.database import now
from toolgate_service.organizations.models import OPERATOR, PAYMENT, Cause, Deactivation, Organization


async def deactivate(session: AsyncSession, organization: Organization, cause: Cause) -> bool:
    """Deactivate the organization for a cause. Return False if the cause was stored already."""
    found = await _causes(session, organization)
    if any(one.cause == cause for one in found):
        return False
    if cause == PAYMENT and not (organization.is_active or found):
        # The operator deactivated the organization without a stored cause. Store it, so that a payment does not
        # reactivate the organization.
        session.add(_deactivation(session, organization, OPERATOR))
    session.add(_deactivation(session, organization, cause))
    organization.is_active = False
    audit.record_outside(session, organization.id, "organization.deactivated", changes={"cause": cause})
    return True


async def reactivate(session: AsyncSession, organization: Organization, *causes: Cause) -> bool:
    """Remove causes of the organization's deactivation. Return True if this made the organization active."""
    found = await _causes(session, organization)
    taken = [one for one in found if one.cause in causes]
    for one in taken:
        await session.delete(one)
    # The operator may also reactivate an organization that is inactive without a stored cause.
    unexplained = not found and OPERATOR in causes
    if organization.is_active or len(taken) < len(found) or not (taken or unexplained):
        return False
    organization.is_active = True
    changes = {"causes": [one.cause for one in taken]}
    audit.record_outside(session, organization.id, "organization.activated", changes=changes)
    return True


async def causes_of(session: AsyncSession, organization: Organization) -> list[str]:
    """Return the causes for which the organization is inactive."""
    return [one.cause for one in await _causes(session, organization)]


async def _causes(session: AsyncSession, organization: Organization) -> list[Deactivation]:
    query = select(Deactivation).where(Deactivation.organization_id == organization.id)
    return list((await session.exec(query)).all())


def _deactivation(session: AsyncSession, organization: Organization, cause: Cause) -> Deactivation:
    return Deactivation(organization_id=organization.id, cause=cause, created_at=now(session))


def change_plan(
    session: AsyncSession,
    plans: Plans,
    organization: Organization,
    plan: PlanName,
    *,
    by: Literal["operator", "provider"],
) -> bool:
    """Change the organization's plan immediately. Return False if the organization has this plan already.

    If the new plan retains log entries for a shorter time, the old retention applies for 30 more days.
    """
    before = organization.plan
    if plan == before:
        return False
    _extend_retention(organization, plans, plan, now(session))
    organization.plan = plan
    changes = {"from": before, "to": plan, "by": by}
    audit.record_outside(session, organization.id, "organization.plan_changed", changes=changes)
    return True


def _extend_retention(organization: Organization, plans: Plans, plan: PlanName, moment: datetime) -> None:
    old, new = plans[organization.plan].log_retention_days, plans[plan].log_retention_days
    changed_at, running = organization.plan_changed_at, organization.retention_days_before
    if changed_at is None or moment >= changed_at + RETENTION_GRACE:
        running = None
    if longest(old, new) != new:
        # The row stores only one former retention. If two changes within 30 days shorten the retention, the longest one
        # applies until 30 days after the second change, so that no entry is removed too early.
        organization.retention_days_before = old if running is None else longest(old, running)
        organization.plan_changed_at = moment
    elif running is None:
        organization.retention_days_before = None
        organization.plan_changed_at = moment
