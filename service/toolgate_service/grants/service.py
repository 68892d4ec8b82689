"""Listing and revoking what is allowed for a while."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.ending import cancel
from toolgate_service.approvals.models import APPROVED, Approval
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, not_found
from toolgate_service.grants.models import ACTIVE, EXHAUSTED, EXPIRED, REVOKED, Grant, GrantVote
from toolgate_service.grants.schemas import GrantView, GrantVoteView
from toolgate_service.ids import is_id
from toolgate_service.storage.database import now
from toolgate_service.web.paging import Found, Page, find_page

#: of those that are in force, so many are shown beside their agent
SHOWN = 50


def state_of(grant: Grant, moment: datetime) -> str:
    """Return a grant's state by the clock and by what is left of it."""
    if grant.status == REVOKED:
        return REVOKED
    if grant.uses_left == 0:
        return EXHAUSTED
    return EXPIRED if grant.expires_at <= moment else grant.status


def _stands_at(status: str, moment: datetime) -> ColumnElement[bool]:
    if status == REVOKED:
        return col(Grant.status) == REVOKED
    if status == EXHAUSTED:
        return (col(Grant.status) != REVOKED) & (col(Grant.uses_left) == 0)
    left = (col(Grant.status) != REVOKED) & (col(Grant.uses_left) > 0)
    if status == EXPIRED:
        return left & (col(Grant.expires_at) <= moment)
    return left & (col(Grant.status) == status) & (col(Grant.expires_at) > moment)


async def list_grants(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    status: str | None,
    agent_id: str | None,
) -> Found[Grant]:
    """Return a page of grants, newest first."""
    if agent_id is not None and not is_id(agent_id):
        return Found([], 0, None)
    query = select(Grant).where(
        Grant.organization_id == caller.organization_id, Grant.environment == environment
    )
    if status is not None:
        query = query.where(_stands_at(status, now(session)))
    if agent_id is not None:
        query = query.where(Grant.agent_id == agent_id)
    return await find_page(session, query, Grant, page)


async def in_force(session: AsyncSession, agent: Agent, actions: Sequence[str]) -> Sequence[Grant]:
    """Return what lets an agent's calls of some actions through now, what ends first before the rest."""
    query = (
        select(Grant)
        .where(
            Grant.organization_id == agent.organization_id,
            Grant.environment == agent.environment,
            Grant.agent_id == agent.id,
            col(Grant.action).in_(actions),
            _stands_at(ACTIVE, now(session)),
        )
        .order_by(col(Grant.expires_at), col(Grant.id))
        .limit(SHOWN)
    )
    return (await session.exec(query)).all()


async def find_grant(session: AsyncSession, caller: Caller, environment: str, grant_id: str) -> Grant:
    """Return one grant.

    Raises:
        ApiError: 404, there is none of that id in the caller's organization and environment.
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


async def revoke(session: AsyncSession, caller: Caller, grant: Grant) -> Sequence[Approval]:
    """End a grant at once: the very next check is held, and what it has approved and was not used is cancelled.

    Returns:
        What was cancelled.

    Raises:
        ApiError: 409, it was revoked before, or has run out or been used up with nothing left to cancel.
    """
    moment = now(session)
    query = select(Approval).where(
        Approval.grant_id == grant.id, Approval.status == APPROVED, col(Approval.expires_at) > moment
    )
    unused = (await session.exec(query)).all()
    state = state_of(grant, moment)
    if state == REVOKED or (state in {EXPIRED, EXHAUSTED} and not unused):
        raise ApiError(409, f"Grant lets nothing through any more: it is {state}")
    grant.status, grant.revoked_at, grant.revoked_by = REVOKED, moment, caller.user_id
    session.add(grant)
    await cancel(session, unused, "what allowed it for a while was revoked")
    audit.record(
        session,
        caller,
        "grant.revoked",
        grant.id,
        environment=grant.environment,
        changes={"approval_id": grant.approval_id, "uses_left": grant.uses_left},
    )
    return unused


async def views(
    session: AsyncSession, grants: Sequence[Grant], *, credentials: bool = False
) -> list[GrantView]:
    """Show grants as they stand at this moment; with the voters' credentials to admins."""
    agents = select(Agent.id, Agent.name).where(col(Agent.id).in_({grant.agent_id for grant in grants}))
    names = dict((await session.exec(agents)).all())
    cast = (
        select(GrantVote)
        .where(col(GrantVote.grant_id).in_([grant.id for grant in grants]))
        .order_by(col(GrantVote.created_at), col(GrantVote.user_id))
    )
    votes: defaultdict[str, list[GrantVoteView]] = defaultdict(list)
    for vote in (await session.exec(cast)).all():
        stored = vote.credential if credentials else None
        credential = None if stored is None else exact_json.loads_own(stored)
        votes[vote.grant_id].append(
            GrantVoteView.model_validate(vote.model_dump() | {"credential": credential})
        )
    moment = now(session)
    return [
        GrantView.model_validate(
            grant.model_dump()
            | {
                "agent_name": names[grant.agent_id],
                "status": state_of(grant, moment),
                "context": exact_json.loads_own(grant.context),
                "except_fields": json.loads(grant.except_fields),
                "votes": votes[grant.id],
            }
        )
        for grant in grants
    ]
