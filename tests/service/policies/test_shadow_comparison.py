"""Comparison of live decisions with a shadow policy, which evaluates only what differs."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.strict_json import Json
from toolgate_service.policies.comparison import DecidedCall, LiveComparison, PolicyComparison
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ALLOWED, HELD = {"action": "pay"}, {"action": "pay", "requires_approval": True}
BUDGET = {"name": "b", "actions": ["pay", "other"], "window": "month", "limit": 100}
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
    expected = PolicyComparison(current, candidate).compare(call)
    comparison = LiveComparison(candidate, current)
    assert comparison.compare(call, is_current=True) == expected
    assert comparison.compare(call, is_current=False) == expected
    if comparison.is_equivalent("1", "pay"):
        assert expected.category == "unchanged"
