"""JSON read strictly and written exactly (decisions §2)."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.strict_json import (
    InvalidJson,
    TooManyValues,
    deeper_than,
    dumps,
    loads,
    loads_own,
    plain_number,
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.decimals(allow_nan=False, allow_infinity=False, places=5)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


@given(values)
def test_what_is_written_is_read_the_same(value: object) -> None:
    """No value changes on its way out and in."""
    assert loads(dumps(value).encode()) == value
    assert loads_own(dumps(value)) == value


@given(values)
def test_what_is_written_is_json_to_others(value: object) -> None:
    """Python's own reader understands every text."""
    assert json.loads(dumps(value), parse_float=Decimal) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("0.1", Decimal("0.1")),
        ("100.10", Decimal("100.10")),
        ("1e2", Decimal(100)),
        ("-0", 0),
        ("1e400", Decimal("1e400")),
        ("1E-400", Decimal("1e-400")),
        ("9" * 400, int("9" * 400)),
        ("-" + "9" * 400, -int("9" * 400)),
        ("-0." + "9" * 399, Decimal("-0." + "9" * 399)),
    ],
)
def test_numbers_are_read_exactly(text: str, value: object) -> None:
    """No binary float comes between; 400 digits and exponents of 400 are read."""
    read = loads(text.encode())
    assert read == value
    assert not isinstance(read, float)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9" * 401, "more than 400 digits"),
        ("-" + "9" * 401, "more than 400 digits"),
        ("0." + "9" * 400, "more than 400 digits"),
        ("1e401", "exponent of a number is not between -400 and 400"),
        ("1e-401", "exponent of a number is not between -400 and 400"),
        ("1e" + "9" * 5000, "exponent of a number is not between -400 and 400"),
        ("9" * 5000, "more than 400 digits"),
        ("NaN", "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' appears more than once"),
        ('["\\u0000"]', "NUL"),
        ('["\\ud800"]', "lone surrogate"),
        ('{"\\udfff": 1}', "lone surrogate"),
        ("[" * 4_000, "nested too deeply"),
        ("[" * 100_000, "more than 5000 JSON values"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
    ],
)
def test_what_is_refused_is_told(text: str, why: str) -> None:
    """Every refusal says what was wrong."""
    with pytest.raises(InvalidJson, match=why):
        loads(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    """JSON is UTF-8."""
    with pytest.raises(InvalidJson, match="not UTF-8"):
        loads(b'"\xff"')


def test_the_refusal_of_a_long_name_is_short() -> None:
    """A message repeats no page of text."""
    name = "n" * 100_000
    with pytest.raises(InvalidJson) as refusal:
        loads(f'{{"{name}": 1, "{name}": 2}}'.encode())
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-0.000", "0"),
        ("0E+5", "0"),
        ("0E-5", "0"),
        ("-0E+5", "0"),
        ("1.50", "1.5"),
        ("100", "100"),
        ("1E+2", "100"),
        ("1.0E+2", "100"),
        ("-12.3400E-3", "-0.01234"),
        ("1E-7", "0.0000001"),
    ],
)
def test_numbers_have_one_spelling(number: str, text: str) -> None:
    """No exponent, no superfluous zero, no minus zero (decisions §4)."""
    assert plain_number(Decimal(number)) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**60), max_value=10**60))
def test_a_spelling_keeps_the_value(number: Decimal) -> None:
    """Whatever the digits, the written number equals the given one and is not spelt in two ways."""
    text = plain_number(number)
    assert Decimal(text) == number
    assert plain_number(Decimal(text)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e16, "10000000000000000"),
        (True, "true"),
        ('é"\\\n\u0001\u2028', '"é\\"\\\\\\n\\u0001\u2028"'),
        ((1, [2]), "[1,[2]]"),
        ({"b": 1, "a": {}}, '{"b":1,"a":{}}'),
        (datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))), '"2026-01-31T10:00:00.000000Z"'),
        (datetime(999, 1, 1, tzinfo=UTC), '"0999-01-01T00:00:00.000000Z"'),
    ],
)
def test_values_are_written_compactly(value: object, text: str) -> None:
    """No spaces, no needless escapes, moments as the API shows them."""
    assert dumps(value) == text


def test_what_has_no_json_form_is_refused() -> None:
    """A programming error is not silently written as text."""
    with pytest.raises(TypeError, match="'set'"):
        dumps({"a": {1}})


@pytest.mark.parametrize(
    ("value", "levels"),
    [(1, 0), ("x", 0), ({}, 1), ([], 1), ({"a": 1}, 1), ([[]], 2), ({"a": [1], "b": {"c": [{}]}}, 4)],
)
def test_levels_are_counted(value: object, levels: int) -> None:
    """A scalar has no level, `{}` has one; siblings do not add up."""
    assert deeper_than(levels, value) is False  # type: ignore[arg-type]  # a parametrised literal
    assert levels == 0 or deeper_than(levels - 1, value) is True  # type: ignore[arg-type]  # likewise


def test_counting_levels_has_no_limit_of_its_own() -> None:
    """What the decoder reads, the count survives."""
    value = loads(b"[" * 900 + b"]" * 900)
    assert deeper_than(899, value) is True
    assert deeper_than(900, value) is False


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[" + "1," * 20 + "1]", 22),
        ("[[]" + ",{}" * 20 + "]", 22),
        ('["a,b,[{\\"", "\\\\", {"c,d": "]"}]', 5),
        ('{"a": [1, 2, {"b": null}], "c": {}}', 7),
        ("[" * 9 + "]" * 9, 9),
        (" [ ] ", 1),
        ('["",""]', 3),
        ("17", 1),
    ],
)
def test_values_are_counted_before_they_are_read(text: str, count: int) -> None:
    """Containers count, names and what stands inside of strings do not."""
    padded = text.encode() + b" " * 2 * count
    assert loads(padded, max_nodes=count) == loads(text.encode())
    with pytest.raises(TooManyValues, match=f"more than {count - 1} JSON values"):
        loads(padded, max_nodes=count - 1)


def test_numbers_grow_by_little() -> None:
    """A few hundred bytes may not become megabytes when they are written without exponents."""
    assert loads(b"[" + b",".join([b"1e400"] * 150) + b"]")
    with pytest.raises(InvalidJson, match="would be more than 65536 digits longer"):
        loads(b"[" + b",".join([b"1e400"] * 170) + b"]")
    with pytest.raises(InvalidJson, match="would be more than"):
        loads(b"[" + b",".join([b"1E-400"] * 170) + b"]")
    assert loads(b"[" + b",".join([b"1.5e0"] * 4000) + b"]")
