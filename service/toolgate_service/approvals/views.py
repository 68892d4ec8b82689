"""How approvals are shown: to people with everything, to the asking agent without who decides (decisions §3)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import APPROVED, CONSUMED, PENDING, REPLACED, Approval, ApprovalVote
from toolgate_service.approvals.schemas import ApprovalView, SdkApprovalView, VoteView
from toolgate_service.approvals.states import state_of
from toolgate_service.storage.database import now


@dataclass(frozen=True, slots=True)
class _Beside:
    """What stands in other rows about some approvals."""

    names: Mapping[str, str]
    votes: Mapping[str, Sequence[ApprovalVote]]
    successors: Mapping[str, Approval]


async def views(
    session: AsyncSession, approvals: Sequence[Approval], *, credentials: bool = False
) -> list[ApprovalView]:
    """Show approvals, as they stand at this moment, to people.

    Args:
        session: a transaction or a snapshot.
        approvals: which.
        credentials: show by what each voter proved who they are: to admins.
    """
    beside = await _beside(session, approvals)
    return [
        ApprovalView.model_validate(
            _shown(session, approval, beside.successors)
            | {
                "agent_name": beside.names[approval.agent_id],
                "votes": [_vote(vote, credentials=credentials) for vote in beside.votes[approval.id]],
            }
        )
        for approval in approvals
    ]


async def view(session: AsyncSession, approval: Approval, *, credentials: bool = False) -> ApprovalView:
    """Show one approval to people."""
    return (await views(session, [approval], credentials=credentials))[0]


def _vote(vote: ApprovalVote, *, credentials: bool) -> VoteView:
    stored = vote.credential if credentials else None
    credential = None if stored is None else exact_json.loads_own(stored)
    return VoteView.model_validate(vote.model_dump() | {"credential": credential})


async def sdk_view(session: AsyncSession, approval: Approval) -> SdkApprovalView:
    """Show an approval, as it stands at this moment, to the agent that asked."""
    return SdkApprovalView.model_validate(_shown(session, approval, await _successors(session, [approval])))


def _shown(session: AsyncSession, approval: Approval, successors: Mapping[str, Approval]) -> dict[str, Any]:
    moment = now(session)
    status = state_of(approval, moment)
    return approval.model_dump() | {
        "status": status,
        "waiting": status == PENDING
        and approval.waiting_until is not None
        and approval.waiting_until > moment,
        "context": exact_json.loads_own(approval.context),
        "approved_context": _approved_context(session, approval, successors),
        "run_id": approval.run_id or None,
        "call_id": approval.call_id or None,
        "separation_of_duties": bool(approval.separation_of_duties),
    }


def _approved_context(
    session: AsyncSession, approval: Approval, successors: Mapping[str, Approval]
) -> exact_json.Json:
    # Of the request that an approver edited, and of the one that took its place.
    edited = successors.get(approval.replaced_by or "", approval)
    if edited.replaces is None or state_of(edited, now(session)) not in {APPROVED, CONSUMED}:
        return None
    return exact_json.loads_own(edited.context)


async def _beside(session: AsyncSession, approvals: Sequence[Approval]) -> _Beside:
    agents = select(Agent.id, Agent.name).where(
        col(Agent.id).in_({approval.agent_id for approval in approvals})
    )
    cast = (
        select(ApprovalVote)
        .where(col(ApprovalVote.approval_id).in_([approval.id for approval in approvals]))
        .order_by(col(ApprovalVote.created_at), col(ApprovalVote.user_id))
    )
    votes: defaultdict[str, list[ApprovalVote]] = defaultdict(list)
    for vote in (await session.exec(cast)).all():
        votes[vote.approval_id].append(vote)
    names = dict((await session.exec(agents)).all())
    return _Beside(names, votes, await _successors(session, approvals))


async def _successors(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, Approval]:
    ids = [approval.replaced_by for approval in approvals if approval.status == REPLACED]
    if not ids:
        return {}
    found = (await session.exec(select(Approval).where(col(Approval.id).in_(ids)))).all()
    return {approval.id: approval for approval in found}
