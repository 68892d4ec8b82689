"""A person's edit as a value of the argument's own type: exactly, or refused."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NewType, Optional, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate._capture.arguments import UNKNOWN, UneditableError, edited
from toolgate._capture.context import Rules, capture
from toolgate._capture.jsontext import exact
from toolgate._capture.serializer import Fingerprinter

HIDER = Fingerprinter("ak_test")
BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = dt.datetime.fromisoformat("2026-01-02T00:00:00")
PLUS_ONE = dt.timezone(dt.timedelta(hours=1))


def shown(value: object) -> Any:
    return capture({"x": value}, Rules(), HIDER).context["x"]


def edit(old: object, approved: Any, hint: object = UNKNOWN) -> Any:
    return edited(old, shown(old), approved, hint)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Kind(StrEnum):
    A = "a"
    B = "b"


class Text(str):
    __slots__ = ()


@dataclass
class Order:
    n: int


@dataclass(frozen=True, slots=True)
class Refund:
    charge: str
    amount: Decimal
    tags: frozenset[str] = frozenset()
    password: str = "hunter22"

    def __post_init__(self) -> None:
        if self.amount > 100:
            raise ValueError(self.amount)


@dataclass
class Loose:
    n: int
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.twice = 2 * self.n


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    to: str = pydantic.Field(alias="recipient")
    amount: Decimal = pydantic.Field(default=Decimal(1), le=100)
    when: dt.date | None = None
    password: pydantic.SecretStr = pydantic.SecretStr("hunter22")
    inner: Order | None = None
    _private: int = pydantic.PrivateAttr(7)


class Extra(pydantic.BaseModel, extra="allow"):
    n: int = 1


class Names(pydantic.RootModel[list[str]]): ...


def model(**more: Any) -> Model:
    made = Model(recipient="a", **more)
    made._private = 8
    return made


HIDDEN = {"$digest": HIDER.text("hunter22")["$digest"], "bytes": 8}
UserId = NewType("UserId", str)
BOTH = [
    # what it was, what a person made of it, what it becomes
    ("a", "b", "b"),
    (1, 2, 2),
    (1, Decimal("2.0"), 2),
    (1.5, Decimal("2.25"), 2.25),
    (1.5, 2, 2.0),
    (1.0, Decimal("0.1"), 0.1),
    (Decimal("1.50"), Decimal("2.25"), Decimal("2.25")),
    (Decimal("1.50"), 2, Decimal(2)),
    (True, False, False),
    (["a", "b"], ["a"], ["a"]),
    (["a"], ["a", "b"], ["a", "b"]),
    ([Decimal(1)], [1, 2], [Decimal(1), Decimal(2)]),
    ([1.5], [1, 2], [1.0, 2.0]),
    (("a", "b"), ["b"], ("b",)),
    ([], ["a", {"n": 1}], ["a", {"n": 1}]),
    ({"a": 1, "b": "x"}, {"a": 2, "b": "x"}, {"a": 2, "b": "x"}),
    ({"a": 1}, {}, {}),
    ({}, {"a": [True, None, 1, Decimal("1.5")]}, {"a": [True, None, 1, 1.5]}),
    ({"a": {"b": [Decimal(1), "x"]}}, {"a": {"b": [2, "y"]}}, {"a": {"b": [Decimal(2), "y"]}}),
    (Colour.RED, "blue", Colour.BLUE),
    (Level.LOW, 2, Level.HIGH),
    (Kind.A, "b", Kind.B),
    ([Kind.A], ["b", "a"], [Kind.B, Kind.A]),
    ({1, 2, 3}, [1, 4], {1, 4}),
    (frozenset({"a"}), ["a", "b"], frozenset({"a", "b"})),
    ({Decimal("1.50"), Decimal(2)}, [Decimal("1.50")], {Decimal("1.50")}),
    ({Kind.A}, ["b"], {Kind.B}),
    ({(1, "a")}, [], set()),
    (UUID(int=7), str(UUID(int=8)), UUID(int=8)),
    ([UUID(int=7)], [str(UUID(int=7)), str(UUID(int=8))], [UUID(int=7), UUID(int=8)]),
    (PurePosixPath("/a"), "/a/b", PurePosixPath("/a/b")),
    (Order(1), {"n": 2}, Order(2)),
    ({"o": [Order(1), Order(2)]}, {"o": [{"n": 1}, {"n": 3}]}, {"o": [Order(1), Order(3)]}),
    (Extra(n=1, more=[1]), {"n": 1, "more": [2]}, Extra(n=1, more=[2])),
    (Names(["a"]), ["a", "b"], Names(["a", "b"])),
    (dt.date(2026, 1, 2), "2026-03-04", dt.date(2026, 3, 4)),
    (dt.time(1, 2), "03:04:05", dt.time(3, 4, 5)),
    (dt.timedelta(1), "2 days, 0:00:00", dt.timedelta(2)),
    (NAIVE, "2026-03-04T05:06:07", dt.datetime.fromisoformat("2026-03-04T05:06:07")),
    (
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "2026-03-04T05:06:07+00:00",
        dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC),
    ),
    (
        dt.datetime(2026, 1, 2, tzinfo=BERLIN),
        "2026-07-04T05:06:07+02:00",
        dt.datetime(2026, 7, 4, 5, 6, 7, tzinfo=BERLIN),
    ),
    (
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "2026-03-04T05:06:07+01:00",
        dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=PLUS_ONE),
    ),
]


def named(each: object) -> str:
    """A case's name, the same in every process: the order in which a set shows its texts is not."""
    return repr(sorted(each, key=repr) if isinstance(each, set | frozenset) else each)[:60]


@pytest.mark.parametrize(("old", "approved", "new"), BOTH, ids=named)
def test_own_type(old: Any, approved: Any, new: Any) -> None:
    """Without an annotation a value keeps the type it has, all the way down."""
    made = edit(old, approved)
    assert (made, type(made)) == (new, type(new))
    assert repr(made) == repr(new)
    assert exact(shown(made)) == exact(approved)


HINTED = [
    (None, {"a": 1}, Any, {"a": 1}),
    ([1, "x", 2], ["x", 2], UNKNOWN, ["x", 2]),
    (None, "a", Optional[str], "a"),  # noqa: UP045 - both spellings occur
    (None, 2, int | None, 2),
    (None, 2, Decimal | None, Decimal(2)),
    (None, ["a"], list[str] | None, ["a"]),
    (None, {"a": Decimal("1.5")}, dict[str, Decimal] | None, {"a": Decimal("1.5")}),
    ("a", None, str | None, None),
    (Decimal(1), None, Optional[Decimal], None),  # noqa: UP045 - likewise
    (40, Decimal("25.5"), float, 25.5),
    (40, 30, float, 30),
    ("a", 5, Union[int, str], 5),  # noqa: UP007 - likewise
    ([], [Decimal("1.5")], list[Decimal], [Decimal("1.5")]),
    ([], [Decimal("1.5")], Sequence[Decimal], [Decimal("1.5")]),
    ({}, {"a": 1}, Mapping[str, float], {"a": 1.0}),
    ((1, "a"), [2, "b"], tuple[int, str], (2, "b")),
    ((), [1, 2], tuple[int, ...], (1, 2)),
    ("a", "b", Literal["a", "b"], "b"),
    (None, "b", Literal["a", "b"] | None, "b"),
    (None, "blue", Colour | None, Colour.BLUE),
    ("u1", "u2", UserId, "u2"),
    (None, "u2", UserId | None, "u2"),
    (None, 5, Annotated[int, "cents"] | None, 5),
    (None, "2026-03-04", dt.date | None, dt.date(2026, 3, 4)),
    (None, str(UUID(int=8)), UUID | None, UUID(int=8)),
    (None, "/a/b", Path | None, Path("/a/b")),
    (set(), [Decimal("1.5")], set[Decimal], {Decimal("1.5")}),
]


@pytest.mark.parametrize(("old", "approved", "hint", "new"), HINTED, ids=named)
def test_annotated(old: Any, approved: Any, hint: Any, new: Any) -> None:
    """An annotation says what else a value may become, and what stands where nothing stood."""
    made = edit(old, approved, hint)
    assert (made, type(made)) == (new, type(new))
    assert exact(shown(made)) == exact(approved)


REFUSED = [
    (1, Decimal("2.5"), UNKNOWN),
    (1, "2", UNKNOWN),
    ("1", 2, UNKNOWN),
    (True, 1, UNKNOWN),
    (1, True, UNKNOWN),
    (None, "a", UNKNOWN),
    (Decimal(1), "a", Any),
    ([Decimal(1), "x"], ["y", "x"], UNKNOWN),
    ("a", None, UNKNOWN),
    ("a", None, str),
    (0.5, Decimal("0.10000000000000000001"), UNKNOWN),
    (0.5, 10**400, UNKNOWN),
    ("a", ["a"], UNKNOWN),
    (["a"], {"a": 1}, UNKNOWN),
    ([Decimal(1)], [1, "x"], UNKNOWN),
    ([1], [1, Decimal("1.5")], list[int]),
    ((1, "a"), [2], tuple[int, str]),
    (Text("a"), "b", UNKNOWN),
    (Order(1), {"n": "2"}, UNKNOWN),
    (Order(1), {}, UNKNOWN),
    (Order(1), {"n": 1, "m": 2}, UNKNOWN),
    (Refund("a", Decimal(1)), {"charge": "a", "amount": 500, "tags": [], "password": HIDDEN}, UNKNOWN),
    (Loose(1), {"n": 1, "twice": 4}, UNKNOWN),
    (Extra(n=1), {"n": 1, "more": 2}, UNKNOWN),
    (Names(["a"]), [1], UNKNOWN),
    ({1, 2}, [2, 1], UNKNOWN),
    ({1, 2}, [1, 1], UNKNOWN),
    ({1, 2}, [1, "2"], UNKNOWN),
    ({"Bearer abcdefgh12345", "a"}, ["a"], UNKNOWN),
    ({UUID(int=7), str(UUID(int=7))}, [str(UUID(int=7))], UNKNOWN),
    (UUID(int=7), "7", UNKNOWN),
    (UUID(int=7), "{00000000-0000-0000-0000-000000000008}", UNKNOWN),
    (PurePosixPath("/a"), "/a//b", UNKNOWN),
    ({1: "a"}, {"1": "b"}, UNKNOWN),
    (Colour.RED, "green", UNKNOWN),
    (Level.LOW, True, UNKNOWN),
    (None, "green", Colour | None),
    (b"a", "a", UNKNOWN),
    (NAIVE, "tomorrow", UNKNOWN),
    (NAIVE, "20260304T050607", UNKNOWN),
    (NAIVE, "2026-03-04T05:06:07+00:00", UNKNOWN),
    (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-03-04T05:06:07", UNKNOWN),
    (dt.datetime(2026, 1, 2, tzinfo=BERLIN), "2026-07-04T05:06:07+01:00", UNKNOWN),
    (dt.timedelta(1), "2 days", UNKNOWN),
    ({"password": "hunter22"}, {"password": "other"}, UNKNOWN),
    ({"password": "hunter22", "a": 1}, {"a": 1}, UNKNOWN),
    ([{"password": "hunter22"}], [], UNKNOWN),
    ("a", {"$digest": "hmac-sha256:0", "bytes": 1}, UNKNOWN),
    (["a"], ["a", {"$digest": "hmac-sha256:0", "bytes": 1}], UNKNOWN),
    ({"a": 1}, {"a": 1, "$b": 2}, UNKNOWN),
    ({"a": 1}, {"a": 1, "b": {"$b": 2}}, UNKNOWN),
    ("x" * 9000, "short", UNKNOWN),
]


@pytest.mark.parametrize(("old", "approved", "hint"), REFUSED, ids=named)
def test_refused(old: Any, approved: Any, hint: Any) -> None:
    """What has no exact counterpart, or is not shown, is not guessed; the reason tells no value."""
    with pytest.raises(UneditableError) as refused:
        edit(old, approved, hint)
    assert "hunter22" not in str(refused.value)
    assert "other" not in str(refused.value).split()


def test_hidden_neighbours_stay() -> None:
    """Beside what was edited, hidden values stay the very same objects."""
    secret, client = ["hunter22"], b"certificate"
    old = {"to": "a", "password": secret, "client": client, "list": [client, 1]}
    asked = shown(old)
    made = edited(old, asked, {**asked, "to": "b"}, UNKNOWN)
    assert made["to"] == "b"
    assert made["password"] is secret
    assert made["client"] is client
    assert old["to"] == "a"


def test_a_dataclass_is_made_anew() -> None:
    """The class makes a new one of the edited fields: what is hidden stays, its own rules hold, the old one stays."""
    old = Refund("ch_1", Decimal(40), frozenset({"a"}))
    asked = shown(old)
    made = edited(old, asked, {**asked, "amount": 25, "tags": ["a", "b"]}, UNKNOWN)
    assert made == Refund("ch_1", Decimal(25), frozenset({"a", "b"}))
    assert made.password is old.password
    assert old.amount == 40
    assert edited(Loose(1), {"n": 1, "twice": 2}, {"n": 2, "twice": 2}, UNKNOWN) == Loose(2)


def test_a_model_is_validated_anew() -> None:
    """Aliases, frozen models, secrets and private attributes survive; what was never set stays unset."""
    old = model(inner=Order(1))
    asked = shown(old)
    made = edited(
        old, asked, {**asked, "to": "b", "amount": 25, "when": "2026-03-04", "inner": {"n": 2}}, UNKNOWN
    )
    expected = Model(recipient="b", amount=Decimal(25), when=dt.date(2026, 3, 4), inner=Order(2))
    expected._private = 8
    assert made == expected
    assert made.model_fields_set == {"to", "amount", "when", "inner"}
    assert made._private == old._private == 8
    assert made.password.get_secret_value() == "hunter22"
    assert old.to == "a"
    assert exact(shown(made)) == exact(
        {**asked, "to": "b", "amount": 25, "when": "2026-03-04", "inner": {"n": 2}}
    )
    untouched = edited(model(), shown(model()), {**shown(model()), "to": "b"}, UNKNOWN)
    assert untouched.model_fields_set == {"to"}
    for wrong in ({"amount": 101}, {"to": 5}, {"password": "x"}, {"_private": 9}):
        with pytest.raises(UneditableError):
            edited(old, asked, {**asked, **wrong}, UNKNOWN)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    | st.sampled_from([*Colour, *Level, dt.date(2026, 1, 2), UUID(int=7), PurePosixPath("a")])
    | st.frozensets(st.integers(0, 12) | st.text("abc", max_size=2), max_size=3)
    | st.builds(
        Refund, st.sampled_from("ab"), st.decimals(0, 99, places=1), st.frozensets(st.sampled_from("ab"))
    ),
    lambda inner: (
        st.builds(Extra, n=st.integers(0, 3), more=inner)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(PLAIN, PLAIN)
def test_exactly_or_not_at_all(old: Any, other: Any) -> None:
    """Whatever the edit: the new value has exactly the approved form, or there is none; the old one is untouched."""
    before = copy.deepcopy(old)
    approved = shown(other)
    try:
        made = edit(old, approved)
    except UneditableError:
        pass
    else:
        assert exact(shown(made)) == exact(approved)
    assert (old, exact(shown(old))) == (before, exact(shown(before)))


@given(PLAIN)
def test_unchanged_is_the_very_same(old: Any) -> None:
    """What nobody edited is the caller's own object."""
    assert edit(old, shown(old)) is old


def test_what_no_set_can_hold() -> None:
    """A list among a set's members is refused in words of ours."""
    with pytest.raises(UneditableError, match="a set cannot contain"):
        edited({"a", 1}, ["a", 1], ["a", [1]])
