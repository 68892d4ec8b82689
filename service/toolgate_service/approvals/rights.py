"""Who may approve a request: asked when a person decides, and again when the approval is used (decisions §5, §9)."""

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import Approval
from toolgate_service.permissions.models import Permission


async def why_not(session: AsyncSession, approval: Approval, user_id: str | None) -> str | None:
    """Say why a user may not approve a request, as things stand in this transaction; None when they may.

    The words name nobody: an agent reads them too.
    """
    query = (
        select(User, Agent, Permission)
        .select_from(User)
        .join(Agent, col(Agent.organization_id) == User.organization_id)
        .join(Permission, col(Permission.agent_id) == Agent.id)
        .where(
            User.id == user_id,
            User.organization_id == approval.organization_id,
            Agent.id == approval.agent_id,
            Permission.id == approval.permission_id,
        )
    )
    found = (await session.exec(query)).first()
    if found is None or found[0].removed_at is not None:
        return "the approver is not, or no longer, of this organization"
    user, agent, permission = found
    if user.role == VIEWER:
        return "the approver's role is 'viewer', which may not decide"
    if permission.separation_of_duties and user.id in {agent.created_by, permission.created_by}:
        return "whoever created the agent or the permission may not approve (separation of duties)"
    return None
