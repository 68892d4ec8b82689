"""Decision about checks that may need an approval, or to which budgets apply.

The endpoint first decides each check without a lock. If the check needs an approval, contains the id of an approval
request, or a budget applies to it, `decide_in_transaction` decides it again in a write transaction that holds the
organization's lock. The second decision therefore uses the current agent, permission and limits, and only one of
several concurrent checks of a call consumes the approval. A dry run changes nothing, so a read transaction is enough
for it.

If budgets apply to an allowed call, the same transaction reserves the amounts of the call in all these budgets. An
approval of exactly this call may exceed budgets that require an approval at their limit. A temporary approval may not,
because its approver did not see the call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from toolgate_service.approvals.policy import (
    Terms,
    approval_invalid_reason,
    load_denial_blocks,
    store_terms,
    stored_terms,
)
from toolgate_service.approvals.service import REJECTED
from toolgate_service.budgets.evaluation import CompiledBudget, InvalidAmount
from toolgate_service.budgets.models import UNSETTLED
from toolgate_service.budgets.repository import BudgetCache, find_reservations
from toolgate_service.budgets.reservation import Call, Claim, Plan, plan_reservation, smallest_left
from toolgate_service.checks.decide import (
    Allowed,
    AllowedByApproval,
    ApprovalRequired,
    Denied,
    PendingApproval,
    Step,
    StepObserver,
    decide,
    ignore_step,
)
from toolgate_service.checks.repository import (
    Attempt,
    create_request,
    find_matching,
    find_recent_denial,
    has_free_place,
    is_call_consumed,
    load_idempotent,
    new_request,
    store_idempotent,
    tighten_terms,
)
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext, load_auth_context
from toolgate_service.core.clock import wire
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now
from toolgate_service.grants.models import Grant
from toolgate_service.grants.repository import find_usable
from toolgate_service.rules.repository import RuleCache


class Decided(NamedTuple):
    """Decision that was made under the organization's lock.

    Attributes:
        auth: Context under which the check was decided; None if the API key was revoked meanwhile.
    """

    decision: Allowed | Denied | AllowedByApproval | PendingApproval
    auth: AuthContext | None


@dataclass(frozen=True, slots=True)
class _Check:
    """A check that needs an approval because of a permission, a rule or a budget.

    Attributes:
        auth: Context of the API key and the agent, and of the permission if one covers the call.
        request: Body of the check.
        decision: Decision without regard to existing approvals.
        attempt: Idempotency key of the check, or None.
        matching: Approval requests that match the check, each with its state.
        plan: Amounts that the call would reserve in budgets; empty if no budget applies.
        on_step: Callback for each step that the check passes.
    """

    auth: AuthContext
    request: CheckRequest
    decision: ApprovalRequired
    attempt: Attempt | None
    matching: Sequence[tuple[Approval, str]]
    plan: Plan
    on_step: StepObserver

    @property
    def terms(self) -> Terms:
        """Terms of the rules that require the approval. Those of the permission apply in addition."""
        return Terms.of_rules(self.decision.terms)


async def decide_in_transaction(
    session: AsyncSession,
    settings: Settings,
    rule_cache: RuleCache,
    budget_cache: BudgetCache,
    key_digest: str,
    request: CheckRequest,
    idempotency_key: str | None,
    raw: bytes,
    on_step: StepObserver = ignore_step,
) -> Decided:
    """Decide a check again, under the organization's lock.

    If the check needs an approval, consume an existing approval. If there is none, find or create a pending request.
    If the call is allowed, reserve its amounts in the budgets that apply.

    A dry run changes nothing and needs only a read transaction.

    Args:
        session: Session with a write transaction under the organization's lock; for a dry run, with a read transaction.
        settings: Settings of the gateway.
        rule_cache: Cache of the rules of each environment.
        budget_cache: Cache of the budgets of each environment.
        key_digest: Digest of the API key.
        request: Body of the check.
        idempotency_key: Value of the header `Idempotency-Key`, or None.
        raw: Body as received. With the idempotency key, it identifies retries of the check.
        on_step: Callback for each passed step.
    """
    auth = await load_auth_context(session, key_digest, request.agent_id, request.action)
    if auth is None or not auth.organization_is_active:
        revoked = "The API key was revoked, or its organization was deactivated, during the check"
        return Decided(Denied(revoked, Step.KEY), auth)
    decision = decide(auth, request, await rule_cache.load(session, auth), now(session))
    if isinstance(decision, Denied):
        return Decided(decision, auth)
    budgets = (await budget_cache.load(session, auth)).match(auth.agent_id, request.action)
    if isinstance(decision, Allowed) and request.approval_id is None and not budgets:
        return Decided(decision, auth)
    attempt = Attempt.of(idempotency_key, request.identity(raw))
    repeated = await _find_repeated(session, auth, attempt, decision, budgets)
    if repeated is not None:
        return Decided(repeated, auth)
    result = await _decide_call(session, settings, auth, request, decision, budgets, attempt, on_step)
    return Decided(result, auth)


async def _decide_call(
    session: AsyncSession,
    settings: Settings,
    auth: AuthContext,
    request: CheckRequest,
    decision: Allowed | ApprovalRequired,
    budgets: Sequence[CompiledBudget],
    attempt: Attempt | None,
    on_step: StepObserver,
) -> Allowed | Denied | AllowedByApproval | PendingApproval:
    approvals: Sequence[Approval] = ()
    if request.approval_id is not None or isinstance(decision, ApprovalRequired):
        approvals = await find_matching(session, auth, request)
    if request.approval_id is not None:
        approvals = [approval for approval in approvals if approval.id == request.approval_id]
        if not approvals:
            return Denied(
                f"Approval {request.approval_id!r} does not belong to this agent, action and context; "
                "check again without approval_id",
                Step.APPROVAL_ID,
            )
        on_step(Step.APPROVAL_ID, approvals[0].id)
    try:
        plan = await _plan(session, auth, request, budgets, on_step)
    except InvalidAmount as error:
        return Denied(str(error), Step.BUDGET_AMOUNT)
    by_budgets = await _apply_budgets(session, request, decision, plan)
    if isinstance(by_budgets, Allowed) and by_budgets.decision_id is not None:
        await store_idempotent(session, auth, attempt, by_budgets.decision_id, now(session))
    if not isinstance(by_budgets, ApprovalRequired):
        return by_budgets
    if isinstance(decision, Allowed) and request.approval_id is None:
        approvals = await find_matching(session, auth, request)
    moment = now(session)
    matching = [(approval, state_of(approval, moment)) for approval in approvals]
    check = _Check(auth, request, by_budgets, attempt, matching, plan, on_step)
    by_approvals = await _apply_approvals(session, settings, check)
    return replace(by_approvals, rule_id=by_budgets.rule_id)


async def _find_repeated(
    session: AsyncSession,
    auth: AuthContext,
    attempt: Attempt | None,
    decision: Allowed | ApprovalRequired,
    budgets: Sequence[CompiledBudget],
) -> Allowed | AllowedByApproval | None:
    """Return the decision of an earlier check with the same idempotency key, if it still holds; otherwise None.

    Nothing is reserved or consumed again. The earlier decision no longer holds after its reservations were settled or
    released, because the check is then not a retry but another call. Neither does it hold if the call now requires an
    approval that the earlier check did not consume.
    """
    earlier = await load_idempotent(session, auth, attempt, now(session))
    if earlier is None:
        return None
    reserved = await find_reservations(session, auth, earlier)
    if not reserved:
        return AllowedByApproval(earlier, Step.RETRY)
    consumed = reserved[0].approval_id is not None
    if any(one.state != UNSETTLED for one in reserved) or not (consumed or isinstance(decision, Allowed)):
        return None
    left = await smallest_left(session, reserved, budgets)
    if isinstance(decision, Allowed) and not consumed:
        return replace(decision, decision_id=earlier, budget_left=left)
    return AllowedByApproval(earlier, Step.RETRY, budget_left=left)


async def _plan(
    session: AsyncSession,
    auth: AuthContext,
    request: CheckRequest,
    budgets: Sequence[CompiledBudget],
    on_step: StepObserver,
) -> Plan:
    """Return the amounts that the call would reserve in budgets; an empty plan if no budget applies."""
    call = Call(auth.agent_id or "", request.action, request.context, request.run_id, request.dry_run)
    plan = await plan_reservation(session, auth, call, budgets)
    if budgets:
        on_step(Step.BUDGET_AMOUNT, "")
        if plan.exceeding is None:
            on_step(Step.BUDGET, "")
    return plan


async def _apply_budgets(
    session: AsyncSession, request: CheckRequest, decision: Allowed | ApprovalRequired, plan: Plan
) -> Allowed | Denied | ApprovalRequired:
    """Apply budgets to a decision: reserve the amounts of an allowed call, or deny it, or require an approval."""
    over = plan.exceeding
    if isinstance(decision, ApprovalRequired):
        # A budget that denies calls at its limit is checked when the approval is used: the total may be lower by then.
        if over is None or plan.denying is not None:
            return decision
        return replace(decision, budget_id=over.budget.id)
    if plan.denying is not None:
        return await _deny_by_budget(session, plan, plan.denying)
    if over is not None:
        await plan.announce(session)
        return ApprovalRequired(over.reason, budget_id=over.budget.id)
    if request.dry_run or not plan.claims:
        return replace(decision, budget_left=plan.left)
    decision_id = new_id()
    plan.store(session, decision_id)
    return replace(decision, decision_id=decision_id, budget_left=plan.left)


async def _deny_by_budget(session: AsyncSession, plan: Plan, claim: Claim) -> Denied:
    await plan.announce(session)
    return Denied(claim.reason, Step.BUDGET)


async def _apply_approvals(
    session: AsyncSession, settings: Settings, check: _Check
) -> Denied | AllowedByApproval | PendingApproval:
    request, reason = check.request, check.decision.reason
    if request.call_id:
        if await is_call_consumed(session, check.auth, request):
            return Denied(
                f"Call {request.call_id!r} has already been allowed once; use a new call_id for a new call",
                Step.CALL_ID,
                call_consumed=True,
            )
        check.on_step(Step.CALL_ID, request.call_id)
    by_approval = await _try_approved(session, check)
    if by_approval is not None:
        return by_approval
    edited = _edited_request(check)
    if edited is not None:
        return PendingApproval(reason, edited.id, Step.EDITED)
    pending = await _find_pending(session, check)
    if request.approval_id is not None:
        return PendingApproval(reason, pending.id, Step.PENDING) if pending else _closed(*check.matching[0])
    # `own` is the pending request if this check may use it. If an approver edited the context of the request, only a
    # check that sends the id of the request may use it.
    own = pending if pending and _is_for_this_check(pending, request) else None
    grant = await find_usable(session, check.auth, request.action, request.context, own, check.terms)
    # If an approver rejected the call, or the action is blocked, deny the call even if a grant covers it.
    denial = None
    if grant or not pending:
        denial = _denied_call(check)
        denial = denial or await _denial_block(session, settings, check.auth, request, check.on_step)
    over = None if grant is None else await _over_budget_reason(session, check.plan)
    if grant is not None and denial is None and over is None:
        return await _consume(session, check, grant, own)
    reason = over or reason
    if pending is not None:
        return PendingApproval(reason, pending.id, Step.PENDING)
    denial = denial or await _pending_limit_denial(session, settings, check.auth)
    if denial is not None:
        return denial
    check.on_step(Step.PENDING_LIMIT, "")
    created = await create_request(session, settings, check.auth, request, check.decision)
    return PendingApproval(reason, created, Step.NEW_REQUEST)


async def _over_budget_reason(session: AsyncSession, plan: Plan) -> str | None:
    """Return the reason why a call that exceeds a budget needs a new approval despite a temporary approval, or None."""
    if plan.exceeding is None or plan.denying is not None:
        return None
    await plan.announce(session)
    return plan.exceeding.reason


async def _try_approved(session: AsyncSession, check: _Check) -> Denied | AllowedByApproval | None:
    for approval, state in check.matching:
        if state != APPROVED or not _is_for_this_check(approval, check.request):
            continue
        invalid = await approval_invalid_reason(session, approval, check.terms)
        if invalid is None and approval.grant_id is not None:
            invalid = await _over_budget_reason(session, check.plan)
        if invalid is None:
            return await _consume(session, check, approval)
        if check.request.approval_id is not None:
            return Denied(
                f"Approval {approval.id!r} is no longer valid: {invalid}; check again without approval_id",
                Step.APPROVED,
            )
        check.on_step(Step.APPROVED, invalid)
    return None


async def _find_pending(session: AsyncSession, check: _Check) -> Approval | None:
    pending = next((approval for approval, state in check.matching if state == PENDING), None)
    if pending is not None and not check.request.dry_run:
        pending.last_asked_at = now(session)
        session.add(pending)
        await tighten_terms(session, check.auth, pending, check.decision)
    return pending


def _edited_request(check: _Check) -> Approval | None:
    """Return the approval request of this call that was replaced because an approver edited its context, or None.

    Also return None if the check has no `call_id`, or names an approval request. If a request was replaced, the check
    must not create another one, because the client continues with the replacement.
    """
    if not check.request.call_id or check.request.approval_id is not None:
        return None
    return next((approval for approval, state in check.matching if state == REPLACED), None)


def _denied_call(check: _Check) -> Denied | None:
    """Return a denial if an earlier request for a call with this `call_id` was rejected, or None.

    The time since the rejection does not matter, because a paused run can resume the same call at any time.
    """
    if not check.request.call_id:
        return None
    for approval, state in check.matching:
        if state == DENIED:
            return Denied(_denial_reason(approval), Step.DENIED)
        if state == CANCELLED and approval.cancel_reason == REJECTED:
            return Denied(f"Call {check.request.call_id!r} was {REJECTED}", Step.DENIED)
    return None


def _is_for_this_check(approval: Approval, request: CheckRequest) -> bool:
    # An approval request whose context an approver edited matches only a check that sends the id of the request.
    # Another check with equal arguments is a different call.
    return approval.replaces is None or request.approval_id == approval.id


def _closed(approval: Approval, state: str) -> Denied:
    if state == DENIED:
        return Denied(_denial_reason(approval), Step.DENIED)
    return Denied(f"Approval {approval.id!r} is {state}; check again without approval_id", Step.OPEN)


async def _consume(
    session: AsyncSession, check: _Check, by: Approval | Grant, pending: Approval | None = None
) -> AllowedByApproval | Denied:
    step, plan = Step.APPROVED if isinstance(by, Approval) else Step.GRANT, check.plan
    if plan.denying is not None:
        return await _deny_by_budget(session, plan, plan.denying)
    if check.request.dry_run:
        return AllowedByApproval(new_id(), step, by.id, budget_left=plan.left)
    if isinstance(by, Approval):
        approval_id, decision_id = by.id, await consume_approval(session, by, check.request)
    else:
        approval_id, decision_id = await consume_grant(session, check, by, pending)
    await plan.announce(session)
    plan.store(session, decision_id, approval_id)
    await store_idempotent(session, check.auth, check.attempt, decision_id, now(session))
    return AllowedByApproval(decision_id, step, by.id, budget_left=plan.left, approval_id=approval_id)


async def consume_approval(session: AsyncSession, approval: Approval, request: CheckRequest) -> str:
    """Consume an approved request and return the id of the decision. Only this function consumes approvals.

    The caller has read the request as approved, or used a grant for it, in this transaction, which holds the
    organization's lock. A second check therefore finds the request consumed.
    """
    decision_id = new_id()
    approval.status, approval.consumed_at, approval.decision_id = CONSUMED, now(session), decision_id
    approval.consumed_call_id = request.call_id or ""
    session.add(approval)
    await emit_approval_event(session, "consumed", approval)
    return decision_id


async def consume_grant(
    session: AsyncSession, check: _Check, grant: Grant, pending: Approval | None
) -> tuple[str, str]:
    """Consume one use of a grant (temporary approval). Return the ids of the consumed request and of the decision.

    Each use is stored as a consumed approval request, so that it appears in lists, emits events and blocks a second run
    with the same `call_id`. If a request for the call is pending, that request is marked as consumed. Otherwise a new
    request is stored.
    """
    grant.uses_left -= 1
    session.add(grant)
    if pending is not None:
        await end_proposal(session, pending)
    approval = pending or new_request(session, check.auth, check.request, seconds=0)
    approval.rule_id = check.decision.rule_id
    terms = stored_terms(grant).stricter(check.terms)
    store_terms(approval, terms.stricter(stored_terms(pending)) if pending else terms)
    approval.grant_id = grant.id
    approval.decided_at, approval.remind_at = now(session), None
    return approval.id, await consume_approval(session, approval, check.request)


async def _denial_block(
    session: AsyncSession,
    settings: Settings,
    auth: AuthContext,
    request: CheckRequest,
    on_step: StepObserver,
) -> Denied | None:
    """Return a denial if an approver recently rejected the same call, or if the action is blocked; otherwise None.

    An action is blocked after approvers have rejected it repeatedly (denial block).
    """
    denial = await find_recent_denial(session, settings, auth, request)
    if denial is not None:
        return Denied(_denial_reason(denial), Step.DENIED)
    on_step(Step.DENIED, "")
    blocked = await _denial_block_reason(session, settings, auth, request)
    if blocked is not None:
        return Denied(blocked, Step.DENIAL_BLOCK)
    on_step(Step.DENIAL_BLOCK, "")
    return None


def _denial_reason(approval: Approval) -> str:
    """Return the reason that the agent receives for a rejected request, including the approver's note."""
    return f"Denied by a person: {approval.note}" if approval.note else "Denied by a person"


async def _denial_block_reason(
    session: AsyncSession, settings: Settings, auth: AuthContext, request: CheckRequest
) -> str | None:
    if auth.agent_id is None:
        return None
    agent = (auth.organization_id, auth.environment, auth.agent_id)
    end = (await load_denial_blocks(session, settings, agent, request.action)).get(request.action)
    if end is None:
        return None
    return (
        f"Action '{request.action}' of this agent was rejected {settings.denials_before_block} times in a short time "
        f"and is blocked until {wire(end)}; an admin can unblock it"
    )


async def _pending_limit_denial(
    session: AsyncSession, settings: Settings, auth: AuthContext
) -> Denied | None:
    if await has_free_place(session, settings, auth):
        return None
    return Denied(
        f"{settings.pending_per_agent} requests of this agent wait for approval, which is the maximum "
        "(TOOLGATE_PENDING_PER_AGENT); ask an approver to decide some of these requests, or cancel some, then check "
        "again",
        Step.PENDING_LIMIT,
    )
