"""Approval, rejection, cancellation and expiry of approval requests.

The API, the console and Slack all call `approve` and `deny`. Each of the two functions opens one transaction, in which
it checks the rights of the caller again. After the commit, it wakes the long polls that wait for the request.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import BindParameter, ColumnElement, bindparam, literal
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.events import emit_approval_event
from toolgate_service.approvals.grant_proposals import end_proposal, propose, revoke_grants
from toolgate_service.approvals.models import (
    APPROVED,
    CANCELLED,
    DENIED,
    EXPIRED,
    OPEN,
    PENDING,
    REPLACED,
    Approval,
    ApprovalVote,
    state_of,
)
from toolgate_service.approvals.policy import approver_rejection, quorum_failure, validate_edit
from toolgate_service.approvals.repository import find_approval, find_duplicate
from toolgate_service.approvals.schemas import (
    ApprovalDecision,
    ApprovalView,
    SdkApprovalView,
    serialize_approval,
    serialize_for_agent,
)
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext, KeyCaller
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, FieldErrors, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.core.strict_json import digest
from toolgate_service.db.database import Database, now
from toolgate_service.jobs.batches import in_batches
from toolgate_service.organizations.repository import is_key_valid
from toolgate_service.permissions.models import Permission

#: reason for the cancellation of a request whose call a user rejected in the agent's framework, for example LangChain;
#: the gateway denies later checks with the same `call_id`
REJECTED = "rejected in the agent's framework"

#: function that opens a write transaction and, inside the transaction, checks the rights of the caller
Transaction: TypeAlias = Callable[[AppContext, Caller], AbstractAsyncContextManager[AsyncSession]]


class ApprovalChanged(ApiError):
    """Raised if the content of the stored request is not the content that the approver saw."""

    def __init__(self) -> None:
        super().__init__(409, "The request has changed since it was shown; review it again")


async def approve(
    context: AppContext,
    caller: Caller,
    environment: str,
    approval_id: str,
    decision: ApprovalDecision,
    *,
    shown: str | None = None,
    transaction: Transaction = transaction_as,
) -> ApprovalView:
    """Approve a pending request: unchanged, with an edited context, or together with a temporary approval.

    If the permission requires several approvers, the request stays pending until enough of them have approved it.

    `shown` is the digest of the context that the approver saw; None skips the comparison with the stored digest.
    `transaction` opens the write transaction and checks the rights of the caller.

    Raises:
        ApiError: 400 if the edited context or the temporary approval is invalid; 403 if the caller may not approve this
            request; 404 if the request does not exist; 409 if the request is not pending, its digest differs from
            `shown`, or the caller has already approved it.
    """
    async with transaction(context, caller) as session:
        approval = await _find_shown(session, caller, environment, approval_id, shown)
        changed = await _approve(session, context.settings, caller, approval, decision)
        view = await serialize_approval(session, approval, credentials=caller.is_admin)
    for one in changed:
        context.notifier.notify(one.id)
    return view


async def deny(
    context: AppContext,
    caller: Caller,
    environment: str,
    approval_id: str,
    note: str | None,
    *,
    shown: str | None = None,
    transaction: Transaction = transaction_as,
) -> ApprovalView:
    """Reject a pending request. A single rejection is enough, even if several approvers are required.

    For `denial_cache_seconds`, further checks of the same call are denied, with `note` as the reason.

    Raises:
        ApiError: 404 if the request does not exist; 409 if it is not pending, or its digest differs from `shown`.
    """
    async with transaction(context, caller) as session:
        approval = await _find_shown(session, caller, environment, approval_id, shown)
        await _deny(session, caller, approval, note)
        view = await serialize_approval(session, approval, credentials=caller.is_admin)
    context.notifier.notify(approval_id)
    return view


async def withdraw(
    context: AppContext, caller: KeyCaller, approval_id: str, *, rejected: bool
) -> SdkApprovalView:
    """Cancel a pending or approved request for the agent that created it.

    Set `rejected` if a user of the agent's framework rejected the call. The gateway then denies later checks with the
    same `call_id`.

    Raises:
        ApiError: 401 if the API key was revoked; 404 if the request does not exist or belongs to an agent for which the
            key is not valid; 409 if the request is neither pending nor approved.
    """
    auth = caller.context
    async with context.database.writing(auth.organization_id) as session:
        if not await is_key_valid(session, caller.key_digest):
            raise ApiError(401, "Invalid API key")
        approval = await find_approval(session, auth.organization_id, auth.environment, approval_id)
        if not caller.may_act_as(approval.agent_id):
            raise not_found("Approval")
        state = state_of(approval, now(session))
        if state not in OPEN:
            raise ApiError(409, f"Approval is no longer open: it is {state}")
        await cancel(session, [approval], REJECTED if rejected else "cancelled by the agent")
        await end_proposal(session, approval)
        view = await serialize_for_agent(session, approval)
    context.notifier.notify(approval_id)
    return view


async def cancel_open(session: AsyncSession, owner: Agent | Permission, reason: str) -> None:
    """Cancel all pending and approved requests of an agent or a permission, and revoke its temporary approvals."""
    owner_id = col(Approval.agent_id) if isinstance(owner, Agent) else col(Approval.permission_id)
    query = select(Approval).where(
        owner_id == owner.id,
        col(Approval.organization_id) == owner.organization_id,
        col(Approval.status).in_(OPEN),
        # Exclude requests that expired without an update of their status: from the time `expires_at` on, a request
        # counts as expired, even if the background job has not run yet.
        col(Approval.expires_at) > now(session),
    )
    await cancel(session, (await session.exec(query)).all(), reason)
    await revoke_grants(session, owner)


async def cancel(session: AsyncSession, approvals: Sequence[Approval], reason: str) -> None:
    """Mark requests as cancelled. All of them must belong to one organization and one environment."""
    for approval in approvals:
        approval.status, approval.cancelled_at, approval.remind_at = CANCELLED, now(session), None
        approval.cancel_reason = reason
        session.add(approval)
    await emit_approval_event(session, "cancelled", *approvals)


async def expire(session: AsyncSession, approvals: Sequence[Approval]) -> None:
    """Mark requests as expired. All of them must belong to one organization and one environment."""
    for approval in approvals:
        approval.status, approval.remind_at = EXPIRED, None
        session.add(approval)
    await emit_approval_event(session, "expired", *approvals)


async def expire_duplicate(session: AsyncSession, successor: Approval) -> None:
    """Mark a pending request as expired if its deadline has passed and it would prevent the insertion of `successor`.

    The unique index allows only one pending request per agent, permission, digest, run and call.
    """
    duplicate = await find_duplicate(session, successor)
    if duplicate is not None and duplicate.expires_at <= now(session):
        await expire(session, [duplicate])
        await session.flush()


async def _find_shown(
    session: AsyncSession, caller: Caller, environment: str, approval_id: str, shown: str | None
) -> Approval:
    approval = await find_approval(session, caller.organization_id, environment, approval_id)
    if shown is not None and approval.digest != shown:
        raise ApprovalChanged
    return approval


async def _approve(
    session: AsyncSession, settings: Settings, caller: Caller, approval: Approval, decision: ApprovalDecision
) -> Sequence[Approval]:
    """Record the caller's approval of a request, and return all requests whose rows changed."""
    _require_pending(state_of(approval, now(session)))
    if reason := await approver_rejection(session, approval, caller.user_id):
        raise ApiError(
            403, f"You may not approve this request: {reason}; reject it, or ask another user to approve it"
        )
    if decision.context is not None and decision.grant is not None:
        raise FieldErrors(
            {
                "grant": [
                    (
                        "cannot be combined with an edited context; send either the field grant or the "
                        "field context"
                    )
                ]
            }
        )
    approved = await _apply_edit(session, caller, approval, decision)
    votes = await _load_votes(session, approved)
    voted_before = caller.user_id in votes
    if not voted_before:
        votes[caller.user_id] = _add_vote(session, caller, approved, APPROVED, decision.note)
    # All voters count as approvers: a pending request has no rejections, because a single rejection ends the request.
    complete = await quorum_failure(session, approved, votes.keys()) is None
    # A user may approve again only if this completes the request. This is possible if the existing votes have become
    # enough, because the role of a voter or the required number of approvers changed.
    if voted_before and (decision.grant is not None or not complete):
        raise ApiError(409, "You have already approved this request; it needs the approval of another user")
    _audit(session, caller, approved, APPROVED, decision.note)
    changed = [approval] if approved is approval else [approval, approved]
    if complete:
        decided_at = _mark_decided(session, caller, approved, APPROVED, decision.note)
        approved.expires_at = decided_at + timedelta(seconds=settings.approval_use_ttl_seconds)
        await emit_approval_event(session, "approved", approved)
    elif approved is not approval:
        await emit_approval_event(session, "requested", approved)
    if decision.grant is not None:
        changed += await propose(session, settings, caller, approved, decision.grant, decision.note)
    # The request is no longer pending. If an earlier vote proposed a temporary approval that did not become active,
    # revoke the proposal.
    if (voted_before or len(votes) > 1) and approved.status == APPROVED:
        await end_proposal(session, approved)
    return changed


async def _deny(session: AsyncSession, caller: Caller, approval: Approval, note: str | None) -> None:
    _require_pending(state_of(approval, now(session)))
    _mark_decided(session, caller, approval, DENIED, note)
    before = (await _load_votes(session, approval)).get(caller.user_id)
    if before is not None:
        await session.delete(before)
        await session.flush()
    _add_vote(session, caller, approval, DENIED, note)
    _audit(session, caller, approval, DENIED, note)
    await end_proposal(session, approval)
    await emit_approval_event(session, "denied", approval)


def _require_pending(state: str) -> None:
    if state != PENDING:
        raise ApiError(409, f"Approval is no longer pending: it is {state}")


def _mark_decided(
    session: AsyncSession, caller: Caller, approval: Approval, status: str, note: str | None
) -> datetime:
    decided_at = now(session)
    approval.status, approval.decided_at, approval.decided_by = status, decided_at, caller.user_id
    approval.note, approval.remind_at = note, None
    session.add(approval)
    return decided_at


async def _apply_edit(
    session: AsyncSession, caller: Caller, approval: Approval, decision: ApprovalDecision
) -> Approval:
    """Return the request to approve: the given request, or a new request if the decision contains an edited context."""
    if decision.context is None:
        return approval
    text = await validate_edit(session, approval, decision.context)
    return approval if text == approval.context else await _replace(session, caller, approval, text)


async def _replace(session: AsyncSession, caller: Caller, approval: Approval, context: str) -> Approval:
    successor = Approval(
        id=new_id(),
        created_at=now(session),
        status=PENDING,
        context=context,
        digest=digest(context),
        replaces=approval.id,
        **approval.model_dump(
            include={
                "organization_id",
                "environment",
                "agent_id",
                "permission_id",
                "action",
                "run_id",
                "call_id",
                "key_id",
                "reason",
                # The approval rules and deadlines below stay the same when an approver edits the context.
                "required_approvals",
                "separation_of_duties",
                "makers",
                "approvers",
                "rule_id",
                "budget_id",
                "max_amount",
                "amount_required",
                "expires_at",
                "remind_at",
            }
        ),
    )
    await expire_duplicate(session, successor)
    twin = await find_duplicate(session, successor)
    if twin is not None:
        raise ApiError(
            409, f"A request with this context is already pending; decide this request instead: {twin.id!r}"
        )
    approval.status, approval.replaced_by, approval.remind_at = REPLACED, successor.id, None
    session.add_all([approval, successor])
    await session.flush()
    await end_proposal(session, approval)
    audit.record(
        session,
        caller,
        "approval.replaced",
        approval.id,
        environment=approval.environment,
        changes={"replaced_by": successor.id, "digest": successor.digest},
    )
    await emit_approval_event(session, "replaced", approval)
    return successor


async def _load_votes(session: AsyncSession, approval: Approval) -> dict[str, ApprovalVote]:
    query = select(ApprovalVote).where(ApprovalVote.approval_id == approval.id)
    return {vote.user_id: vote for vote in (await session.exec(query)).all()}


def _add_vote(
    session: AsyncSession, caller: Caller, approval: Approval, decision: str, note: str | None
) -> ApprovalVote:
    vote = ApprovalVote(
        approval_id=approval.id,
        user_id=caller.user_id,
        organization_id=approval.organization_id,
        environment=approval.environment,
        decision=decision,
        note=note,
        credential=strict_json.dumps(dict(caller.credential)),
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


#: function that updates approval requests, all of which belong to one organization and one environment
Change: TypeAlias = Callable[[AsyncSession, Sequence[Approval]], Awaitable[None]]
#: function that returns the SQL condition for the requests that are due for an update at the time of the transaction
Due: TypeAlias = Callable[[AsyncSession], ColumnElement[bool]]

#: the states `pending` and `approved`, written as literals into the SQL: for a bound parameter, SQLite would not use
#: the partial index
_OPEN: BindParameter[Sequence[str]] = bindparam("open", OPEN, expanding=True, literal_execute=True)


async def expire_approvals(database: Database, batch: int) -> int:
    """Mark pending and approved requests as expired after the time `expires_at`. Return the number of marked requests.

    The API treats a request as expired from this time on, even if the job has not marked it yet.
    """

    def past(session: AsyncSession) -> ColumnElement[bool]:
        return col(Approval.status).in_(_OPEN) & (col(Approval.expires_at) <= now(session))

    return await _change_each(database, batch, past, expire)


async def remind(database: Database, batch: int) -> int:
    """Write one webhook event for each pending request that expires soon. Return the number of events."""

    def soon(session: AsyncSession) -> ColumnElement[bool]:
        return (
            (col(Approval.status) == literal(PENDING, literal_execute=True))
            & (col(Approval.remind_at) <= now(session))
            & (col(Approval.expires_at) > now(session))
        )

    async def remember(session: AsyncSession, approvals: Sequence[Approval]) -> None:
        for approval in approvals:
            approval.reminded_at, approval.remind_at = now(session), None
            session.add(approval)
        await emit_approval_event(session, "reminder", *approvals)

    return await _change_each(database, batch, soon, remember)


async def _change_each(database: Database, batch: int, due: Due, change: Change) -> int:
    async with database.reading() as session:
        # Remove duplicates in Python: with SELECT DISTINCT, SQLite would choose another index and scan all approval
        # requests.
        query = select(Approval.organization_id, Approval.environment).where(due(session))
        tenants = sorted(set((await session.exec(query)).all()))
    changed = 0
    for organization_id, environment in tenants:

        async def work(
            session: AsyncSession, organization_id: str = organization_id, environment: str = environment
        ) -> int:
            chosen = select(Approval).where(
                Approval.organization_id == organization_id,
                Approval.environment == environment,
                due(session),
            )
            # Skip rows that another gateway process has locked, because that process updates them.
            approvals = (await session.exec(chosen.limit(batch).with_for_update(skip_locked=True))).all()
            await change(session, approvals)
            return len(approvals)

        # Hold the organization's lock, so that no approver decides about a request and no check consumes it at the same
        # time.
        changed += await in_batches(database, batch, work, organization_id)
    return changed
