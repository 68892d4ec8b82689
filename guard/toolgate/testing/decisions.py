"""Decisions of the fake gateway about checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from toolgate._capture.jsontext import exact
from toolgate._options import Permitted
from toolgate.testing.budgets import Budgets
from toolgate.testing.rules import (
    ConditionalRule,
    FakeDecision,
    Freeze,
    Rule,
    StoredApproval,
    Then,
    apply_rules,
    is_same,
)

__all__ = ["DecisionEngine"]

_EXPIRES_AFTER: Final = 24 * 3600.0  # lifetime of an approval request, in seconds

_Requests: TypeAlias = Sequence[StoredApproval]


class DecisionEngine(ABC):
    """Base class of `FakeGateway`, which stores the permissions and rules of a test and makes the decisions."""

    def __init__(self, permissions: Iterable[Permitted]) -> None:
        self._rules = {each.action: Rule(each) for each in permissions}
        self._freezes: list[Freeze] = []
        self._conditional_rules: list[ConditionalRule] = []
        self._budgets = Budgets()
        self._approvals: dict[str, StoredApproval] = {}

    @abstractmethod
    def clock(self) -> float:
        """Return the time of the gateway's own clock, in monotonic seconds."""

    def _decide(self, body: dict[str, Any]) -> FakeDecision:
        action, context, approval_id = body["action"], body.get("context") or {}, body.get("approval_id")
        rule = self._rules.get(action, Rule(None))
        if freeze := next((each for each in self._freezes if each.covers(action)), None):
            return FakeDecision("blocked", "frozen", f"Calls are frozen: {freeze.reason}")
        policy = apply_rules(rule, self._conditional_rules, action, context)
        if policy.outcome == "blocked":
            return policy
        equal = [
            each
            for each in reversed(self._approvals.values())
            if is_same(each.check, body, "agent_id", "action", "run_id")
            and exact(each.context) == exact(context)
        ]
        own = [
            each
            for each in equal
            if (each.approval_id == approval_id if approval_id else is_same(each.check, body, "call_id"))
        ]
        if approval_id and not own:
            why = "does not belong to this agent, action and context; check again without approval_id"
            return FakeDecision("blocked", "approval_not_found", f"Approval {approval_id!r} {why}")
        if invalid := self._budgets.find_invalid_amount(action, context):
            return invalid
        if policy.outcome == "allowed":
            # If the limit is exceeded, the budget requires the approval, and not a rule that allows the call.
            policy = self._budgets.find_exceeded(action, context) or policy
        if policy.outcome != "held":
            return policy
        decision = self._decide_held(body, rule.then, str(policy.reason), equal, own)
        return decision._replace(headers={**decision.headers, **policy.headers})

    def _decide_held(
        self, body: dict[str, Any], then: Then | None, why: str, equal: _Requests, own: _Requests
    ) -> FakeDecision:
        approval_id, call_id, is_dry = body.get("approval_id"), body.get("call_id"), body.get("dry_run")
        used = [each.check for each in self._approvals.values() if each.status == "consumed"]
        if call_id and any(is_same(each, body, "agent_id", "action", "run_id", "call_id") for each in used):
            reason = f"Call {call_id!r} has already been allowed once; use a new call_id for a new call"
            headers = {"x-call-let-through": "true"}
            return FakeDecision("blocked", "call_already_allowed", reason, headers=headers)
        if by_approval := self._use_approved(body, own):
            return by_approval
        # `replaced` means that an approver edited the request. A further check with the same call id then still
        # requires approval, unless the check contains an approval id.
        open_status = {"pending", "replaced"} if call_id and not approval_id else {"pending"}
        for each in own:
            if self._status(each) in open_status:
                code = "arguments_edited" if each.status == "replaced" else "approval_required"
                return FakeDecision("held", code, why, each.approval_id)
        if ended := self._end_of(body, equal, own):
            return ended
        if is_dry:
            return FakeDecision("held", "approval_required", why)
        approval = StoredApproval(body, self.clock() + _EXPIRES_AFTER, then == "ignored")
        self._approvals[approval.approval_id] = approval
        if then in {"approved", "denied"}:
            approval.change(str(then))
        return FakeDecision("held", "approval_required", why, approval.approval_id)

    def _use_approved(self, body: dict[str, Any], own: _Requests) -> FakeDecision | None:
        for each in own:
            # If an approver edited the arguments, only a check that contains the approval's id may use the approval.
            if each.status == "approved" and (body.get("approval_id") or each.approved_context is None):
                over = self._budgets.find_exceeded(body["action"], each.context)
                if over is not None and over.outcome == "blocked":
                    return over
                if not body.get("dry_run"):
                    each.change("consumed", each.note)
                return FakeDecision("allowed", "approved", headers={"x-approval-id": each.approval_id})
        return None

    def _end_of(self, body: dict[str, Any], equal: _Requests, own: _Requests) -> FakeDecision | None:
        approval_id, call_id = body.get("approval_id"), body.get("call_id")
        if (denied := next((each for each in equal if each.status == "denied"), None)) is not None:
            reason = f"Denied by a person: {denied.note}" if denied.note else "Denied by a person"
            return FakeDecision("blocked", "recently_rejected", reason)
        if approval_id:
            reason = f"Approval {approval_id!r} is {self._status(own[0])}; check again without approval_id"
            return FakeDecision("blocked", "approval_closed", reason)
        if call_id and any(each.is_rejected for each in own):
            reason = f"Call {call_id!r} was rejected in the agent's framework"
            return FakeDecision("blocked", "recently_rejected", reason)
        return None

    def _status(self, approval: StoredApproval) -> str:
        is_expired = approval.status == "pending" and approval.expires_at <= self.clock()
        return "expired" if is_expired else approval.status
