"""The proof includes calls whose arguments are so large that conditions have no result."""

from datetime import UTC, datetime
from typing import Any

from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.proof.prove import Status, prove

MOMENT = datetime(2026, 11, 28, tzinfo=UTC)
#: map for which the gateway estimates 9 ms for each operator `in`
LARGE: dict[str, Any] = {"x": {f"k{number}": 1 for number in range(4_500)}}


def _policy(*conditions: str) -> PolicyDocument:
    rules = [
        {"name": f"rule {index}", "effect": "allow", "actions": ["a.b"], "when": condition}
        for index, condition in enumerate(conditions)
    ]
    return PolicyDocument.model_validate(
        {"version": "toolgate.policy/v1", "agents": [{"name": "bot"}], "rules": rules}
    )


EXPENSIVE = [f"'value {number}' in args.x" for number in range(8)]


def test_rule_that_is_removed_leaves_time_for_other_rules() -> None:
    """For a large argument, the last rule has no result in the old policy. In the new policy, it allows the call."""
    old, new = _policy(*EXPENSIVE, "!('other' in args.x)"), _policy("!('other' in args.x)")
    call = "bot", "a.b", LARGE, None, MOMENT
    assert PolicyEvaluator(new).judge(*call).is_more_lenient(PolicyEvaluator(old).judge(*call))
    small = "bot", "a.b", {"x": {}}, None, MOMENT
    assert not PolicyEvaluator(new).judge(*small).is_more_lenient(PolicyEvaluator(old).judge(*small))
    proof = prove(old, new, moment=MOMENT)
    assert proof.status is Status.NOT_PROVEN
    assert "arguments are very large" in proof.reasons[0]


def test_few_rules_cannot_exceed_the_limits() -> None:
    old, new = _policy(*EXPENSIVE[:2], "!('other' in args.x)"), _policy("!('other' in args.x)")
    assert prove(old, new, moment=MOMENT).status is Status.PROVEN


def test_change_that_takes_no_time_from_other_rules_is_proven() -> None:
    old = _policy(*EXPENSIVE, "!('other' in args.x)")
    assert prove(old, _policy(*EXPENSIVE), moment=MOMENT).status is Status.PROVEN
    tighter = _policy(*EXPENSIVE, "!('other' in args.x) && !('another' in args.x)")
    assert prove(old, tighter, moment=MOMENT).status is Status.PROVEN


def test_condition_that_is_cheaper_than_before_is_not_proven() -> None:
    """The condition is evaluated for larger arguments than before."""
    repeated = " && ".join(["!('other' in args.x)"] * 4)
    old, new = _policy(repeated), _policy("!('other' in args.x)")
    call = "bot", "a.b", LARGE, None, MOMENT
    assert PolicyEvaluator(new).judge(*call).is_more_lenient(PolicyEvaluator(old).judge(*call))
    proof = prove(old, new, moment=MOMENT)
    assert proof.status is Status.NOT_PROVEN
    assert "arguments are very large" in proof.reasons[0]
