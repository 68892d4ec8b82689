"""Finding approvals: one, or a page of them."""

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.states import stands_at
from toolgate_service.errors import not_found
from toolgate_service.ids import is_id
from toolgate_service.storage.database import now
from toolgate_service.web.fields import is_action
from toolgate_service.web.paging import Found, Page, find_page


async def list_approvals(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    status: str | None,
    agent_id: str | None,
    action: str | None,
) -> Found[Approval]:
    """Return a page of approvals, newest first."""
    if (agent_id is not None and not is_id(agent_id)) or (action is not None and not is_action(action)):
        return Found([], 0, None)
    query = select(Approval).where(
        Approval.organization_id == caller.organization_id, Approval.environment == environment
    )
    if status is not None:
        query = query.where(stands_at(status, now(session)))
    if agent_id is not None:
        query = query.where(col(Approval.agent_id) == agent_id)
    if action is not None:
        query = query.where(Approval.action == action)
    return await find_page(session, query, Approval, page)


async def find_approval(
    session: AsyncSession, organization_id: str, environment: str, approval_id: str
) -> Approval:
    """Return one approval.

    Raises:
        ApiError: 404, there is none of that id in the organization and environment.
    """
    query = select(Approval).where(
        Approval.id == approval_id,
        Approval.organization_id == organization_id,
        Approval.environment == environment,
    )
    found = (await session.exec(query)).first()
    if found is None:
        raise not_found("Approval")
    return found
