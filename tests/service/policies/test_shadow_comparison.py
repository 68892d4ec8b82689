"""Comparison of a decision with a candidate policy, for every reason code."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.checks.decide import _REASON_CODES
from toolgate_service.core.strict_json import Json
from toolgate_service.policies.comparison import DecidedCall, LiveComparison, compare_call
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ALLOWED, HELD, QUORUM = {"action": "pay"}, {"action": "pay", "requires_approval": True}, {
    "action": "pay", "requires_approval": True, "required_approvals": 2,
}  # fmt: skip
BUDGET = {"name": "b", "actions": ["pay", "other"], "window": "month", "limit": 100}
STATIC = {
    "agent_disabled", "forbidden_by_rule", "no_permission", "amount_missing", "amount_invalid", "amount_exceeded",
}  # fmt: skip
INDEPENDENT = {"api_key_revoked", "agent_not_found", "frozen"}
BUDGETS = {"budget_amount_invalid", "budget_exceeded"}
FLOW = {*_REASON_CODES.values(), "approval_invalid"} - STATIC - INDEPENDENT - BUDGETS


def evaluator(permission: dict[str, Any] | None, *budgets: dict[str, Any]) -> PolicyEvaluator:
    agent = {"name": "bot", "permissions": [] if permission is None else [permission]}
    document = {"version": "toolgate.policy/v1", "agents": [agent], "budgets": list(budgets)}
    return PolicyEvaluator(PolicyDocument.model_validate(document), {"bot": "1"})


def outcome_of(code: str) -> str:
    if code in {"allowed", "approved", "temporary_approval"}:
        return "allowed"
    return "approval_required" if code in {"approval_required", "arguments_edited"} else "denied"


def compare(code: str, candidate: PolicyEvaluator, current: PolicyEvaluator, agent: str | None = "1") -> str:
    call = DecidedCall(agent, "pay", {}, None, MOMENT, outcome_of(code), code)
    return compare_call(call, candidate, current)[0]


@pytest.mark.parametrize("code", sorted(INDEPENDENT))
@pytest.mark.parametrize("candidate", [None, ALLOWED, HELD])
def test_denial_that_no_policy_changes(code: str, candidate: dict[str, Any] | None) -> None:
    assert compare(code, evaluator(candidate), evaluator(ALLOWED)) == "unchanged"
    assert compare("agent_not_found", evaluator(candidate), evaluator(ALLOWED), None) == "unchanged"


@pytest.mark.parametrize("code", sorted(STATIC))
def test_denial_by_the_policy_is_decided_by_the_candidate(code: str) -> None:
    current = evaluator(None)
    assert compare(code, evaluator(None), current) == "unchanged"
    assert compare(code, evaluator(HELD), current) == "newly_held"
    assert compare(code, evaluator(ALLOWED), current) == "newly_allowed"


def test_allowed_call_is_decided_by_the_candidate() -> None:
    current = evaluator(ALLOWED)
    assert compare("allowed", evaluator(None), current) == "newly_denied"
    assert compare("allowed", evaluator(HELD), current) == "newly_held"
    assert compare("allowed", evaluator(ALLOWED), current) == "unchanged"


def test_allowed_call_under_other_budgets_is_not_replayable() -> None:
    same, higher = BUDGET | {"actions": ["other", "pay"]}, BUDGET | {"limit": 200}
    current = evaluator(ALLOWED, BUDGET)
    assert compare("allowed", evaluator(ALLOWED, same), current) == "unchanged"
    assert compare("allowed", evaluator(ALLOWED, higher), current) == "not_replayable"
    assert compare("allowed", evaluator(ALLOWED), current) == "not_replayable"
    assert compare("allowed", evaluator(None, higher), current) == "newly_denied"
    assert compare("allowed", evaluator(HELD, higher), current) == "newly_held"


@pytest.mark.parametrize("code", sorted(FLOW | BUDGETS))
def test_decision_by_an_approval_or_a_budget(code: str) -> None:
    current = evaluator(HELD)
    outcome = outcome_of(code)
    assert compare(code, evaluator(None), current) == ("unchanged" if outcome == "denied" else "newly_denied")
    assert compare(code, evaluator(HELD), current) == "unchanged"
    is_held = outcome == "approval_required"
    allowed = "newly_allowed" if is_held else "not_replayable"
    assert compare(code, evaluator(ALLOWED), current) == allowed
    assert compare(code, evaluator(ALLOWED, BUDGET), current) == "not_replayable"
    assert compare(code, evaluator(QUORUM), current) == ("unchanged" if is_held else "not_replayable")


def test_call_that_a_budget_holds_is_not_replayable_without_it() -> None:
    current = evaluator(ALLOWED, BUDGET | {"at_limit": "require_approval"})
    assert compare("approval_required", evaluator(ALLOWED), current) == "not_replayable"
    assert compare("approval_required", current, current) == "unchanged"


def test_judgement_is_that_of_the_candidate() -> None:
    call = DecidedCall("1", "pay", {}, None, MOMENT, "allowed", "allowed")
    judged = compare_call(call, evaluator(None), evaluator(ALLOWED))[1]
    assert judged is not None
    assert judged.reason_code == "no_permission"


RULES = [
    {"name": "f", "effect": "forbid", "actions": ["pay"], "when": "args.n == 1"},
    {"name": "q", "effect": "require_approval", "actions": ["*"], "when": "args.n == 2"},
    {"name": "q2", "effect": "require_approval", "actions": ["pay"], "when": "args.n == 2",
     "approval": {"quorum": 2}},
    {"name": "a", "effect": "allow", "actions": ["p*"], "when": "args.n != 3"},
    {"name": "x", "effect": "forbid", "actions": ["other"]},
    {"name": "g", "effect": "forbid", "actions": ["pay"], "when": "args.n == 4", "enabled": False},
]  # fmt: skip
PERMISSIONS = (None, ALLOWED, HELD)


@st.composite
def policies(draw: st.DrawFn) -> PolicyEvaluator:
    permission = draw(st.sampled_from(PERMISSIONS))
    rules = draw(st.lists(st.sampled_from(RULES), unique_by=lambda rule: str(rule["name"])))
    agent = {"name": "bot", "permissions": [] if permission is None else [permission]}
    document = {
        "version": "toolgate.policy/v1",
        "agents": draw(st.sampled_from([[], [agent], [agent | {"enabled": False}]])),
        "rules": rules,
        "budgets": draw(st.sampled_from([[], [BUDGET], [BUDGET | {"limit": 5}]])),
    }
    policy = PolicyDocument.model_validate(document)
    return PolicyEvaluator(policy, {"bot": "1"})


@given(policies(), policies(), st.integers(1, 5))
def test_comparison_of_what_differs_has_the_same_result(
    candidate: PolicyEvaluator, current: PolicyEvaluator, number: int
) -> None:
    """A decision of the current policy, as far as it does not depend on the gateway's state, or a call that waits."""
    context: dict[str, Json] = {"n": number}
    live = current.judge("1", "pay", context, None, MOMENT)
    call = DecidedCall("1", "pay", context, None, MOMENT, live.outcome.label, live.reason_code)
    expected = compare_call(call, candidate, current)
    comparison = LiveComparison(candidate, current)
    assert comparison.compare(call, is_current=True) == expected
    assert comparison.compare(call, is_current=False) == expected
    if comparison.is_equivalent("1", "pay"):
        assert expected[0] == "unchanged"
