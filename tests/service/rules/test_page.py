"""The conditions that docs/guides/rules.md shows are valid, and match the calls that it describes."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from support.readme import ROOT

from toolgate_service.rules.expressions import InvalidExpression, Variables, compile_expression

PAGE = (ROOT / "docs/guides/rules.md").read_text()
TABLE = PAGE.partition("| condition | matches |\n| --- | --- |\n")[2].partition("\n\n")[0]
CONDITIONS = [row.replace("\\|", "|") for row in re.findall(r"^\| `(.*?)` \| ", TABLE, re.MULTILINE)]
SUNDAY = datetime(2026, 3, 29, 12, tzinfo=UTC)
MONDAY = datetime(2026, 3, 30, 12, tzinfo=UTC)

#: arguments and time of a call that each condition of the table matches, and of one that it does not match
CALLS: list[tuple[tuple[dict[str, Any], datetime], tuple[dict[str, Any], datetime]]] = [
    (({"amount": 501}, MONDAY), ({"amount": 500}, MONDAY)),
    (({"country": "AT"}, MONDAY), ({"country": "FR"}, MONDAY)),
    (({"approved_by": "Ada"}, MONDAY), ({}, MONDAY)),
    (({"to": "ann@rival.test"}, MONDAY), ({"to": "ann@example.com"}, MONDAY)),
    (({"recipients": ["a@b.c", "ann@rival.test"]}, MONDAY), ({"recipients": ["a@b.c"]}, MONDAY)),
    (({"query": "DROP TABLE users"}, MONDAY), ({"query": "SELECT 1"}, MONDAY)),
    (({}, SUNDAY), ({}, MONDAY)),
]


def evaluate(text: str, args: dict[str, Any], now: datetime) -> bool | None:
    return compile_expression(text).evaluate(Variables(args, "stripe.refund", "agent-1", "bot", "", now))


@pytest.mark.parametrize(("text", "calls"), list(zip(CONDITIONS, CALLS, strict=True)), ids=CONDITIONS)
def test_condition_of_the_page_matches_the_calls_that_it_describes(text: str, calls: Any) -> None:
    matching, other = calls
    assert (evaluate(text, *matching), evaluate(text, *other)) == (True, False)


def test_amounts_are_rounded_as_the_page_says() -> None:
    number = Decimal("0.1000000000000000000001")
    assert f"`{number}`" in PAGE
    assert evaluate("args.x == 0.1", {"x": number}, MONDAY) is True


def test_condition_that_guards_a_missing_argument_has_a_result() -> None:
    text = "has(args.amount) && args.amount > 500"
    assert f"`{text}`" in PAGE
    assert evaluate(text, {}, MONDAY) is False


@pytest.mark.parametrize(
    "text", ["args.xs.all(x, x in args.ys)", r"args.x.matches('\\p{Greek}')", "args.xs.map(x, x) == []"]
)
def test_expressions_that_the_page_names_as_refused_are_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        compile_expression(text)
