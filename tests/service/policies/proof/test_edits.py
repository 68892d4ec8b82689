"""Random changes of random policies."""

from collections import Counter
from itertools import islice

import pytest
from support.policy_documents import MOMENT
from support.policy_edits import other_edits, widening_edits

from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.proof.prove import Proof, Status, prove


def _is_confirmed(proof: Proof, old: PolicyEvaluator, new: PolicyEvaluator) -> bool:
    found = proof.counterexample
    if found is None:
        return False
    call = found.agent_id, found.action, found.context, found.run_id, found.moment
    before, after = old.judge(*call), new.judge(*call)
    return (before, after) == (found.old, found.new) and after.is_more_lenient(before)


def _check_widening(seed: int, count: int) -> Counter[Status]:
    statuses: Counter[Status] = Counter()
    for edit in islice(widening_edits(seed), count):
        proof = prove(edit.old, edit.new, moment=MOMENT)
        assert proof.status is not Status.PROVEN, edit
        if proof.status is Status.WIDENED:
            assert _is_confirmed(proof, PolicyEvaluator(edit.old), PolicyEvaluator(edit.new)), edit
        else:
            assert proof.reasons
        statuses[proof.status] += 1
    return statuses


def _check_others(seed: int, count: int) -> Counter[Status]:
    statuses: Counter[Status] = Counter()
    for edit in islice(other_edits(seed), count):
        proof = prove(edit.old, edit.new, moment=MOMENT)
        assert proof.status is not Status.WIDENED, edit
        statuses[proof.status] += 1
    return statuses


def test_no_widening_change_is_proven() -> None:
    assert _check_widening(1, 30)[Status.WIDENED] >= 24


def test_most_changes_that_do_not_widen_are_proven() -> None:
    assert _check_others(1, 30)[Status.PROVEN] >= 24


@pytest.mark.slow
def test_none_of_200_widening_changes_is_proven() -> None:
    assert _check_widening(2, 200)[Status.WIDENED] >= 170


@pytest.mark.slow
def test_most_of_200_changes_that_do_not_widen_are_proven() -> None:
    assert _check_others(2, 200)[Status.PROVEN] >= 150
