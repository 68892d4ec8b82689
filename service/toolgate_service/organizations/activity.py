"""Whether an organization is active, and why not: an operator's word and an unpaid bill are kept apart.

An organization is inactive as long as one cause stands. A payment takes back only what a missing payment did.
"""

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit import service as audit
from toolgate_service.organizations.models import OPERATOR, PAYMENT, Cause, Deactivation, Organization
from toolgate_service.storage.database import now


async def deactivate(session: AsyncSession, organization: Organization, cause: Cause) -> bool:
    """Make an organization inactive for a cause; say whether that is new."""
    found = await _causes(session, organization)
    if any(one.cause == cause for one in found):
        return False
    if cause == PAYMENT and not (organization.is_active or found):
        # Somebody's hand made it inactive without a word; no payment shall take that back.
        session.add(_because(session, organization, OPERATOR))
    session.add(_because(session, organization, cause))
    organization.is_active = False
    audit.record_outside(session, organization.id, "organization.deactivated", changes={"cause": cause})
    return True


async def reactivate(session: AsyncSession, organization: Organization, *causes: Cause) -> bool:
    """Take causes back; say whether the organization is active now and was not before."""
    found = await _causes(session, organization)
    taken = [one for one in found if one.cause in causes]
    for one in taken:
        await session.delete(one)
    # An operator's word also ends what no cause explains.
    unexplained = not found and OPERATOR in causes
    if organization.is_active or len(taken) < len(found) or not (taken or unexplained):
        return False
    organization.is_active = True
    changes = {"causes": [one.cause for one in taken]}
    audit.record_outside(session, organization.id, "organization.activated", changes=changes)
    return True


async def causes_of(session: AsyncSession, organization: Organization) -> list[str]:
    """Return why an organization is inactive."""
    return [one.cause for one in await _causes(session, organization)]


async def _causes(session: AsyncSession, organization: Organization) -> list[Deactivation]:
    query = select(Deactivation).where(Deactivation.organization_id == organization.id)
    return list((await session.exec(query)).all())


def _because(session: AsyncSession, organization: Organization, cause: Cause) -> Deactivation:
    return Deactivation(organization_id=organization.id, cause=cause, created_at=now(session))
