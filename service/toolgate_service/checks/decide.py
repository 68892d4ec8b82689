"""Decision about a tool call, and the results of a check.

The decision uses no I/O. It examines, in this order: the agent, freezes, rules that forbid the call, the permission
with its amount, and then whether the permission or a rule requires an approval. Without a permission, a rule can allow
the call, or require an approval for it. No rule lifts the maximum amount of a permission.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum, auto
from typing import TypeAlias

from toolgate_service.agents.models import ACTIVE
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.ids import is_id
from toolgate_service.permissions.models import AmountCheck, find_amount_violation
from toolgate_service.rules.evaluation import NO_MATCH, NO_TERMS, CompiledRule, RuleMatch, RuleSet, RuleTerms
from toolgate_service.rules.expressions import Variables

UNKNOWN_AGENT = "Agent not found: no agent of this organization has the agent_id given"
#: maximum number of characters of an invalid `agent_id` that are quoted in the reason for a denial
MAX_SHOWN = 40


class Step(StrEnum):
    """Steps of a check, in order. Every decision names the step that produced it.

    A check performs all steps up to `APPROVAL`, unless one of them denies the call. After `APPROVAL`, the check
    performs only the steps that apply to the call. It calls a `StepObserver` for each of these steps that the call
    passes.
    """

    KEY = auto()
    ORGANIZATION = auto()
    RATE = auto()
    AGENT = auto()
    FREEZE = auto()
    AGENT_ENABLED = auto()
    #: step that tests whether a rule forbids the call
    RULES = auto()
    PERMISSION = auto()
    AMOUNT_PRESENT = auto()
    AMOUNT_VALID = auto()
    AMOUNT_WITHIN = auto()
    APPROVAL = auto()
    #: step that tests whether the check is a retry of an allowed check with the same Idempotency-Key
    RETRY = auto()
    #: step that tests whether the approval request with the check's `approval_id` matches the check
    APPROVAL_ID = auto()
    #: step that tests whether the arguments contain the amounts that budgets need
    BUDGET_AMOUNT = auto()
    #: step that tests whether all budgets cover the call; the last step of a call that budgets deny
    BUDGET = auto()
    #: step that tests whether the call with this `call_id` has consumed an approval before
    CALL_ID = auto()
    #: step that tests whether an approved request exists that the check can consume
    APPROVED = auto()
    #: step that tests whether an approver has edited the arguments of this call
    EDITED = auto()
    #: step that tests whether the approval request with the check's `approval_id` is still pending or approved
    OPEN = auto()
    #: step that tests whether an approver has recently rejected the same call
    DENIED = auto()
    #: step that tests whether the action is blocked because approvers repeatedly rejected it (denial block)
    DENIAL_BLOCK = auto()
    #: step that tests whether a temporary approval covers the call
    GRANT = auto()
    #: step that tests whether an approval request for the same call is already pending
    PENDING = auto()
    #: step that tests whether the agent has fewer pending approval requests than the limit
    PENDING_LIMIT = auto()
    #: step that creates a new approval request
    NEW_REQUEST = auto()


#: Code of a decision, by the step that produced the decision. Programs read it from the response header
#: `X-Reason-Code`. Allowed calls that need no approval have the code "allowed".
_REASON_CODES = {
    Step.KEY: "api_key_revoked",
    Step.AGENT: "agent_not_found",
    Step.FREEZE: "frozen",
    Step.AGENT_ENABLED: "agent_disabled",
    Step.RULES: "forbidden_by_rule",
    Step.PERMISSION: "no_permission",
    Step.AMOUNT_PRESENT: "amount_missing",
    Step.AMOUNT_VALID: "amount_invalid",
    Step.AMOUNT_WITHIN: "amount_exceeded",
    Step.RETRY: "approved",
    Step.APPROVAL_ID: "approval_not_found",
    Step.BUDGET_AMOUNT: "budget_amount_invalid",
    Step.BUDGET: "budget_exceeded",
    Step.CALL_ID: "call_already_allowed",
    Step.EDITED: "arguments_edited",
    Step.OPEN: "approval_closed",
    Step.DENIED: "recently_rejected",
    Step.DENIAL_BLOCK: "action_blocked",
    Step.GRANT: "temporary_approval",
    Step.PENDING: "approval_required",
    Step.PENDING_LIMIT: "too_many_pending",
    Step.NEW_REQUEST: "approval_required",
}


#: callback for each passed step; its arguments are the step and a detail for the explanation, such as an id
StepObserver: TypeAlias = Callable[[Step, str], None]


def ignore_step(_step: Step, _detail: str) -> None:
    """Default `StepObserver`, which does nothing."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Decision that the call is allowed without an approval.

    Attributes:
        rule_id: Id of the rule that allows the call; None if the permission allows it.
        decision_id: Id of the decision that reserved amounts of budgets; None if no amount was reserved.
        budget_left: Smallest amount that is left of the budgets after this call; None if no budget applies.
    """

    rule_id: str | None = None
    decision_id: str | None = None
    budget_left: str | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Decision that the call is denied.

    Attributes:
        reason: Reason for the agent.
        at: Step that denied the call.
        call_consumed: True if a call with the same `call_id` consumed an approval before.
        rule_id: Id of the rule that forbids the call. If a rule requires an approval and the call cannot get one, for
            example because an approver rejected it, id of that rule. None if no such rule led to the denial.
    """

    reason: str
    at: Step
    call_consumed: bool = False
    rule_id: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """Decision that the call needs an approval.

    Attributes:
        reason: Reason why the call needs an approval.
        terms: Terms of the rules that require the approval, in addition to the terms of the permission.
        rule_id: Id of the oldest rule that requires the approval; None if no rule requires it, but only the permission
            or a budget.
        budget_id: Id of the budget that does not cover the call; None if no budget requires the approval.
    """

    reason: str
    terms: RuleTerms = NO_TERMS
    rule_id: str | None = None
    budget_id: str | None = None


@dataclass(frozen=True, slots=True)
class AllowedByApproval:
    """Result of a check whose call is allowed by an approval or a grant (temporary approval).

    A dry run of such a check, and a retry of a check that was already allowed, have this result too, but consume
    nothing.

    Attributes:
        decision_id: Id of the decision.
        at: Step that allowed the call.
        by: Id of the approval request that the check consumed, or of the grant that allowed the call; for a dry run,
            of the one that the check would consume. None for a retry with the same idempotency key.
        rule_id: Id of the rule that requires the approval; None if no rule requires it.
        budget_left: Smallest amount that is left of the budgets after this call; None if no budget applies.
        approval_id: Id of the approval request that was consumed; for a grant, of the request that records its use.
            None for a retry and for a dry run.
    """

    decision_id: str
    at: Step
    by: str | None = None
    rule_id: str | None = None
    budget_left: str | None = None
    approval_id: str | None = None


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """Result of a check whose call waits for an approver.

    Attributes:
        reason: Reason why the call needs an approval.
        approval_id: Id of the pending request, or of the request that was replaced because an approver edited it. None
            for a dry run that would create a new request.
        at: Step that produced this result.
        rule_id: Id of the rule that requires the approval; None if no rule requires it.
    """

    reason: str
    approval_id: str | None
    at: Step
    rule_id: str | None = None


Decision: TypeAlias = Allowed | Denied | PendingApproval | AllowedByApproval

ALLOWED = Allowed()

_AMOUNT_STEPS = {
    AmountCheck.PRESENT: Step.AMOUNT_PRESENT,
    AmountCheck.NUMBER: Step.AMOUNT_VALID,
    AmountCheck.WITHIN_LIMIT: Step.AMOUNT_WITHIN,
}


def decide(
    auth: AuthContext, request: CheckRequest, rules: RuleSet, now: datetime
) -> Allowed | Denied | ApprovalRequired:
    """Decide whether an agent may run an action with a context.

    For an unknown agent and for an agent of another organization, the reason of the denial is the same, so that it does
    not reveal which ids exist in other organizations.

    Args:
        auth: Context of the API key, the agent and the permission.
        request: Body of the check.
        rules: Rules of the environment.
        now: Current time, which the conditions of rules can use.
    """
    denial = _deny_agent(auth, request.agent_id)
    if denial is not None:
        return denial
    found = NO_MATCH
    if rules.rules:
        found = rules.match(auth.agent_id or "", call_variables(auth, request, now))
    if found.forbidding is not None:
        reason = f"Rule '{found.forbidding.name}' forbids action '{request.action}'"
        return Denied(reason, Step.RULES, rule_id=found.forbidding.id)
    if auth.permission_id is None:
        return _decide_without_permission(request.action, found)
    if auth.max_amount is not None:
        maximum, required = Decimal(auth.max_amount), bool(auth.amount_required)
        violation = find_amount_violation(maximum, required, request.action, request.context)
        if violation is not None:
            return Denied(violation.reason, _AMOUNT_STEPS[violation.failed])
    rule = found.requiring[0] if found.requiring else None
    if auth.requires_approval:
        reason = f"Action '{request.action}' needs human approval"
        return ApprovalRequired(reason, found.terms, rule.id if rule else None)
    return _require_approval(rule, found, request.action) if rule else ALLOWED


def _deny_agent(auth: AuthContext, agent_id: str) -> Denied | None:
    """Return a denial if the agent is unknown, disabled or frozen, or if the API key belongs to another agent."""
    if auth.key_agent_id is not None and auth.key_agent_id != agent_id:
        reason = f"This API key belongs to another agent than the one named by agent_id{_id_hint(agent_id)}"
        return Denied(reason, Step.AGENT)
    if auth.agent_id is None:
        return Denied(f"{UNKNOWN_AGENT}{_id_hint(agent_id)}", Step.AGENT)
    if auth.freeze_reason is not None:
        return Denied(f"Calls are frozen: {auth.freeze_reason}", Step.FREEZE)
    if auth.agent_status != ACTIVE:
        return Denied("Agent is inactive", Step.AGENT_ENABLED)
    return None


def _decide_without_permission(action: str, found: RuleMatch) -> Allowed | Denied | ApprovalRequired:
    if found.requiring:
        return _require_approval(found.requiring[0], found, action)
    if found.allowing is not None:
        return Allowed(found.allowing.id)
    return Denied(f"Agent has no permission for action '{action}'", Step.PERMISSION)


def _require_approval(rule: CompiledRule, found: RuleMatch, action: str) -> ApprovalRequired:
    reason = f"Rule '{rule.name}' requires approval for action '{action}'"
    return ApprovalRequired(reason, found.terms, rule.id)


def call_variables(auth: AuthContext, request: CheckRequest, now: datetime) -> Variables:
    """Return the values that the conditions of rules can use."""
    return Variables(
        args=request.context,
        action=request.action,
        agent_id=auth.agent_id or "",
        agent_name=auth.agent_name or "",
        run_id=request.run_id or "",
        now=now,
    )


def _id_hint(agent_id: str) -> str:
    """Return a hint to append to the denial reason if `agent_id` is not a UUID (for example, an agent's name).

    Otherwise, return an empty string.
    """
    if is_id(agent_id.lower()):
        return ""
    return f"; {agent_id[:MAX_SHOWN]!r} is not an agent id: expected a UUID, see 'toolgate agents list'"


def reason_code(decision: Decision) -> str:
    """Return the code of a decision, which programs evaluate. The text for people is `reason` in the response body."""
    if isinstance(decision, Allowed):
        return "allowed"
    if decision.at is Step.APPROVED:
        return "approved" if isinstance(decision, AllowedByApproval) else "approval_invalid"
    return _REASON_CODES[decision.at]


_ALLOWED_BODY = b'{"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'


def response_body(decision: Decision) -> bytes:
    """Return the JSON response body for a decision."""
    if isinstance(decision, Allowed | AllowedByApproval):
        return _ALLOWED_BODY
    result = {
        "allowed": False,
        "requires_approval": isinstance(decision, PendingApproval),
        "reason": decision.reason,
        "approval_id": decision.approval_id if isinstance(decision, PendingApproval) else None,
    }
    return strict_json.dumps(result).encode()
