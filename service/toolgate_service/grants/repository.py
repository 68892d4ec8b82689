"""Database queries for temporary approvals (grants)."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.grant_proposals import covers
from toolgate_service.approvals.models import Approval, ruled_permission_id
from toolgate_service.approvals.policy import Terms, grant_invalid_reason, quorum_failure, voters_of
from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import is_id
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.grants.models import ACTIVE, Grant, has_state

#: maximum number of temporary approvals that the console shows on the page of an agent
MAX_ACTIVE = 50

_USABLE = (
    select(Grant)
    .where(
        col(Grant.organization_id) == bindparam("organization_id"),
        col(Grant.environment) == bindparam("environment"),
        col(Grant.agent_id) == bindparam("agent_id"),
        col(Grant.action) == bindparam("action"),
        col(Grant.permission_id) == bindparam("permission_id"),
        col(Grant.status) == ACTIVE,
        col(Grant.expires_at) > bindparam("now"),
        col(Grant.uses_left) > 0,
        col(Grant.required_approvals) >= bindparam("required_approvals"),
    )
    .order_by(col(Grant.expires_at), col(Grant.id))
)


async def list_grants(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    status: str | None,
    agent_id: str | None,
) -> Found[Grant]:
    """Return one page of temporary approvals, newest first."""
    if agent_id is not None and not is_id(agent_id):
        return Found([], 0, None)
    query = select(Grant).where(
        Grant.organization_id == caller.organization_id, Grant.environment == environment
    )
    if status is not None:
        query = query.where(has_state(status, now(session)))
    if agent_id is not None:
        query = query.where(Grant.agent_id == agent_id)
    return await find_page(session, query, Grant, page)


async def list_active(session: AsyncSession, agent: Agent, actions: Sequence[str]) -> Sequence[Grant]:
    """Return the active temporary approvals of an agent for the given actions, in the order of their expiry."""
    query = (
        select(Grant)
        .where(
            Grant.organization_id == agent.organization_id,
            Grant.environment == agent.environment,
            Grant.agent_id == agent.id,
            col(Grant.action).in_(actions),
            has_state(ACTIVE, now(session)),
        )
        .order_by(col(Grant.expires_at), col(Grant.id))
        .limit(MAX_ACTIVE)
    )
    return (await session.exec(query)).all()


async def find_grant(session: AsyncSession, caller: Caller, environment: str, grant_id: str) -> Grant:
    """Return the temporary approval with this id in an environment of the caller's organization.

    Raises:
        ApiError: 404, the temporary approval does not exist.
    """
    query = select(Grant).where(
        Grant.id == grant_id,
        Grant.organization_id == caller.organization_id,
        Grant.environment == environment,
    )
    grant = (await session.exec(query)).first()
    if grant is None:
        raise not_found("Grant")
    return grant


async def find_usable(
    session: AsyncSession,
    auth: AuthContext,
    action: str,
    context: Mapping[str, object],
    pending: Approval | None,
    terms: Terms,
) -> Grant | None:
    """Return the temporary approval that covers a call, or None. If several cover it, return the first one to expire.

    The users who voted for it must still be allowed to approve the call. If the call has a pending approval request,
    the votes must also satisfy the approval rules of this request. `terms` contains the terms (number of approvals,
    allowed approvers) that rules require for the call.
    """
    values = {
        "organization_id": auth.organization_id,
        "environment": auth.environment,
        "agent_id": auth.agent_id,
        "action": action,
        "permission_id": auth.permission_id or ruled_permission_id(action),
        "now": now(session),
        "required_approvals": max(pending.required_approvals if pending else 1, terms.required_approvals),
    }
    for grant in (await session.exec(_USABLE, params=values)).all():
        approved_context = strict_json.loads_own(grant.context)
        if not isinstance(approved_context, dict) or not covers(
            approved_context, context, json.loads(grant.except_fields)
        ):
            continue
        if await grant_invalid_reason(session, grant, terms) is not None:
            continue
        if pending is None or await quorum_failure(session, pending, voters_of(grant)) is None:
            return grant
    return None
