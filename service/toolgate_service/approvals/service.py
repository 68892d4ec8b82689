"""The rules of deciding (decisions §5).

pending → approved | denied | expired | cancelled | replaced
approved → consumed | expired | cancelled
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import (
    APPROVED,
    CANCELLED,
    DENIED,
    EXPIRED,
    OPEN,
    PENDING,
    Approval,
    ApprovalVote,
)
from toolgate_service.approvals.rights import why_not
from toolgate_service.approvals.schemas import ApprovalView, SdkApprovalView
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, not_found
from toolgate_service.ids import is_id
from toolgate_service.organizations.key_caller import KeyCaller
from toolgate_service.organizations.keys import still_works
from toolgate_service.permissions.models import Permission
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now
from toolgate_service.web.fields import is_action
from toolgate_service.web.paging import Found, Page, find_page


def state_of(approval: Approval, moment: datetime) -> str:
    """Return an approval's state by the clock: an open one past its time has expired, whatever the row says."""
    if approval.status in OPEN and approval.expires_at <= moment:
        return EXPIRED
    return approval.status


async def list_approvals(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    status: str | None,
    agent_id: str | None,
    action: str | None,
) -> tuple[Found[Approval], dict[str, Agent]]:
    """Return a page of approvals, newest first, and their agents by id."""
    if (agent_id is not None and not is_id(agent_id)) or (action is not None and not is_action(action)):
        return Found([], 0, None), {}
    query = select(Approval).where(
        Approval.organization_id == caller.organization_id, Approval.environment == environment
    )
    if status is not None:
        query = query.where(_stands_at(status, now(session)))
    if agent_id is not None:
        query = query.where(Approval.agent_id == agent_id)
    if action is not None:
        query = query.where(Approval.action == action)
    found = await find_page(session, query, Approval, page)
    ids = {approval.agent_id for approval in found.rows}
    agents = (await session.exec(select(Agent).where(col(Agent.id).in_(ids)))).all()
    return found, {agent.id: agent for agent in agents}


def _stands_at(status: str, moment: datetime) -> ColumnElement[bool]:
    if status == EXPIRED:
        past = col(Approval.status).in_(OPEN) & (col(Approval.expires_at) <= moment)
        return past | (col(Approval.status) == EXPIRED)
    if status in OPEN:
        return (col(Approval.status) == status) & (col(Approval.expires_at) > moment)
    return col(Approval.status) == status


async def find_approval(
    session: AsyncSession, organization_id: str, environment: str, approval_id: str
) -> tuple[Approval, Agent]:
    """Return one approval with its agent, locked when the session writes.

    Raises:
        ApiError: 404, there is none of that id in the organization and environment.
    """
    query = (
        select(Approval, Agent)
        .join(Agent, col(Agent.id) == Approval.agent_id)
        .where(
            Approval.id == approval_id,
            Approval.organization_id == organization_id,
            Approval.environment == environment,
        )
    )
    found = (await session.exec(query)).first()
    if found is None:
        raise not_found("Approval")
    return found


async def decide(
    session: AsyncSession,
    settings: Settings,
    caller: Caller,
    environment: str,
    approval_id: str,
    *,
    approve: bool,
    note: str | None,
) -> tuple[Approval, Agent]:
    """Approve or deny a pending request; who decided is the token's user.

    Raises:
        ApiError: 404 unknown, 409 no longer pending, 403 the caller may not approve; denying is open to more.
    """
    approval, agent = await find_approval(session, caller.organization_id, environment, approval_id)
    moment = now(session)
    state = state_of(approval, moment)
    if state != PENDING:
        raise ApiError(409, f"Approval is no longer pending: it is {state}")
    if approve and (reason := await why_not(session, approval, caller.user_id)):
        raise ApiError(
            403, f"You may not approve this request: {reason}; it may be denied, or approved by another"
        )
    approval.status = APPROVED if approve else DENIED
    approval.decided_at, approval.decided_by, approval.note = moment, caller.user_id, note
    if approve:
        approval.expires_at = moment + timedelta(seconds=settings.approved_ttl_seconds)
    session.add(approval)
    _keep_vote(session, caller, approval)
    return approval, agent


def _keep_vote(session: AsyncSession, caller: Caller, approval: Approval) -> None:
    session.add(
        ApprovalVote(
            approval_id=approval.id,
            user_id=caller.user_id,
            organization_id=approval.organization_id,
            environment=approval.environment,
            decision=approval.status,
            note=approval.note,
            created_at=now(session),
        )
    )
    audit.record(
        session,
        caller,
        f"approval.{approval.status}",
        approval.id,
        environment=approval.environment,
        changes={"digest": approval.digest, "note": approval.note},
    )


async def cancel(session: AsyncSession, caller: KeyCaller, approval_id: str) -> Approval:
    """Withdraw an open request, for good.

    Raises:
        ApiError: 401 the key was revoked meanwhile, 404 not the key's to cancel, 409 no longer open.
    """
    if not await still_works(session, caller.key_digest):
        raise ApiError(401, "Invalid API key")
    standing = caller.standing
    approval, _ = await find_approval(session, standing.organization_id, standing.environment, approval_id)
    if not caller.may_act_as(approval.agent_id):
        raise not_found("Approval")
    moment = now(session)
    state = state_of(approval, moment)
    if state not in OPEN:
        raise ApiError(409, f"Approval is no longer open: it is {state}")
    approval.status, approval.cancelled_at = CANCELLED, moment
    approval.cancel_reason = "withdrawn by whoever asked"
    session.add(approval)
    return approval


async def cancel_open(session: AsyncSession, of: Agent | Permission, reason: str) -> None:
    """Cancel whatever waits, or waits to be used, for an agent or a permission; nothing revives it."""
    owner = col(Approval.agent_id) if isinstance(of, Agent) else col(Approval.permission_id)
    moment = now(session)
    await session.exec(
        update(Approval)
        .where(
            owner == of.id,
            col(Approval.organization_id) == of.organization_id,
            col(Approval.status).in_(OPEN),
            # What has run out stays expired.
            col(Approval.expires_at) > moment,
        )
        .values(status=CANCELLED, cancelled_at=moment, cancel_reason=reason)
    )


def sdk_view(approval: Approval, moment: datetime) -> SdkApprovalView:
    """Show an approval, as it stands at a moment, to the agent that asked."""
    return SdkApprovalView.model_validate(_shown(approval, moment))


def view(approval: Approval, agent: Agent, moment: datetime) -> ApprovalView:
    """Show an approval, as it stands at a moment, to people."""
    return ApprovalView.model_validate(_shown(approval, moment) | {"agent_name": agent.name})


def _shown(approval: Approval, moment: datetime) -> dict[str, Any]:
    return approval.model_dump() | {
        "status": state_of(approval, moment),
        "context": exact_json.loads_own(approval.context),
        "run_id": approval.run_id or None,
        "call_id": approval.call_id or None,
    }
