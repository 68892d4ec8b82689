"""Which calls a grant covers."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.approvals.grant_proposals import covers

NAMES = st.sampled_from(["amount", "to", "order", "note"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.decimals(-5, 5, places=1, allow_nan=False),
    st.sampled_from(["", "a", "1"]),
    st.lists(st.integers(0, 1), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
)
CONTEXTS = st.dictionaries(NAMES, VALUES, max_size=4)
FREE = st.sets(NAMES.filter(lambda name: name != "amount"))


@pytest.mark.parametrize(
    ("seen", "asked", "free", "covered"),
    [
        ({"to": "a"}, {"to": "a"}, (), True),
        ({"to": "a"}, {"to": "b"}, (), False),
        ({"to": "a"}, {"to": "A"}, (), False),
        ({"to": "a"}, {"to": "b"}, ("to",), True),
        ({"to": "a"}, {}, (), False),
        ({"to": "a"}, {}, ("to",), True),
        ({}, {"to": "a"}, (), False),
        ({"a": 1}, {"a": True}, (), False),
        ({"a": 1}, {"a": Decimal("1.0")}, (), True),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ("b",), False),
        ({"amount": 10}, {"amount": 10}, (), True),
        ({"amount": 10}, {"amount": Decimal("9.99")}, (), True),
        ({"amount": 10}, {"amount": 0}, (), True),
        ({"amount": 10}, {"amount": Decimal("10.01")}, (), False),
        ({"amount": 10}, {"amount": -1}, (), False),
        ({"amount": 10}, {"amount": "9"}, (), False),
        ({"amount": 10}, {"amount": True}, (), False),
        ({"amount": 10}, {}, (), False),
        ({}, {"amount": 1}, (), False),
        ({"amount": "10"}, {"amount": "10"}, (), True),
        ({"amount": 9007199254740992}, {"amount": 9007199254740993}, (), False),
    ],
)
def test_a_call_is_covered(
    seen: dict[str, object], asked: dict[str, object], free: tuple[str, ...], covered: bool
) -> None:
    """All fields are equal as contexts are, but for those left open; an amount may be smaller."""
    assert covers(seen, asked, free) is covered


@given(CONTEXTS, CONTEXTS, FREE)
def test_leaving_more_open_never_covers_less(
    seen: dict[str, object], asked: dict[str, object], free: set[str]
) -> None:
    """What a narrow grant covers, a wider one does too."""
    if covers(seen, asked):
        assert covers(seen, asked, free)


@given(CONTEXTS, CONTEXTS, FREE)
def test_nothing_beyond_what_was_seen_is_covered(
    seen: dict[str, object], asked: dict[str, object], free: set[str]
) -> None:
    """A covered call has every field that was not left open, and never a larger amount."""
    if covers(seen, asked, free):
        assert seen.keys() - free == asked.keys() - free
        numbers = [seen.get("amount"), asked.get("amount")]
        if all(isinstance(one, int | Decimal) and not isinstance(one, bool) for one in numbers):
            assert numbers[1] <= numbers[0]  # type: ignore[operator]  # both are numbers


@given(CONTEXTS)
def test_a_grant_covers_the_call_it_was_given_for(seen: dict[str, object]) -> None:
    """Unless its amount is negative, which no permission lets through."""
    amount = seen.get("amount")
    negative = isinstance(amount, int | Decimal) and not isinstance(amount, bool) and amount < 0
    assert covers(seen, seen) is not negative
