"""Whatever races for one approval, at two gateways at once: it is used at most once, and some order explains it all."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.racing import Race, explained

ROUNDS = [12, pytest.param(500, marks=pytest.mark.slow)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_some_order_explains_every_race(pair: tuple[LiveGateway, LiveGateway], rounds: int) -> None:
    """Checks, decisions, cancellations, switches and deletions at once, again and again, each time other ones."""
    chance, ended = random.Random(rounds), Counter[str]()
    with Owner(pair[0].url) as owner:
        for number in range(rounds):
            race = Race(owner, approved=chance.random() < 0.6)
            deeds = [("ask", race.question), *chance.choices(race.deeds(), k=chance.randint(3, 6))]
            works = [partial(race.do, deed, pair[chance.randrange(2)].url) for deed in deeds]
            history = together(*works)
            last = race.do(("list", None), pair[number % 2].url)
            passed = {one.seen[4] for one in history if one.deed[0] == "ask" and one.seen[0]}
            assert len(passed) <= 1, history
            assert explained(race, [*history, last]), (history, last)
            ended[last.seen[race.approval_id]] += 1
    # The races were about something: now the check was first, now whoever took the approval away.
    assert ended["consumed"] >= rounds / 10, ended
    assert ended["cancelled"] >= rounds / 10, ended


def test_a_race_that_no_order_explains_is_found(pair: tuple[LiveGateway, LiveGateway]) -> None:
    """The judge is no rubber stamp: one approval that lets two pass, or that was not used, has no order."""
    with Owner(pair[0].url) as owner:
        race = Race(owner, approved=True)
        passed, last = race.do(("ask", race.question), owner.url), race.do(("list", None), owner.url)
    assert explained(race, [passed, last])
    assert not explained(race, [last, replace(passed, began=last.ended + 1, ended=last.ended + 2)])
    twice = replace(passed, seen=(*passed.seen[:4], "another decision"))
    assert not explained(race, [passed, twice, last])
    assert not explained(race, [passed, replace(last, seen={race.approval_id: "approved"})])
