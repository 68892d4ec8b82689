"""Contexts of checks: amounts around the maximum, odd ones, and the same facts in other words."""

import json
from decimal import Decimal

from hypothesis import strategies as st

from support.reference.facts import digits, read

#: around the maxima 0, 0.1, 99.99, 100 and 9007199254740992, as JSON numbers
NUMBERS = (
    "0", "-0", "-0.0", "0e5", "0.1", "0.10000000000000000000000000000000000001", "99.99", "99.990",
    "99.98999999999999999999999999999999999", "99.99000000000000000000000000000001", "100", "1e2", "100.0",
    "100.00000000000000000000000000000000000001", "9007199254740992", "9007199254740993", "1e-300",
)  # fmt: skip
ODD = ("null", "true", "false", '"5"', '""', "[]", "[5]", "{}", "-1", "-0.01", '{"amount":1}')
#: the other members: texts that are the same whatever they are written like
FACTS: tuple[dict[str, object], ...] = ({}, {"n": Decimal(1)}, {"to": "Zoë", "n": Decimal(1)}, {"n": None})


def contexts() -> st.SearchStrategy[str | None]:
    """Return the JSON texts of contexts; None stands for a context that is left out."""
    amounts = st.sampled_from([None] * 6 + ["1", "1.0", *NUMBERS, *ODD])
    return st.one_of(
        st.sampled_from([None, "null", "{}"]),
        st.builds(_with_amount, amounts, st.sampled_from(FACTS)),
    )


def _with_amount(amount: str | None, facts: dict[str, object]) -> str:
    members = [f"{json.dumps(name)}:{_spelled(value, 0)}" for name, value in facts.items()]
    if amount is not None:
        members.insert(0, f'"amount":{amount}')
    return _object(members)


def _object(members: list[str]) -> str:
    return "{" + ",".join(members) + "}"


@st.composite
def worded_again(draw: st.DrawFn, context: str | None) -> str | None:
    """Return a text that means the same context: members in another order, numbers with other digits."""
    facts = read(context or "null") or {}
    assert isinstance(facts, dict)
    if not facts:
        return draw(st.sampled_from([None, "null", "{}"]))
    names = draw(st.permutations(sorted(facts)))
    how = draw(st.integers(0, 4))
    gap = draw(st.sampled_from(["", " ", "\n\t"]))
    members = [
        f"{json.dumps(name, ensure_ascii=how % 2 == 0)}:{gap}{_spelled(facts[name], how)}" for name in names
    ]
    return _object(members)


def _spelled(value: object, how: int) -> str:
    match value:
        case Decimal():
            return _number(value, how)
        case dict():
            return _object([f"{json.dumps(name)}:{_spelled(one, how)}" for name, one in value.items()])
        case list():
            return f"[{','.join(_spelled(one, how) for one in value)}]"
    return json.dumps(value, ensure_ascii=how % 2 == 0)


def _number(number: Decimal, how: int) -> str:
    plain = ("-" if number.is_signed() else "") + digits(number)
    match how:
        case 1:
            return plain + ("00" if "." in plain else ".0")
        case 2:
            return f"{plain}e0"
        case 3:
            return f"{plain}E+00"
    return plain
