"""Decision about checks that need an approval, in one write transaction.

The endpoint first decides each check without a lock. If the check may need an approval, `settle` decides it again under
the lock of the organization. Therefore changes of the agent, the permission or the limit since the first decision are
respected, and of several concurrent checks of one call exactly one consumes the approval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.events import emit_approval_event
from toolgate_service.approvals.grant_proposals import end_proposal
from toolgate_service.approvals.models import (
    APPROVED,
    CANCELLED,
    CONSUMED,
    DENIED,
    PENDING,
    REPLACED,
    Approval,
    state_of,
)
from toolgate_service.approvals.policy import approval_invalid_reason, store_terms, stored_terms
from toolgate_service.approvals.service import REJECTED
from toolgate_service.checks.approval_guards import denial_block, denial_reason, pending_limit_reached
from toolgate_service.checks.approval_requests import (
    create_request,
    find_matching,
    is_call_consumed,
    new_request,
    tighten_terms,
)
from toolgate_service.checks.decide import Blocked, Permitted, Step, StepObserver, decide, ignore_step
from toolgate_service.checks.idempotency import Attempt, load_idempotent, store_idempotent
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext, load_auth_context
from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now
from toolgate_service.grants.models import Grant
from toolgate_service.grants.repository import find_usable


@dataclass(frozen=True, slots=True)
class Consumed:
    """The call is allowed.

    Attributes:
        decision_id: Id of the decision.
        at: Step that allowed the call.
        by: Id of the approval request that the check consumed, or of the grant whose use it consumed. None for a retry
            with the same idempotency key, which consumes nothing.
    """

    decision_id: str
    at: Step
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The call waits for an approver.

    Attributes:
        reason: Reason why the call needs an approval.
        approval_id: Id of the pending request; None for a dry run that would create a new request.
        at: Step that produced this result.
    """

    reason: str
    approval_id: str | None
    at: Step


@dataclass(frozen=True, slots=True)
class _Check:
    """A check whose action needs an approval.

    Attributes:
        auth: Context of the API key, the agent and the permission.
        request: Body of the check.
        attempt: Idempotency key of the check, or None.
        matching: Approval requests that match the check, each with its state.
        on_step: Callback for passed steps.
    """

    auth: AuthContext
    request: CheckRequest
    attempt: Attempt | None
    matching: Sequence[tuple[Approval, str]]
    on_step: StepObserver


async def settle(
    session: AsyncSession,
    settings: Settings,
    key_digest: str,
    request: CheckRequest,
    idempotency_key: str | None,
    raw: bytes,
    on_step: StepObserver = ignore_step,
) -> Permitted | Blocked | Consumed | Held:
    """Decide a check again, under the organization's lock.

    If the check needs an approval, consume an existing approval. If there is none, find or create a pending request.

    A dry run changes nothing and needs only a read transaction.

    Args:
        session: Session with a write transaction under the organization's lock.
        settings: Settings of the gateway.
        key_digest: Digest of the API key.
        request: Body of the check.
        idempotency_key: Value of the header `Idempotency-Key`, or None.
        raw: Body as received. With the idempotency key, it identifies retries of a check that consumed an approval.
        on_step: Callback for each passed step.
    """
    auth = await load_auth_context(session, key_digest, request.agent_id, request.action)
    if auth is None or not auth.organization_is_active:
        return Blocked("The API key stopped working while the check was under way", Step.KEY)
    decision = decide(auth, request.agent_id, request.action, request.context)
    if isinstance(decision, Blocked) or (isinstance(decision, Permitted) and request.approval_id is None):
        return decision
    attempt = Attempt.of(idempotency_key, request.identity(raw))
    earlier = await load_idempotent(session, auth, attempt, now(session))
    if earlier is not None:
        return Consumed(earlier, Step.ATTEMPT)
    approvals = await find_matching(session, auth, request)
    if request.approval_id is not None:
        approvals = [approval for approval in approvals if approval.id == request.approval_id]
        if not approvals:
            return Blocked(
                f"Approval {request.approval_id!r} does not belong to this agent, action and context; "
                "check again without approval_id",
                Step.NAMED,
            )
        on_step(Step.NAMED, approvals[0].id)
    if isinstance(decision, Permitted):
        return decision
    moment = now(session)
    matching = [(approval, state_of(approval, moment)) for approval in approvals]
    check = _Check(auth, request, attempt, matching, on_step)
    return await _settle_by_approval(session, settings, check, decision.reason)


async def _settle_by_approval(
    session: AsyncSession, settings: Settings, check: _Check, reason: str
) -> Blocked | Consumed | Held:
    request = check.request
    if request.call_id:
        if await is_call_consumed(session, check.auth, request):
            return Blocked(
                f"Call {request.call_id!r} was already let through once", Step.CALL, call_consumed=True
            )
        check.on_step(Step.CALL, request.call_id)
    by_approval = await _try_approved(session, check)
    if by_approval is not None:
        return by_approval
    edited = _edited_request(check)
    if edited is not None:
        return Held(reason, edited.id, Step.CHANGED)
    pending = await _find_pending(session, check)
    if request.approval_id is not None:
        return Held(reason, pending.id, Step.WAITING) if pending else _closed(*check.matching[0])
    # `own` is None for a request with an edited context, because only a check with its id may consume it.
    own = pending if pending and _is_for_this_check(pending, request) else None
    grant = await find_usable(session, check.auth, request.action, request.context, own)
    # Denials of the call or the action take precedence over a grant.
    denial = None
    if grant or not pending:
        denial = _denied_call(check)
        denial = denial or await denial_block(session, settings, check.auth, request, check.on_step)
    if grant is not None and denial is None:
        return await _consume(session, check, grant, own)
    if pending is not None:
        return Held(reason, pending.id, Step.WAITING)
    denial = denial or await pending_limit_reached(session, settings, check.auth)
    if denial is not None:
        return denial
    check.on_step(Step.ROOM, "")
    created = None if request.dry_run else await create_request(session, settings, check.auth, request)
    return Held(reason, created, Step.ASKED)


async def _try_approved(session: AsyncSession, check: _Check) -> Blocked | Consumed | None:
    for approval, state in check.matching:
        if state != APPROVED or not _is_for_this_check(approval, check.request):
            continue
        invalid = await approval_invalid_reason(session, approval)
        if invalid is None:
            return await _consume(session, check, approval)
        if check.request.approval_id is not None:
            return Blocked(
                f"Approval {approval.id!r} no longer counts: {invalid}; check again without approval_id",
                Step.APPROVED,
            )
        check.on_step(Step.APPROVED, invalid)
    return None


async def _find_pending(session: AsyncSession, check: _Check) -> Approval | None:
    pending = next((approval for approval, state in check.matching if state == PENDING), None)
    if pending is not None and not check.request.dry_run:
        pending.last_asked_at = now(session)
        session.add(pending)
        await tighten_terms(session, check.auth, pending)
    return pending


def _edited_request(check: _Check) -> Approval | None:
    """Return the request of this call that an approver replaced by an edited request, or None.

    The check must not create another request: the client continues with the edited request instead.
    """
    if not check.request.call_id or check.request.approval_id is not None:
        return None
    return next((approval for approval, state in check.matching if state == REPLACED), None)


def _denied_call(check: _Check) -> Blocked | None:
    """Return the denial of a call with this `call_id`, or None.

    Such a denial has no time limit, because a paused run can resume the same call at any time.
    """
    if not check.request.call_id:
        return None
    for approval, state in check.matching:
        if state == DENIED:
            return Blocked(denial_reason(approval), Step.DENIED)
        if state == CANCELLED and approval.cancel_reason == REJECTED:
            return Blocked(f"Call {check.request.call_id!r} was {REJECTED}", Step.DENIED)
    return None


def _is_for_this_check(approval: Approval, request: CheckRequest) -> bool:
    # A request with an edited context matches only a check that sends its id. Another check with equal arguments is a
    # different call.
    return approval.replaces is None or request.approval_id == approval.id


def _closed(approval: Approval, state: str) -> Blocked:
    if state == DENIED:
        return Blocked(denial_reason(approval), Step.DENIED)
    return Blocked(f"Approval {approval.id!r} is {state}; check again without approval_id", Step.OPEN)


async def _consume(
    session: AsyncSession, check: _Check, by: Approval | Grant, pending: Approval | None = None
) -> Consumed:
    step = Step.APPROVED if isinstance(by, Approval) else Step.ALLOWED
    if check.request.dry_run:
        return Consumed(new_id(), step, by.id)
    if isinstance(by, Approval):
        decision_id = await consume_approval(session, by, check.request)
    else:
        decision_id = await consume_grant(session, check.auth, check.request, by, pending)
    await store_idempotent(session, check.auth, check.attempt, decision_id, now(session))
    return Consumed(decision_id, step, by.id)


async def consume_approval(session: AsyncSession, approval: Approval, request: CheckRequest) -> str:
    """Consume an approved request and return the id of the decision. No other code consumes an approval.

    The transaction holds the organization's write lock, and `settle` has read the request as approved under this lock.
    A second check therefore finds it consumed.
    """
    decision_id = new_id()
    approval.status, approval.consumed_at, approval.decision_id = CONSUMED, now(session), decision_id
    approval.consumed_call_id = request.call_id or ""
    session.add(approval)
    await emit_approval_event(session, "consumed", approval)
    return decision_id


async def consume_grant(
    session: AsyncSession, auth: AuthContext, request: CheckRequest, grant: Grant, pending: Approval | None
) -> str:
    """Consume one use of a grant and return the id of the decision.

    Each use is stored as a consumed approval request, so that it appears in lists, emits events and blocks a second run
    with the same `call_id`. If a request for the call is pending, that request is marked as consumed. Otherwise a new
    request is stored.
    """
    grant.uses_left -= 1
    session.add(grant)
    if pending is not None:
        await end_proposal(session, pending)
    approval = pending or new_request(session, auth, request, seconds=0)
    terms = stored_terms(grant)
    store_terms(approval, terms.stricter(stored_terms(pending)) if pending else terms)
    approval.grant_id = grant.id
    approval.decided_at, approval.remind_at = now(session), None
    return await consume_approval(session, approval, request)


_ALLOWED = b'{"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'


def response_body(decision: Permitted | Blocked | Held | Consumed) -> bytes:
    """Return the JSON response body for a decision."""
    if isinstance(decision, Permitted | Consumed):
        return _ALLOWED
    result = {
        "allowed": False,
        "requires_approval": isinstance(decision, Held),
        "reason": decision.reason,
        "approval_id": decision.approval_id if isinstance(decision, Held) else None,
    }
    return strict_json.dumps(result).encode()
