"""How grants end with what they belong to."""

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import Approval
from toolgate_service.grants.models import PROPOSED, REVOKED, Grant
from toolgate_service.permissions.models import Permission
from toolgate_service.storage.database import now


async def revoke_with(session: AsyncSession, of: Agent | Permission) -> None:
    """Revoke what was allowed for a while for an agent or by a permission; nothing revives it."""
    owner = col(Grant.agent_id) if isinstance(of, Agent) else col(Grant.permission_id)
    moment = now(session)
    await session.exec(
        update(Grant)
        .where(
            owner == of.id,
            col(Grant.organization_id) == of.organization_id,
            col(Grant.environment) == of.environment,
            col(Grant.status) != REVOKED,
            # What has run out or is used up stays so.
            col(Grant.expires_at) > moment,
            col(Grant.uses_left) > 0,
        )
        .values(status=REVOKED, revoked_at=moment)
    )


async def end_proposal(session: AsyncSession, approval: Approval) -> None:
    """Revoke what was proposed with a request that was decided, and never had enough approvers."""
    query = select(Grant).where(
        Grant.organization_id == approval.organization_id,
        Grant.environment == approval.environment,
        Grant.approval_id == approval.id,
        Grant.status == PROPOSED,
    )
    grant = (await session.exec(query)).first()
    if grant is not None:
        grant.status, grant.revoked_at = REVOKED, now(session)
        session.add(grant)
