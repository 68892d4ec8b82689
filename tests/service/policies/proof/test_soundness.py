"""Proofs about random conditions hold for random calls with arguments of all types."""

from collections import Counter
from typing import Any

import pytest
from support.condition_generator import ConditionGenerator
from support.policy_documents import MOMENT

from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.proof.prove import Status, prove

#: number of random calls for each proof
_CALLS = 150


def _policy(effect: str, condition: str, permissions: list[dict[str, Any]]) -> PolicyDocument:
    return PolicyDocument.model_validate(
        {
            "version": "toolgate.policy/v1",
            "agents": [{"name": "bot", "permissions": permissions}],
            "rules": [{"name": "rule", "effect": effect, "actions": ["*"], "when": condition}],
        }
    )


def _check(seed: int, count: int) -> Counter[Status]:
    statuses: Counter[Status] = Counter()
    generator = ConditionGenerator(seed)
    for number in range(count):
        one, other = generator.condition(1), generator.condition(1)
        forms = [f"({one}) && ({other})", f"({one}) || ({other})", f"!({other}) || !({one})", one, other]
        first, second = forms[number % 5], forms[(number // 5) % 5]
        effect = ("forbid", "allow", "require_approval")[number % 3]
        permissions = [{"action": "stripe.refund"}] if number % 2 or effect == "forbid" else []
        old, new = _policy(effect, first, permissions), _policy(effect, second, permissions)
        proof = prove(old, new, moment=MOMENT)
        statuses[proof.status] += 1
        if proof.status is not Status.PROVEN:
            continue
        before, after = PolicyEvaluator(old), PolicyEvaluator(new)
        for _ in range(_CALLS):
            call = generator.variables()
            judged = "bot", call.action, call.args, call.run_id or None, call.now
            assert not after.judge(*judged).is_more_lenient(before.judge(*judged)), (first, second, call)
    return statuses


def test_proofs_hold_for_random_calls() -> None:
    statuses = _check(1, 60)
    assert statuses[Status.PROVEN] >= 15
    assert statuses[Status.WIDENED] >= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_300_proofs_hold_for_random_calls(seed: int) -> None:
    assert _check(seed, 300)[Status.PROVEN] >= 75
