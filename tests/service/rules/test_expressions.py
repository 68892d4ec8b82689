"""Variables and results of the conditions of rules, and texts that are refused."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core import strict_json
from toolgate_service.rules.expressions import InvalidExpression, Variables, compile_expression, is_available

NOW = datetime(2026, 3, 29, 1, 30, 15, 250_000, tzinfo=UTC)


def _variables(**args: Any) -> Variables:
    return Variables(args, "stripe.refund", "agent-1", "Support", "run-1", NOW)


def _evaluate(text: str, /, **args: Any) -> bool | None:
    return compile_expression(text).evaluate(_variables(**args))


def test_library_is_installed_with_the_gateway() -> None:
    assert is_available()


def test_gateway_does_not_import_the_library_before_it_needs_it() -> None:
    code = "import sys, toolgate_service.rules.expressions; print('cel_expr_python' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_library_is_reported() -> None:
    code = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from toolgate_service.rules.expressions import *\n"
        "assert not is_available()\n"
        "try: compile_expression('true')\n"
        "except InvalidExpression as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'toolgate[policy]'" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "args.amount <= 100.0",
        "args['amount'] == 99.5",
        "args.customer.id.startsWith('c')",
        "args.customer.id.contains('us') && args.customer.id.endsWith('1')",
        "args.customer.id.matches('^c[a-z]+-[0-9]$')",
        "args.customer.id.size() == 6",
        "args.customer.id in ['cus-1', 'cus-2']",
        "'cus-1' in args.ids",
        "args.ids.all(id, id.startsWith('cus-'))",
        "args.ids.exists(id, id == 'cus-2')",
        "args.ids.exists_one(id, id == 'cus-2')",
        "args.ids.all(id, id != agent.id)",
        "args.ids.all(id, ['cus-1', 'cus-2'].exists(known, id == known))",
        "args.items.all(item, item.tags.all(tag, tag.size() == 1))",
        "args.items.exists(item, item.currency == args.currency)",
        "args.amount <= {'EUR': 100.0, 'USD': 120.0}[args.currency]",
        "has(args.amount) && !has(args.missing)",
        "args.nothing == null",
        "args.flag",
        "args.flag ? true : false",
        "action == 'stripe.refund'",
        "action.startsWith('stripe.')",
        "agent.id == 'agent-1' && agent.name == 'Support' && run.id == 'run-1'",
        "now > timestamp('2026-01-01T00:00:00Z')",
        "now - timestamp('2026-03-29T00:00:00Z') < duration('2h')",
        "now.getHours('Europe/Berlin') == 3",
        "now.getHours() == 1 && now.getHours('UTC') == 1 && now.getHours('+05:30') == 7",
        "now.getDayOfWeek('America/New_York') == 6",
        "now.getMilliseconds() == 250",
        "type(args.amount) == double && type(args.count) == int",
        "string(args.count) == '3' && int('3') == args.count && double(args.count) == 3.0",
        "args.currency + '-1' == 'EUR-1'",
        "args.missing == 1 || true",
        "// A comment\nargs.count % 2 == 1",
    ],
)
def test_condition_matches(text: str) -> None:
    assert _evaluate(
        text,
        amount=Decimal("99.50"),
        count=3,
        currency="EUR",
        customer={"id": "cus-1"} if "size" not in text else {"id": "cus-12"},
        ids=["cus-1", "cus-2"],
        items=[{"currency": "EUR", "tags": ["a", "b"]}],
        flag=True,
        nothing=None,
    )


def test_run_is_empty_without_a_run() -> None:
    assert compile_expression("run.id == ''").evaluate(Variables({}, "a.b", "agent-1", "", "", NOW))


@pytest.mark.parametrize(
    "text",
    [
        "args.missing == 1",
        "args.missing.deeper == 1",
        "args.text.field == 1",
        "args.missing",
        "args.text",
        "args.count",
        "args.text <= 1",
        "args.text + 1 == 2",
        "!args.text",
        "args.text && true",
        "args.count / 0 == 1",
        "9223372036854775807 + args.count == 1",
        "args.list[7] == 1",
        "args.list.all(x, x.field == 1)",
        "args.count.all(x, true)",
        "args.missing == 1 || false",
        "timestamp(args.text) < now",
        "int(args.text) == 1",
        "args.count.startsWith('a')",
    ],
)
def test_error_missing_field_and_other_types_have_no_result(text: str) -> None:
    assert _evaluate(text, text="abc", count=1, list=[1]) is None


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2**64, 2**70, Decimal("1e400"), Decimal("-1e309"), Decimal("1e-400")]
)
def test_number_that_cel_cannot_represent_has_no_result(value: int | Decimal) -> None:
    for text in [
        "args.x == args.x",
        "args.x > 5.0",
        "args.x < 5.0",
        "has(args.x)",
        "'x' in args",
        "args.size() == 2",
    ]:
        assert _evaluate(text, x=value, y=1) is None, text
    assert _evaluate("args.y == 1", x=value, y=1) is True
    assert _evaluate("args.y == 1", x=1, y=1, z=[{"deep": value}]) is True
    assert _evaluate("args.z[0].other == 1", z=[{"deep": value, "other": 1}]) is None


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0, 2**53 + 1])
def test_64_bit_integers_are_exact(value: int) -> None:
    assert _evaluate(f"args.x == {value}", x=value) is True
    assert _evaluate(f"args.x == {value + (1 if value <= 0 else -1)}", x=value) is False


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "a\udfff"])
def test_text_that_cel_cannot_represent_has_no_result(value: str) -> None:
    """The library would read only the text before a NUL character."""
    assert _evaluate("args.x == 'a'", x=value) is None
    assert _evaluate("args.x.y == 1", x={value: 1, "y": 1}) is None
    assert _evaluate("args.y == 1", y=1, **{value: 1}) is True
    assert compile_expression("action == 'a'").evaluate(Variables({}, value, "", "", "", NOW)) is None
    assert compile_expression("agent.id == 'a'").evaluate(Variables({}, "", value, "", "", NOW)) is None
    with pytest.raises(InvalidExpression):
        compile_expression(f"args.x == '{value}'")


def test_values_nested_deeper_than_64_levels_have_no_result() -> None:
    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else 1

    assert _evaluate("args.x == args.x", x=nested(64)) is True
    assert _evaluate("args.x == args.x", x=nested(65)) is None
    assert _evaluate("args.y == 1", x=nested(900), y=1) is True


def test_text_in_any_script_is_compared_by_code_points() -> None:
    assert _evaluate("args.x == 'Ünïcode 😀' && args.x.size() == 9", x="Ünïcode 😀") is True
    assert _evaluate("args.x == 'é'", x="e\u0301") is False


def test_double_rounds_a_decimal() -> None:
    """An amount of money is limited outside of expressions, where decimals are exact."""
    assert _evaluate("args.x == 0.1", x=Decimal("0.1000000000000000000001")) is True
    assert _evaluate("args.x + args.y == 0.3", x=Decimal("0.1"), y=Decimal("0.2")) is False


NUMBERS: list[int | str] = [
    -1,
    0,
    1,
    3,
    2**53,
    2**63 - 1,
    -(2**63),
    "0.5",
    "1.0",
    "-1.5",
    "9007199254740992.0",
    "1e300",
    "-0.0",
]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


@pytest.mark.parametrize("operator", OPERATORS)
def test_numbers_of_different_types_are_compared_by_value(operator: str) -> None:
    """The comparison with `cel-python` does not cover this, because that engine raises an error."""
    for left, right in product(NUMBERS, repeat=2):
        values = [Decimal(value) if isinstance(value, str) else value for value in (left, right)]
        expected = OPERATORS[operator](*values)
        assert _evaluate(f"args.x {operator} args.y", x=values[0], y=values[1]) is expected, (
            left,
            operator,
            right,
        )


def test_integer_beyond_2_to_the_53_is_rounded_to_be_compared_with_a_double() -> None:
    assert _evaluate("args.x >= args.y", x=Decimal("9007199254740992.0"), y=2**53 + 1) is True
    assert _evaluate("args.x >= args.y", x=2**53, y=2**53 + 1) is False


VALUES = [None, True, False, 0, 1, Decimal("1.5"), "", "1", "true", [], [1], ["1"], {}, {"a": 1}]


def test_values_of_different_types_are_not_equal() -> None:
    for left, right in product(range(len(VALUES)), repeat=2):
        assert _evaluate("args.x == args.y", x=VALUES[left], y=VALUES[right]) is (left == right)
        assert _evaluate("args.x != args.y", x=VALUES[left], y=VALUES[right]) is (left != right)


def test_values_of_different_types_have_no_order() -> None:
    kinds = [None, True, 1, "1", [1], {"a": 1}]
    for left, right in product(kinds, repeat=2):
        is_ordered = type(left) is type(right) and isinstance(left, bool | int | str)
        result = _evaluate("args.x <= args.y", x=left, y=right)
        assert result is (True if is_ordered else None), (left, right)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["x", "y"]), JSON))
def test_no_arguments_raise_an_exception(args: dict[str, strict_json.Json]) -> None:
    for text in [
        "args.x == args.y",
        "args.x <= 1",
        "args.x.all(e, e == 'a')",
        "args.x.matches('a')",
        "args.x.y[0]",
        "size(args) > 1",
    ]:
        assert _evaluate(text, **args) in {True, False, None}


def test_argument_of_an_unknown_type_has_no_result() -> None:
    assert _evaluate("args.x == 1", x=object()) is None


def test_one_conversion_serves_all_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolgate_service.rules import expressions

    conversions = []
    convert = expressions._Converter.convert
    monkeypatch.setattr(
        expressions._Converter, "convert", lambda *given: conversions.append(1) or convert(*given)
    )
    variables = _variables(x=1, y=[1, 2])
    assert compile_expression("action == 'stripe.refund'").evaluate(variables)
    assert not conversions
    for number in range(50):
        compile_expression(f"args.x != {number + 2}").evaluate(variables)
    assert len(conversions) == 4


def test_equal_texts_share_one_compiled_expression() -> None:
    assert compile_expression("args.x == 1") is compile_expression("args.x == 1")
    assert compile_expression("args.x == 1").text == "args.x == 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The expression is empty"),
        (" \n", "The expression is empty"),
        ("args.x ==", r"line 1, column 10"),
        ("true &&\n args.x = 1", r"line 2, column 9"),
        (
            "user.id == 'a'",
            r"Unknown variable or function 'user' \(line 1, column 5\): the variables are args, action, agent, run, now",
        ),
        ("args.x.lower() == 'a'", "Unknown variable or function 'lower'"),
        ("action == 1", r"'==' cannot be used with string, int \(line 1, column 8\)"),
        ("now.getHours() <= 'x'", "cannot be used with int, string"),
        ("agent.role == 'a'", r"agent has no field 'role': it has id and name \(line 1, column 6\)"),
        ("run.name == 'a'", "run has no field 'name': it has id"),
        ("args.count + 1", "The expression results in int, not in a boolean"),
        ("'text'", "The expression results in string, not in a boolean"),
        ("args", "not in a boolean"),
        ("now.getHours('Mars/Olympus') == 1", "Unknown time zone 'Mars/Olympus'"),
        ("now.getHours(args.zone) == 1", "must be a literal string"),
        ("args.x.matches('(')", r"Invalid regular expression '\('"),
        ("args.x.matches(args.y)", "must be a literal string"),
        ("args.xs.filter(x, x > 1).size() == 0", r"use all\(\), exists\(\) or exists_one\(\)"),
        ("args.xs.map(x, x + 1) == [2]", r"use all\(\), exists\(\) or exists_one\(\)"),
        ("args.xs.all(args, args == 1)", "must not be named 'args'"),
        ("google.protobuf.Duration{seconds: 1} == duration('1s')", "Messages"),
        ("{args.x: 1}.size() == 1", "A map key must not depend on args"),
        ("args.x == 99999999999999999999", "Invalid expression"),
        ("args.?x == 1", "Invalid expression"),
        ("cel.bind(x, 1, x == 1)", "Unknown variable or function"),
    ],
)
def test_invalid_expression_is_refused_with_the_place_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        compile_expression(text)
