"""Conditions that cover the arguments of calls: values, ranges, and what cannot be covered."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from toolgate_service.core.strict_json import Json
from toolgate_service.policies.argument_conditions import NotCoverable, cover_arguments
from toolgate_service.rules.expressions import Variables, compile_expression

REDACTED = {"$digest": "hmac-sha256:ff", "bytes": 12}


def matches(condition: str, args: Mapping[str, Json]) -> bool | None:
    variables = Variables(args, "pay", "1", "bot", "", datetime(2026, 1, 1, tzinfo=UTC))
    return compile_expression(condition).evaluate(variables)


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ([5], "args.x == 5"),
        ([5, 5, 3], "args.x in [3, 5]"),
        ([Decimal("12.5"), 3], "args.x in [3.0, 12.5]"),
        ([Decimal("5.0")], "args.x == 5"),
        ([-1], "args.x == -1"),
        (list(range(11)), "args.x >= 0 && args.x <= 10"),
        ([*range(11), Decimal("0.25")], "args.x >= 0.0 && args.x <= 10.0"),
        (["a", 'b"\\\n'], r'args.x in ["a", "b\"\\\n"]'),
        ([True], "args.x == true"),
        ([True, False], "args.x in [true, false]"),
        ([None], "args.x == null"),
        ([REDACTED], 'args.x == {"$digest": "hmac-sha256:ff", "bytes": 12}'),
    ],
)
def test_condition_covers_the_values(values: Sequence[Any], condition: str) -> None:
    made = cover_arguments([{"x": value} for value in values])
    assert made == f"size(args) == 1 && has(args.x) && {condition}"
    assert all(matches(made, {"x": value}) is True for value in values)
    assert matches(made, {"x": "other"}) is not True
    assert matches(made, {"x": -77}) is not True
    assert matches(made, {"x": values[0], "y": 1}) is False
    assert matches(made, {"y": values[0]}) is False


@pytest.mark.parametrize("name", ["a-b", "in", 'q"', "ü", "9"])
def test_argument_that_is_not_an_identifier(name: str) -> None:
    made = cover_arguments([{name: 1, "x": 2}])
    assert matches(made, {name: 1, "x": 2}) is True
    assert matches(made, {name: 2, "x": 2}) is False
    assert matches(made, {"other": 1, "x": 2}) is False


def test_call_without_arguments() -> None:
    assert cover_arguments([{}, {}]) == "size(args) == 0"


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([{"x": 1}, {"x": 1, "y": 1}], "the calls have different argument names"),
        ([{"x": 1}, {"x": "1"}], "argument 'x' has values of the types number and string"),
        ([{"x": True}, {"x": 1}], "argument 'x' has values of the types boolean and number"),
        ([{"x": None}, {"x": 1}], "argument 'x' has values of the types null and number"),
        ([{"x": [1]}], "argument 'x' has lists or objects as values"),
        ([{"x": {"y": 1}}], "argument 'x' has lists or objects as values"),
        ([{"x": {"$digest": "ff", "y": [1]}}], "argument 'x' has lists or objects as values"),
        ([{"x": str(n)} for n in range(11)], "argument 'x' has more than 10 different values"),
        ([{"x": 2**53}], "argument 'x' has numbers with too many digits to compare them exactly"),
        ([{"x": Decimal("0.1234567890123456789")}],
         "argument 'x' has numbers with too many digits to compare them exactly"),
        ([{"x": Decimal("1e-400")}], "argument 'x' has numbers with too many digits to compare them exactly"),
    ],
)  # fmt: skip
def test_arguments_that_no_condition_covers(calls: list[dict[str, Json]], reason: str) -> None:
    with pytest.raises(NotCoverable) as raised:
        cover_arguments(calls)
    assert str(raised.value) == reason
