"""Frozen copies of arguments, and the errors for what cannot be frozen."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import re
import threading
import time
import types
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import ConfigurationError
from toolgate._capture.context import Rules, freeze_call
from toolgate._capture.serializer import (
    Extended,
    Freezer,
    Secret,
    is_immutable,
    plain,
    same,
    same_arguments,
)


def frozen(value: object) -> Any:
    return Freezer().arguments({"value": value})["value"]


class Session:
    pass


@dataclasses.dataclass
class Order:
    amount: int
    session: Any = None


class Model(pydantic.BaseModel):
    amount: int = 1
    left_out: int = pydantic.Field(default=2, exclude=True)
    _private: int = pydantic.PrivateAttr(3)


class Tagged(str):
    __slots__ = ("tag",)


class Colour(enum.Enum):
    RED = "red"


class Tier(enum.Enum):
    GOLD = "gold"

    def __init__(self, _: str) -> None:
        self.limit = 5


UNSUPPORTED = {
    "object": (Session(), "is of type 'test_serializer.Session', which cannot be written as JSON"),
    "in a list": ([Session()], "contains a value of type 'test_serializer.Session'"),
    "in a field": (Order(1, Session()), "contains a value of type 'test_serializer.Session'"),
    "lock": (threading.Lock(), "is of type '_thread.lock'"),
    "function": (len, "is of type 'builtins.builtin_function_or_method'"),
    "class": (Session, "is of type 'builtins.type'"),
    "module": (re, "is of type 'builtins.module'"),
    "generator": ((n for n in "ab"), "is of type 'builtins.generator'"),
    "range": (range(3), "is of type 'builtins.range'"),
    "fraction": (fractions.Fraction(1, 3), "is of type 'fractions.Fraction'"),
    "queue": (collections.deque([1]), "is of type 'collections.deque'"),
    "mapping": (types.MappingProxyType({"a": 1}), "is of type 'builtins.mappingproxy'"),
    "key": ({(1, 2): 3}, "has a key of type 'builtins.tuple'"),
    "keys written alike": ({1: "a", "1": "b"}, "has two keys that are equal in JSON"),
    "two million values": ([0] * 2_000_000, "makes the call contain more than 1,000,000 values"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_argument_is_refused_with_its_name_type_and_cure(name: str) -> None:
    value, problem = UNSUPPORTED[name]
    with pytest.raises(ConfigurationError) as refused:
        freeze_call({"order": value}, Rules())
    assert f"argument 'order' {problem}" in str(refused.value).replace(f"{__name__}.", "test_serializer.")
    assert "add the argument's name to ignore=" in str(refused.value)
    assert "a context= function" in str(refused.value)


def test_ignored_argument_is_not_looked_at() -> None:
    call = freeze_call({"session": Session(), "n": 1}, Rules(ignore={"session"}))
    assert call.arguments == {"n": 1}


def test_nesting_and_loops_are_refused() -> None:
    deep: Any = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(ConfigurationError, match="nested more than 100 levels deep"):
        frozen(deep)
    loop: list[Any] = []
    loop.append({"a": loop})
    with pytest.raises(ConfigurationError, match="contains itself"):
        frozen(loop)
    shared: list[int] = [1]
    assert frozen([shared, shared]) == [[1], [1]]


def test_limits_hold_for_all_arguments_together() -> None:
    half = [0] * 600_000
    with pytest.raises(ConfigurationError, match="'b' makes the call contain more than 1,000,000 values"):
        Freezer().arguments({"a": half, "b": half})
    text = "x" * 60_000_000
    with pytest.raises(
        ConfigurationError, match="'b' makes the call contain more than 100,000,000 characters"
    ):
        Freezer().arguments({"a": text, "b": text})


def test_large_values_are_quick() -> None:
    began = time.process_time()
    frozen(list(range(900_000)))
    assert time.process_time() - began < 2


def test_copy_does_not_change_with_the_argument() -> None:
    order: dict[str, Any] = {
        "lines": [{"amount": 5}],
        "tags": {"a"},
        "data": bytearray(b"x"),
        "row": Order(1),
    }
    copy = frozen(order)
    before = plain(copy)
    order["lines"][0]["amount"] = 6
    order["tags"].add("b")
    order["data"].extend(b"y")
    order["row"].amount = 6
    assert plain(copy) == before


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Model(), {"amount": 1, "left_out": 2, "_private": 3}),
        (Order(1), {"amount": 1, "session": None}),
        (pydantic.SecretStr("a"), Secret("a")),
        (pydantic.SecretBytes(b"a"), Secret(b"a")),
        (Tier.GOLD, Extended(f"{__name__}.Tier", "gold", {"limit": 5})),
        (Colour.RED, "red"),
        (Tagged("a"), "a"),
        ([{2, 1}, frozenset("ba")], [[1, 2], ["a", "b"]]),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (float("nan"), "NaN"),
        (
            16**400,
            Extended("builtins.int", "a number of more than 400 digits", {"digits": "0x1" + "0" * 400}),
        ),
        (
            decimal.Decimal("1e401"),
            Extended("decimal.Decimal", "a number of more than 400 digits", {"digits": "1E+401"}),
        ),
        (decimal.Decimal("-Infinity"), "-Infinity"),
        (PurePosixPath("/a/b"), "/a/b"),
    ],
)
def test_forms(value: object, expected: object) -> None:
    assert frozen(value) == expected


def test_set_slot_is_part_of_the_value() -> None:
    tagged = Tagged("a")
    object.__setattr__(tagged, "tag", 1)
    assert frozen(tagged) == Extended(f"{__name__}.Tagged", "a", {"tag": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        ("1", 1),
        ([], {}),
        (b"a", "a"),
    ],
)
def test_values_that_python_takes_for_equal_are_not_the_same(one: Any, other: Any) -> None:
    for wrapped in (lambda value: value, lambda value: [value], lambda value: {"a": value}):
        assert same(wrapped(frozen(one)), wrapped(frozen(one)))
        assert not same(wrapped(frozen(one)), wrapped(frozen(other)))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$a", "$$a", "$bytes"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values, json_values)
def test_plain_form_is_the_same_for_the_same_values_alone(one: Any, other: Any) -> None:
    """The form of which digests are made keeps values apart, also those that imitate it."""
    first, second = frozen(one), frozen(other)
    assert (repr(plain(first)) == repr(plain(second))) == (repr(first) == repr(second))
    assert same(first, first)


def test_frameworks_compare_other_objects_by_identity() -> None:
    session = Session()
    assert same_arguments({"a": [1], "session": session}, {"a": [1], "session": session})
    assert not same_arguments({"a": [1], "session": session}, {"a": [1], "session": Session()})
    assert not same_arguments({"a": 1}, {"a": True})


IMMUTABLE: Mapping[str, object] = {
    "text": "a",
    "tuple": (1, ("a",)),
    "enum": Colour.RED,
    "utc": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "zone": dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    "parsed": pydantic.TypeAdapter(dt.datetime).validate_python("2026-01-01T00:00:00+02:00"),
    "uuid": UUID(int=7),
}
MUTABLE: Mapping[str, object] = {
    "list": [],
    "list in a tuple": ([],),
    "enum with an attribute": Tier.GOLD,
    "dataclass": Order(1),
    "subclass": Tagged("a"),
}


@pytest.mark.parametrize("name", [*IMMUTABLE, *MUTABLE])
def test_immutable_values_are_known(name: str) -> None:
    assert is_immutable({**IMMUTABLE, **MUTABLE}[name]) == (name in IMMUTABLE)
