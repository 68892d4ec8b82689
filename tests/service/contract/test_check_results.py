"""The check result: its fields (spec §2) in each of its outcomes (spec §4), one case each."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.gateway import Owner
from support.kinds import Kind, boolean, identifier, text

Results = Mapping[str, Mapping[str, Any]]
OUTCOMES = ("permitted", "held", "no permission", "above the maximum")


def nothing(value: object) -> bool:
    return value is None


@pytest.fixture(scope="module")
def results(acme: Owner) -> Results:
    """One answer of every row of the outcome table."""
    bot = acme.agent()
    acme.permit(bot, "pay", max_amount=100.5)
    acme.permit(bot, "drop", requires_approval=True)
    answers = (
        acme.check(bot, "pay", {"amount": 100.5}),
        acme.check(bot, "drop"),
        acme.check(bot, "never.granted"),
        acme.check(bot, "pay", {"amount": 250.75}),
    )
    assert [answer.status_code for answer in answers] == [200] * 4
    return dict(zip(OUTCOMES, (answer.json() for answer in answers), strict=True))


KINDS: Mapping[str, tuple[Kind, ...]] = {
    "allowed": (boolean,) * 4,
    "requires_approval": (boolean,) * 4,
    "reason": (nothing, text, text, text),
    "approval_id": (nothing, identifier, nothing, nothing),
}


@pytest.mark.parametrize("field", KINDS)
def test_a_field_of_the_result(results: Results, field: str) -> None:
    """It is there in every outcome, and has its type or is null where spec §2 says so."""
    for outcome, kind in zip(OUTCOMES, KINDS[field], strict=True):
        assert kind(results[outcome][field]), f"{outcome}: {results[outcome][field]!r}"


#: allowed, requires_approval, what the reason names, whether there is an approval
ROWS: Mapping[str, tuple[bool, bool, tuple[str, ...], bool]] = {
    "permitted": (True, False, (), False),
    "held": (False, True, ("drop", "needs human approval"), True),
    "no permission": (False, False, ("never.granted",), False),
    "above the maximum": (False, False, ("250.75", "100.5"), False),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome(results: Results, outcome: str) -> None:
    """The result has the values of the outcome table's row, and nothing beside its four fields (spec §4)."""
    result = results[outcome]
    allowed, held, named, asked = ROWS[outcome]
    assert set(result) == set(KINDS)
    assert (result["allowed"], result["requires_approval"]) == (allowed, held)
    assert (result["approval_id"] is not None) == asked
    assert (result["reason"] is not None) == bool(named)
    assert all(word in result["reason"] for word in named)


def test_there_are_three_answers(acme: Owner, results: Results, bot: str) -> None:
    """Allowed, blocked with a reason, or held with a reason and an approval: whatever is asked (spec §1)."""
    strange = [
        acme.check(agent, "x", context) for agent in (bot, "nobody") for context in (None, {"amount": "x"})
    ]
    every = [*results.values(), *(answer.json() for answer in strange)]
    kinds = {
        (one["allowed"], one["requires_approval"], bool(one["reason"]), bool(one["approval_id"]))
        for one in every
    }
    assert kinds == {(True, False, False, False), (False, False, True, False), (False, True, True, True)}
