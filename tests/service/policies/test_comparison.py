"""Comparison of single recorded decisions with a candidate, for states that are hard to reach with a live gateway."""

from datetime import UTC, datetime
from typing import Any

import pytest

from toolgate_service.core.ids import new_id
from toolgate_service.core.strict_json import Json, canonical, digest, dumps_typed
from toolgate_service.decisions.repository import RecordedDecision
from toolgate_service.policies.comparison import Comparison, PolicyComparison
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.replay_service import compare_recorded

AGENT, OTHER = new_id(), new_id()
RULE = new_id()
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACTION = "pay"
OUTCOMES = {
    "allowed": "allowed",
    "approved": "allowed",
    "temporary_approval": "allowed",
    "approval_required": "approval_required",
    "arguments_edited": "approval_required",
}
#: codes of decisions that depend on approvals
FLOW = (
    "approval_required",
    "approved",
    "temporary_approval",
    "arguments_edited",
    "recently_rejected",
    "action_blocked",
    "too_many_pending",
    "approval_closed",
    "approval_invalid",
    "call_already_allowed",
)
HELD = tuple(code for code in FLOW if OUTCOMES.get(code) != "allowed")


def decision(code: str, args: dict[str, Json] | None = None, **fields: Any) -> RecordedDecision:
    args = args or {}
    found = RecordedDecision(
        created_at=NOW,
        id=new_id(),
        agent_id=AGENT,
        action=ACTION,
        run_id=None,
        context_digest=digest(canonical(args)),
        context=dumps_typed(args),
        rule_id=None,
        outcome=OUTCOMES.get(code, "denied"),
        reason_code=code,
    )
    return found._replace(**fields)


def policy(
    permission: dict[str, Any] | None = None, *budgets: dict[str, Any], rules: Any = ()
) -> PolicyDocument:
    permissions = [] if permission is None else [{"action": ACTION, **permission}]
    return PolicyDocument.model_validate(
        {
            "version": "toolgate.policy/v1",
            "agents": [{"name": "bot", "permissions": permissions}],
            "rules": list(rules),
            "budgets": [
                {"name": "B", "actions": ["*"], "window": "day", "limit": 5} | one for one in budgets
            ],
        }
    )


ALLOW = policy({})
DENY = policy()
HOLD = policy({"requires_approval": True})
DUO = policy({"requires_approval": True, "required_approvals": 2})
QUICK = policy({"requires_approval": True, "approval_ttl_seconds": 60})
BUDGET: dict[str, Any] = {}
REQUIRE = {"at_limit": "require_approval"}


def compare(current: PolicyDocument, candidate: PolicyDocument, recorded: RecordedDecision) -> Comparison:
    ids = {"bot": AGENT}
    comparison = PolicyComparison(PolicyEvaluator(current, ids), PolicyEvaluator(candidate, ids))
    return compare_recorded(comparison, recorded)


def category(current: PolicyDocument, candidate: PolicyDocument, code: str, **fields: Any) -> str:
    return compare(current, candidate, decision(code, **fields)).category


@pytest.mark.parametrize("code", ["api_key_revoked", "agent_not_found", "frozen", "approval_not_found"])
@pytest.mark.parametrize("context", ["{}", None])
def test_denials_before_the_policy_are_unchanged(code: str, context: str | None) -> None:
    for candidate in (ALLOW, HOLD, DENY):
        assert category(DENY, candidate, code, context=context) == "unchanged"


@pytest.mark.parametrize("code", FLOW)
def test_same_policy_leaves_decisions_of_the_approval_flow_unchanged(code: str) -> None:
    for same in (HOLD, DUO, QUICK, policy({"requires_approval": True}, BUDGET)):
        assert category(same, same, code) == "unchanged"


@pytest.mark.parametrize("code", [code for code in FLOW if code != "temporary_approval"])
def test_same_policy_leaves_approvals_required_by_budgets_unchanged(code: str) -> None:
    same = policy({}, REQUIRE)
    assert category(same, same, code) == "unchanged"


@pytest.mark.parametrize("code", FLOW)
def test_calls_that_need_no_approval_any_more_are_newly_allowed(code: str) -> None:
    assert category(HOLD, ALLOW, code) == "newly_allowed"
    assert category(HOLD, policy({}, BUDGET), code) == "newly_allowed"
    assert category(policy({"requires_approval": True}, BUDGET), ALLOW, code) == "newly_allowed"
    assert category(policy({}, REQUIRE), ALLOW, code) == "newly_allowed"


@pytest.mark.parametrize("code", FLOW)
def test_denial_by_the_candidate_does_not_depend_on_approvals(code: str) -> None:
    expected = "unchanged" if decision(code).outcome == "denied" else "newly_denied"
    assert category(HOLD, DENY, code) == expected


@pytest.mark.parametrize("code", FLOW)
def test_more_lenient_terms_are_never_unchanged(code: str) -> None:
    assert category(DUO, HOLD, code) == "not_replayable"
    assert category(QUICK, HOLD, code) == "not_replayable"


@pytest.mark.parametrize("code", HELD)
def test_stricter_terms_leave_calls_that_were_not_allowed_unchanged(code: str) -> None:
    assert category(HOLD, DUO, code) == "unchanged"


@pytest.mark.parametrize("code", ["approved", "temporary_approval", "budget_exceeded"])
def test_stricter_terms_make_used_approvals_not_replayable(code: str) -> None:
    budgets = [BUDGET] if code == "budget_exceeded" else []
    before = policy({"requires_approval": True}, *budgets)
    after = policy({"requires_approval": True, "required_approvals": 2}, *budgets)
    found = compare(before, after, decision(code))
    assert found.category == "not_replayable"
    assert "terms of the approval" in str(found.problem)


@pytest.mark.parametrize("code", FLOW)
def test_changed_budgets_make_the_approval_flow_not_replayable(code: str) -> None:
    before = policy({"requires_approval": True}, BUDGET)
    for after in (
        HOLD,
        policy({"requires_approval": True}, {"limit": 6}),
        policy({"requires_approval": True}, REQUIRE),
        policy({"requires_approval": True}, {"scope": "agent"}),
        policy({"requires_approval": True}, {"window": "hour"}),
        policy({"requires_approval": True}, BUDGET, {"name": "C"}),
    ):
        found = compare(before, after, decision(code))
        assert found.category == "not_replayable"
        assert "Budget" in str(found.problem)


def test_approval_that_a_rule_required_then_is_compared_although_the_rule_is_gone() -> None:
    assert category(ALLOW, ALLOW, "approval_required", rule_id=RULE) == "newly_allowed"
    with_budget = policy({}, REQUIRE)
    assert category(with_budget, with_budget, "approval_required", rule_id=RULE) == "newly_allowed"
    assert category(with_budget, with_budget, "approval_required") == "unchanged"
    found = compare(ALLOW, HOLD, decision("approval_required", rule_id=RULE))
    assert (found.category, "current policy" in str(found.problem)) == ("not_replayable", True)


def test_unknown_former_policy_is_not_replayable() -> None:
    for candidate in (HOLD, policy({}, BUDGET)):
        found = compare(DENY, candidate, decision("approved"))
        assert (found.category, "current policy" in str(found.problem)) == ("not_replayable", True)
    assert category(DENY, ALLOW, "approved") == "newly_allowed"


def test_exceeded_budget() -> None:
    before = policy({}, BUDGET)
    assert category(before, before, "budget_exceeded") == "unchanged"
    assert category(before, DENY, "budget_exceeded") == "unchanged"
    assert category(before, ALLOW, "budget_exceeded") == "newly_allowed"
    assert category(before, policy({}, {"limit": 6}), "budget_exceeded") == "not_replayable"
    # The budget is compared only when the approval is used.
    assert category(before, policy({"requires_approval": True}, BUDGET), "budget_exceeded") == "newly_held"
    held = policy({"requires_approval": True}, BUDGET)
    assert category(held, held, "budget_exceeded") == "unchanged"
    assert category(held, before, "budget_exceeded") == "unchanged"


def test_required_approval_by_a_budget_is_also_required_by_the_permission() -> None:
    before, after = policy({}, REQUIRE), policy({"requires_approval": True}, REQUIRE)
    assert {code: category(before, after, code) for code in FLOW if code != "temporary_approval"} == {
        code: "not_replayable" if code == "approved" else "unchanged"
        for code in FLOW
        if code != "temporary_approval"
    }


def test_allowed_call_with_budgets() -> None:
    before = policy({}, BUDGET)
    assert category(before, before, "allowed") == "unchanged"
    assert category(before, ALLOW, "allowed") == "unchanged"
    assert category(ALLOW, before, "allowed") == "not_replayable"
    assert category(before, policy({}, {"limit": 1}), "allowed") == "not_replayable"
    assert category(before, policy({"requires_approval": True}, {"limit": 1}), "allowed") == "newly_held"
    unrelated = policy({}, BUDGET, {"name": "C", "actions": ["mail.*"], "limit": 1})
    assert category(before, unrelated, "allowed") == "unchanged"


def test_order_of_lists_does_not_change_budgets_and_approvers() -> None:
    before = policy({}, {"actions": ["pay", "mail.*"]})
    after = policy({}, {"actions": ["mail.*", "pay", "mail.*"]})
    assert category(before, after, "allowed") == "unchanged"

    def required_by(*approvers: str) -> PolicyDocument:
        approval = {"approvers": list(approvers)}
        rule = {"name": "R", "effect": "require_approval", "actions": ["*"], "approval": approval}
        return policy({}, rules=[rule])

    before, after = required_by("a@x.test", "B@x.test"), required_by("b@x.test", "A@x.test")
    assert category(before, after, "approved", rule_id=RULE) == "unchanged"
    assert category(before, required_by("a@x.test"), "approved", rule_id=RULE) == "not_replayable"


def test_rule_that_names_an_agent_with_an_id_applies_to_it() -> None:
    document = policy({}, {"agents": ["bot"]}, rules=[
        {"name": "R", "effect": "forbid", "agents": ["bot"], "actions": ["*"]}
    ])  # fmt: skip
    agents = [document.agents[0].model_copy(update={"id": AGENT})]
    named = document.model_copy(update={"agents": agents})
    named.verify()
    evaluator = PolicyEvaluator(named, {"bot": AGENT, AGENT: AGENT})
    assert evaluator.judge(AGENT, ACTION, {}, None, NOW).reason_code == "forbidden_by_rule"
    assert evaluator.judge(OTHER, ACTION, {}, None, NOW).reason_code == "agent_not_found"
    assert evaluator.budgets.match(AGENT, ACTION)


@pytest.mark.parametrize("text", ["{", "[]", '{"amount":2}', '{"amount":1.00000000000000000001}'])
def test_context_with_another_digest_is_not_replayable(text: str) -> None:
    found = compare(ALLOW, ALLOW, decision("allowed", {"amount": 1}, context=text))
    assert (found.category, found.problem) == (
        "not_replayable",
        "The digest of the stored arguments differs from the recorded digest",
    )
