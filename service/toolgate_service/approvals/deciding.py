"""The rules of deciding (decisions §5)."""

from collections.abc import Sequence
from datetime import timedelta

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.approvals.editing import edited
from toolgate_service.approvals.models import APPROVED, DENIED, PENDING, Approval, ApprovalVote
from toolgate_service.approvals.rights import why_not, why_not_enough
from toolgate_service.approvals.schemas import ApprovalDecision
from toolgate_service.approvals.states import state_of
from toolgate_service.approvals.telling import tell
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.grants.ending import end_proposal
from toolgate_service.grants.proposing import propose
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now


async def approve(
    session: AsyncSession, settings: Settings, caller: Caller, approval: Approval, decision: ApprovalDecision
) -> Sequence[Approval]:
    """Approve a pending request, as it was asked or with an edited context; who does is the token's user.

    Where the permission demands several people it goes on waiting until the last of them has approved.

    Args:
        session: a write transaction in the organization's turn.
        settings: how long an approval may be used.
        caller: who approves.
        approval: the request.
        decision: a note, an edited context, or what to allow for a while.

    Returns:
        Whatever changed: the request, the one with the edited context, those that a grant covers.

    Raises:
        ApiError: 409 no longer pending, or approved by the caller before; 403 the caller may not approve; 400 the
            edited context or the grant cannot be.
    """
    _demand_pending(state_of(approval, now(session)))
    if reason := await why_not(session, approval, caller.user_id):
        raise ApiError(
            403, f"You may not approve this request: {reason}; it may be denied, or approved by another"
        )
    if decision.context is not None and decision.grant is not None:
        raise FieldErrors(
            {
                "grant": [
                    "cannot be sent with an edited context: what is allowed for a while is what was asked"
                ]
            }
        )
    asked = await edited(session, caller, approval, decision.context)
    votes = await _votes(session, asked)
    again = caller.user_id in votes
    if not again:
        votes[caller.user_id] = _vote(session, caller, asked, APPROVED, decision.note)
    # Of what is pending every vote is an approval: a denial would have ended it.
    enough = await why_not_enough(session, asked, votes.keys()) is None
    # Somebody's vote may have come to count since, because their role did: then anybody's word ends the waiting.
    if again and (decision.grant is not None or not enough):
        raise ApiError(409, "You have approved this request already; it waits for another person")
    _audit(session, caller, asked, APPROVED, decision.note)
    changed = [approval] if asked is approval else [approval, asked]
    if enough:
        _let_pass(session, settings, caller, asked, decision.note)
        await tell(session, "approved", asked)
    elif asked is not approval:
        await tell(session, "requested", asked)
    if decision.grant is not None:
        changed += await propose(session, settings, caller, asked, decision.grant, decision.note)
    # Only who voted before can have proposed something else.
    if len(votes) > 1 and asked.status == APPROVED:
        await end_proposal(session, asked)
    return changed


def _let_pass(
    session: AsyncSession, settings: Settings, caller: Caller, approval: Approval, note: str | None
) -> None:
    moment = now(session)
    approval.status, approval.decided_at, approval.decided_by = APPROVED, moment, caller.user_id
    approval.note, approval.remind_at = note, None
    approval.expires_at = moment + timedelta(seconds=settings.approved_ttl_seconds)
    session.add(approval)


async def deny(session: AsyncSession, caller: Caller, approval: Approval, note: str | None) -> None:
    """Refuse a pending request: one person's no ends it, whoever has approved it before.

    Raises:
        ApiError: 409, no longer pending.
    """
    moment = now(session)
    _demand_pending(state_of(approval, moment))
    approval.status, approval.decided_at, approval.decided_by = DENIED, moment, caller.user_id
    approval.note, approval.remind_at = note, None
    session.add(approval)
    before = (await _votes(session, approval)).get(caller.user_id)
    if before is not None:
        await session.delete(before)
        await session.flush()
    _vote(session, caller, approval, DENIED, note)
    _audit(session, caller, approval, DENIED, note)
    await end_proposal(session, approval)
    await tell(session, "denied", approval)


def _demand_pending(state: str) -> None:
    if state != PENDING:
        raise ApiError(409, f"Approval is no longer pending: it is {state}")


async def _votes(session: AsyncSession, approval: Approval) -> dict[str, ApprovalVote]:
    query = select(ApprovalVote).where(ApprovalVote.approval_id == approval.id)
    return {vote.user_id: vote for vote in (await session.exec(query)).all()}


def _vote(
    session: AsyncSession, caller: Caller, approval: Approval, decision: str, note: str | None
) -> ApprovalVote:
    vote = ApprovalVote(
        approval_id=approval.id,
        user_id=caller.user_id,
        organization_id=approval.organization_id,
        environment=approval.environment,
        decision=decision,
        note=note,
        credential=exact_json.dumps(dict(caller.credential)),
        created_at=now(session),
    )
    session.add(vote)
    return vote


def _audit(
    session: AsyncSession, caller: Caller, approval: Approval, decision: str, note: str | None
) -> None:
    audit.record(
        session,
        caller,
        f"approval.{decision}",
        approval.id,
        environment=approval.environment,
        changes={"digest": approval.digest, "note": note, "credential": caller.credential}
        | ({"via": caller.via} if caller.via else {}),
    )
