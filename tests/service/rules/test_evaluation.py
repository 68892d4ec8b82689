"""Evaluation of rules without I/O: which rules match a call, and which of them is the strongest."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.rules.evaluation import (
    NO_MATCH,
    CompiledRule,
    RuleSet,
    RuleTerms,
    action_matches,
)
from toolgate_service.rules.expressions import Variables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EFFECTS = ("forbid", "require_approval", "allow")


def call(action: str = "stripe.refund") -> Variables:
    return Variables({}, action, "bot", "Refund bot", "", NOW)


def rule(
    effect: str,
    *,
    rule_id: str = "1",
    agents: frozenset[str] | None = None,
    actions: tuple[str, ...] = ("*",),
    result: bool | str | None = "no condition",
    terms: RuleTerms = RuleTerms(),  # noqa: B008 - an immutable tuple
) -> CompiledRule:
    condition: Callable[[Variables], bool | None] | None = None
    if not isinstance(result, str):
        condition = lambda _: result  # noqa: E731 - a condition with a fixed result
    return CompiledRule(rule_id, f"rule {rule_id}", effect, agents, actions, condition, terms)


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("stripe.refund", "stripe.refund", True),
        ("stripe.refund", "stripe.refunds", False),
        ("stripe.refund", "Stripe.refund", False),
        ("stripe.*", "stripe.refund", True),
        ("stripe.*", "stripe.refund.partial", True),
        ("stripe.*", "stripe.", True),
        ("stripe.*", "stripe", False),
        ("stripe*", "stripe", True),
        ("*", "anything", True),
    ],
)
def test_pattern_matches_the_whole_action_or_its_beginning(
    pattern: str, action: str, *, matches: bool
) -> None:
    assert action_matches(pattern, action) is matches
    assert (RuleSet([rule("allow", actions=(pattern,))]).match("bot", call(action)) != NO_MATCH) is matches


@pytest.mark.parametrize(
    ("effect", "result", "matches"),
    [
        ("forbid", True, True),
        ("forbid", False, False),
        ("forbid", None, True),
        ("require_approval", True, True),
        ("require_approval", False, False),
        ("require_approval", None, True),
        ("allow", True, True),
        ("allow", False, False),
        ("allow", None, False),
    ],
)
def test_failing_condition_has_the_stricter_result(
    effect: str, result: bool | None, *, matches: bool
) -> None:
    assert (RuleSet([rule(effect, result=result)]).match("bot", call()) != NO_MATCH) is matches


def test_rule_for_agents_applies_only_to_them() -> None:
    rules = RuleSet([rule("forbid", agents=frozenset({"bot", "eve"}))])
    assert rules.match("bot", call()).forbidding
    assert rules.match("eve", call()).forbidding
    assert rules.match("other", call()) == NO_MATCH


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(
    "present", [present for n in (1, 2, 3) for present in itertools.combinations(EFFECTS, n)]
)
def test_strongest_effect_decides_in_every_order(order: tuple[int, ...], present: tuple[str, ...]) -> None:
    made = [rule(effect, rule_id=effect) for effect in present]
    shuffled = [made[place] for place in order if place < len(made)]
    found = RuleSet(shuffled).match("bot", call())
    strongest = next(effect for effect in EFFECTS if effect in present)
    assert bool(found.forbidding) is (strongest == "forbid")
    assert bool(found.requiring) is (strongest == "require_approval")
    assert bool(found.allowing) is (strongest == "allow")


def test_strictest_terms_of_all_matching_rules_apply() -> None:
    rules = RuleSet(
        [
            rule("require_approval", rule_id="1", terms=RuleTerms(2, None, frozenset({"ada", "bob"}))),
            rule("require_approval", rule_id="2", terms=RuleTerms(None, 60, frozenset({"bob", "eve"}))),
            rule("require_approval", rule_id="3", terms=RuleTerms(1, 3600)),
            rule("require_approval", rule_id="4", terms=RuleTerms(9, 1, frozenset()), result=False),
        ]
    )
    found = rules.match("bot", call())
    assert [one.id for one in found.requiring] == ["1", "2", "3"]
    assert found.terms == RuleTerms(2, 60, frozenset({"bob"}))


TERMS = st.builds(
    RuleTerms,
    st.none() | st.integers(1, 10),
    st.none() | st.integers(1, 100),
    st.none() | st.frozensets(st.sampled_from("abc")),
)


@given(TERMS, TERMS, TERMS)
def test_stricter_terms_do_not_depend_on_the_order(one: RuleTerms, two: RuleTerms, three: RuleTerms) -> None:
    assert one.stricter(two) == two.stricter(one)
    assert one.stricter(two).stricter(three) == one.stricter(two.stricter(three))
    assert one.stricter(one) == one == one.stricter(RuleTerms())


ACTIONS = st.sampled_from(["a.b", "a.c", "a", "b.c"])
PATTERNS = st.sampled_from(["a.b", "a.*", "a*", "*", "b.c", "b.*", "c"])
AGENTS = st.sampled_from(["bot", "eve"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EFFECTS),
            st.none() | st.frozensets(AGENTS, min_size=1),
            st.lists(PATTERNS, min_size=1, max_size=3),
            st.sampled_from([True, False, None, "no condition"]),
        ),
        max_size=8,
    ),
    AGENTS,
    ACTIONS,
)
def test_index_finds_the_rules_that_a_search_finds(
    drawn: list[tuple[str, frozenset[str] | None, list[str], bool | str | None]], agent: str, action: str
) -> None:
    made = [
        rule(effect, rule_id=str(place), agents=agents, actions=tuple(actions), result=result)
        for place, (effect, agents, actions, result) in enumerate(drawn)
    ]
    asked = call(action)
    matching = [one for one in made if one.applies_to(agent, action) and one.matches(asked)]
    rules = RuleSet(made)
    for _ in range(2):  # the second time from the kept candidates
        found = rules.match(agent, asked)
        by_effect = {effect: {one.id for one in matching if one.effect == effect} for effect in EFFECTS}
        if by_effect["forbid"]:
            assert found.forbidding is not None
            assert found.forbidding.id in by_effect["forbid"]
            assert found == found._replace(requiring=(), allowing=None)
        elif by_effect["require_approval"]:
            assert {one.id for one in found.requiring} == by_effect["require_approval"]
        elif by_effect["allow"]:
            assert found.allowing is not None
            assert found.allowing.id in by_effect["allow"]
        else:
            assert found == NO_MATCH
    assert {one.id for one, matches in rules.explain(agent, asked) if matches} == {one.id for one in matching}
