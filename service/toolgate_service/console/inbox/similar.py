"""What became of similar requests before: of the same agent, for the same action."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import load_only
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.approvals.models import APPROVED, CONSUMED, DENIED, EXPIRED, PENDING, Approval
from toolgate_service.approvals.states import state_of
from toolgate_service.storage.database import now

#: requests of an agent that are looked back at
LOOKED_AT = 200
#: of them shown one by one
SHOWN = 3

#: what is read of them
_READ = tuple(
    getattr(Approval, name)
    for name in (
        "id",
        "action",
        "status",
        "digest",
        "created_at",
        "expires_at",
        "decided_at",
        "decided_by",
        "note",
        "grant_id",
        "agent_id",
    )
)


@dataclass(frozen=True, slots=True)
class Past:
    """A similar request.

    Attributes:
        id: which.
        outcome: its state.
        same: whether its arguments were exactly the same.
        when: it was decided, or asked.
        by: who decided; None for nobody, and for a grant.
        note: theirs.
        granted: whether something allowed for a while let it through.
    """

    id: str
    outcome: str
    same: bool
    when: datetime
    by: str | None
    note: str | None
    granted: bool


@dataclass(frozen=True, slots=True)
class Similar:
    """What became of similar requests.

    Attributes:
        approved: of them.
        denied: of them.
        unanswered: of them.
        same: how many had exactly the same arguments.
        latest: the newest, newest first.
    """

    approved: int
    denied: int
    unanswered: int
    same: int
    latest: Sequence[Past]


async def similar_to(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, Similar]:
    """Return for each request, by its id, what became of similar ones; one short read an agent."""
    before = {
        agent: await _of_agent(session, next(one for one in approvals if one.agent_id == agent))
        for agent in {approval.agent_id for approval in approvals}
    }
    deciders = {row.decided_by for rows in before.values() for row in rows if row.decided_by}
    names = await emails(session, deciders)
    moment = now(session)
    return {one.id: _summed_up(one, before[one.agent_id], names, moment) for one in approvals}


async def emails(session: AsyncSession, user_ids: Collection[str]) -> Mapping[str, str]:
    """Return people's e-mail addresses by their ids."""
    if not user_ids:
        return {}
    query = select(User.id, User.email).where(col(User.id).in_(user_ids))
    return dict((await session.exec(query)).all())


async def _of_agent(session: AsyncSession, approval: Approval) -> Sequence[Approval]:
    query = (
        select(Approval)
        .where(
            Approval.organization_id == approval.organization_id,
            Approval.environment == approval.environment,
            Approval.agent_id == approval.agent_id,
        )
        .order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
        .limit(LOOKED_AT)
        # Not their contexts, each of which may be long.
        .options(load_only(*_READ, raiseload=True))
    )
    return (await session.exec(query)).all()


def _summed_up(
    approval: Approval, before: Sequence[Approval], names: Mapping[str, str], moment: datetime
) -> Similar:
    states = [
        (one, state_of(one, moment))
        for one in before
        if one.action == approval.action and one.id not in {approval.id, approval.replaces}
    ]
    past = [(one, state) for one, state in states if state != PENDING]
    counted = [state for _, state in past]
    latest = [
        Past(
            one.id,
            state,
            one.digest == approval.digest,
            one.decided_at or one.created_at,
            names.get(one.decided_by or ""),
            one.note,
            one.grant_id is not None,
        )
        for one, state in past[:SHOWN]
    ]
    return Similar(
        approved=counted.count(APPROVED) + counted.count(CONSUMED),
        denied=counted.count(DENIED),
        unanswered=counted.count(EXPIRED),
        same=sum(one.digest == approval.digest for one, _ in past),
        latest=latest,
    )
