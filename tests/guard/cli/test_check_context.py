"""Contexts as they are written on a command line."""

import io
import json
from decimal import Decimal
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from toolgate._capture.jsontext import dumps, loads
from toolgate_cli.check import parse_context, parse_field

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: "=" not in name)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def is_json(text: str) -> bool:
    try:
        loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@given(NAMES, JSON)
def test_json_means_what_it_says(name: str, value: Any) -> None:
    """Every JSON value is read as itself, with its digits, whatever stands in it."""
    assert parse_field(f"{name}={dumps(value)}") == (name, value)


@given(NAMES, st.text())
def test_every_other_value_is_the_text_as_it_stands(name: str, text: str) -> None:
    """Nothing is trimmed, split again or guessed."""
    if not is_json(text):
        assert parse_field(f"{name}={text}") == (name, text)


@given(st.lists(st.text(max_size=30), max_size=5), st.none() | st.text(max_size=60) | JSON.map(dumps))
def test_whatever_is_written_is_read_or_refused(fields: list[str], as_json: str | None) -> None:
    """There is a context of just the names that were written, or the end of the command; never a traceback."""
    try:
        context = parse_context(fields, as_json)
    except typer.Exit:
        return
    if context is None:
        assert (fields, as_json) == ([], None)
        return
    given = json.loads(as_json) if as_json else {}
    assert list(context) == [*given, *(field.partition("=")[0] for field in fields)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40", 40),
        ("99.50", Decimal("99.50")),
        ("true", True),
        ("null", None),
        ('"1002"', "1002"),
        ("ada@example.test", "ada@example.test"),
        ("007", "007"),
        ("NaN", "NaN"),
        ("", ""),
        ("a=b", "a=b"),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("9" * 5000, "9" * 5000),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_examples(text: str, value: Any) -> None:
    """Numbers are numbers, quoted digits are text, and what only looks like JSON is text."""
    assert parse_field(f"x={text}") == ("x", value)


@pytest.mark.parametrize(
    ("fields", "as_json", "word"),
    [
        (["amount"], None, "NAME=VALUE"),
        (["=40"], None, "NAME=VALUE"),
        (["a=1", "a=2"], None, "'a' is given twice"),
        (["a=1"], '{"a": 1}', "'a' is given twice"),
        ([], "[1]", "not a JSON object"),
        ([], "{", "not valid JSON"),
        ([], '{"a": 1, "a": 2}', "not valid JSON"),
        ([], '{"a": NaN}', "not valid JSON"),
        ([], "[" * 100_000, "more than"),
    ],
    ids=str,
)
def test_what_is_no_context_is_refused(
    fields: list[str], as_json: str | None, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line that says what to write."""
    with pytest.raises(typer.Exit):
        parse_context(fields, as_json)
    (line,) = capsys.readouterr().err.splitlines()
    assert word in line


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An object comes from it; what is too long or no text is refused."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"amount": 1.10}'))
    assert parse_context(["to=ada"], "-") == {"amount": Decimal("1.10"), "to": "ada"}
    for content in (b"\xff", b'{"a":"' + b"x" * 70_000 + b'"}'):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        with pytest.raises(typer.Exit):
            parse_context([], "-")
    assert len(capsys.readouterr().err.splitlines()) == 2
