"""Thousands of requests made of the OpenAPI document alone, every check of Schemathesis on.

Among them: no 5xx; every status, media type, header and body is announced; what the document allows is accepted and
what it forbids refused; credentials are needed where it says so; what was deleted is gone.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from schemathesis.checks import CHECKS
from schemathesis.config import ChecksConfig
from support.fuzzing import Outcome, fuzz
from support.gateway import LiveGateway, Owner
from support.scene import operation_ids

#: the operations are dealt out, so that several workers share them
HANDS = 6
FEW, MANY = 100, 20_000
#: further draws until a hand's part of the budget is reached
ROUNDS = 200

# Hypothesis writes every case down, also the largest ones that it draws.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


@pytest.fixture
def fuzzed(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization whose data nobody else needs."""
    with Owner(gateway.url, organization="Fuzzed") as owner:
        yield owner


def deal(hand: int) -> list[str]:
    """Return a hand's operations."""
    return operation_ids()[hand::HANDS]


def play(owner: Owner, hand: int, budget: int, draws: int, *phases: str) -> None:
    """Fuzz a hand's operations until its part of the budget is reached, every one of them."""
    whole = fuzz(owner, deal(hand), (*phases, "fuzzing"), draws, seed=hand)
    for seed in range(1, ROUNDS):
        if whole.failures or whole.total >= budget / HANDS:
            break
        add(whole, fuzz(owner, deal(hand), ("fuzzing",), draws, seed=seed * HANDS + hand))
    assert whole.failures == [], "\n\n".join(whole.failures[:5])
    assert whole.total >= budget / HANDS, whole.cases
    assert {name for name, _ in whole.statuses} == set(deal(hand))


def add(whole: Outcome, part: Outcome) -> None:
    """Count a run together with those before it."""
    whole.cases += part.cases
    whole.statuses += part.statuses
    whole.failures += part.failures


def test_the_hands_hold_every_operation() -> None:
    """Dealt out, no operation is forgotten and none dealt twice, so that the parts add up to the budget."""
    dealt = Counter(name for hand in range(HANDS) for name in deal(hand))
    assert dealt == Counter(operation_ids())


def test_every_check_is_on() -> None:
    """Nothing of Schemathesis is switched off but the limit on an answer's time, which has no default."""
    config = ChecksConfig()
    off = {name for name in CHECKS.get_all_names() if not config.get_by_name(name=name).enabled}
    assert off <= {"max_response_time"}


@pytest.mark.parametrize("hand", range(HANDS))
def test_the_gateway_keeps_its_word(fuzzed: Owner, hand: int) -> None:
    """Hundreds of cases in all, dealt out by operation: whatever is sent, the answer is as announced."""
    play(fuzzed, hand, FEW, 2, "examples")


@pytest.mark.slow
def test_what_one_answer_gave_the_next_request_uses(fuzzed: Owner) -> None:
    """Scenarios of several requests: what was created is there, what was deleted is gone."""
    # Which links a scenario follows also depends on the random ids in responses, so one seed may create no agent.
    for seed in range(5):
        outcome = fuzz(fuzzed, operation_ids(), ("stateful",), 15, seed=seed)
        assert outcome.failures == [], "\n\n".join(outcome.failures[:5])
        assert outcome.total > 50
        if outcome.statuses["createAgent", 201]:
            return
    pytest.fail("no scenario created an agent")


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(HANDS))
def test_the_gateway_keeps_its_word_at_length(fuzzed: Owner, hand: int) -> None:
    """The same with twenty thousand cases, and one for every boundary that the document names."""
    play(fuzzed, hand, MANY, 100, "examples", "coverage")


@pytest.mark.slow
def test_what_one_answer_gave_the_next_request_uses_at_length(fuzzed: Owner) -> None:
    """The same with many more scenarios."""
    total = 0
    for seed in range(1, 6):
        outcome = fuzz(fuzzed, operation_ids(), ("stateful",), 500, seed=seed)
        assert outcome.failures == [], "\n\n".join(outcome.failures[:5])
        total += outcome.total
        # How many requests the scenarios of one seed make also depends on the random ids in responses.
        if total > 300:
            return
    pytest.fail(f"the scenarios of five seeds made only {total} requests")
