from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import functools
import io
import json
import subprocess
import sys
import threading
import time
import types
import uuid
from pathlib import PurePosixPath
from typing import Any, cast

import pydantic
import pytest

from toolgate._capture import redaction
from toolgate._capture.context import Captured, Rules, capture
from toolgate._capture.hiding import Hider
from toolgate._capture.jsonsafe import JsonSafe
from toolgate._capture.jsontext import dumps

HIDER = Hider("ak_" + "q" * 37)
HIDDEN = Rules(exclude={"value"})


def text(value: Any, rules: Rules | None = None) -> str:
    return dumps(capture({"value": value}, rules or Rules(), HIDER).context, canonical=True)


class Order:
    def __init__(self, total: Any) -> None:
        self.total = total


class Slotted:
    __slots__ = ("total",)

    def __init__(self, total: Any) -> None:
        self.total = total


class Told(Order):
    def __repr__(self) -> str:
        return "Told(an order at 0x1)"


class Silent(Order):
    def __repr__(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


@dataclasses.dataclass
class Data:
    x: int


def data(more: int) -> Data:
    made = Data(1)
    made.more = more  # type: ignore[attr-defined]  # what is tested
    return made


class Lying(int):
    __slots__ = ()

    def __int__(self) -> int:
        return 1

    __index__ = __int__  # type: ignore[assignment]  # likewise

    def __repr__(self) -> str:
        return "1"

    __str__ = __repr__


class LyingDecimal(decimal.Decimal):
    def __str__(self) -> str:
        return "1"

    def as_tuple(self) -> Any:
        return decimal.Decimal(1).as_tuple()


class LyingDict(dict[Any, Any]):
    def items(self) -> Any:
        return {}.items()

    __iter__ = keys = values = items  # type: ignore[assignment]  # likewise


class LyingList(list[Any]):
    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class LyingBytes(bytes):
    def __bytes__(self) -> bytes:
        return b""


class LyingText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "fine"


class Disguised:
    def __init__(self, total: int) -> None:
        self.total = total

    @property
    def __class__(self) -> Any:
        return int

    def __int__(self) -> int:
        return 1


class Tagged(str):  # noqa: SLOT000 - its attributes are what is tested
    tag: int = 0


class Key(str):
    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Private(pydantic.BaseModel):
    x: int = 1
    _inside: int = pydantic.PrivateAttr(0)


def private(inside: int) -> Private:
    made = Private()
    made._inside = inside
    return made


def tagged(tag: int) -> Tagged:
    made = Tagged("text")
    made.tag = tag
    return made


def nest(leaf: Any, depth: int, kind: str = "list") -> Any:
    for _ in range(depth):
        leaf = {"a": leaf} if kind == "dict" else [leaf]
    return leaf


def closure(inner: Any) -> Any:
    return lambda: inner


PAIRS: list[tuple[Any, Any]] = [
    *((nest("tidy up at 0x1", n, k), nest("DROP ALL at 0x1", n, k)) for n in (29, 200, 5000) for k in ("list", "dict")),
    (nest({"a", "b"}, 40), nest({"a", "c"}, 40)),
    (nest((1, b"x"), 40), nest((1, b"y"), 40)),
    (nest({1: "a"}, 40), nest({"1": "a"}, 40)),
    ([()] * 100_050 + [["a"]], [()] * 100_050 + [["b"]]),
    (["a"] * 50_000, ["a"] * 49_999 + ["b"]),
    (Order(10), Order(10**7)),
    (Order([{"deep": 1}]), Order([{"deep": 2}])),
    (nest(Order(1), 40), nest(Order(2), 40)),
    (Slotted(1), Slotted(2)),
    (Told(1), Told(2)),
    (Silent(1), Silent(2)),
    (data(1), data(2)),
    (private(1), private(2)),
    (types.SimpleNamespace(n="look at 0x1f", t=1), types.SimpleNamespace(n="look at 0x1f", t=2)),
    (collections.deque(["at 0x1", 1]), collections.deque(["at 0x1", 2])),
    (ValueError("at 0x1", 1), ValueError("at 0x1", 2)),
    (FileNotFoundError(2, "no", "a"), FileNotFoundError(2, "no", "b")),
    (io.BytesIO(b"a"), io.BytesIO(b"b")),
    (io.StringIO("a"), io.StringIO("b")),
    (closure(1), closure(2)),
    (lambda: 1, lambda: 2),
    (functools.partial(print, 1), functools.partial(print, 2)),
    (Order(1).__init__, Order(2).__init__),
    (Lying(5), Lying(6)),
    (LyingDecimal(5), LyingDecimal(6)),
    (LyingDict(a=1), LyingDict(a=2)),
    (LyingList([1]), LyingList([2])),
    (LyingBytes(b"a"), LyingBytes(b"b")),
    (LyingText("a"), LyingText("b")),
    (Disguised(5), Disguised(6)),
    (tagged(1), tagged(2)),
    ({Key("a"): 1, Key("a"): 2}, {Key("a"): 99, Key("a"): 2}),
    (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    (collections.UserDict(a=1), collections.UserDict(a=2)),
    ({"a": 1}.values(), {"a": 2}.values()),
    (range(3), range(4)),
]  # fmt: skip


@pytest.mark.parametrize("rules", [Rules(), HIDDEN], ids=["shown", "hidden"])
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda value: type(value).__name__)
def test_every_value_is_bound(one: Any, other: Any, rules: Rules) -> None:
    """Values that differ anywhere give different contexts, and the same value gives the same again."""
    assert text(one, rules) != text(other, rules)
    assert text(one, rules) == text(one, rules)


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        (n for n in "ab"),
        iter([1]),
        sys.stdout,
        Order(threading.Lock()),
        nest(threading.Lock(), 50),
    ],
    ids=["lock", "generator", "iterator", "file", "attribute", "deep"],
)
@pytest.mark.parametrize("rules", [Rules(), HIDDEN], ids=["shown", "hidden"])
def test_what_cannot_be_read_never_comes_again(value: Any, rules: Rules) -> None:
    """A value whose state cannot be read differs each time, so that no approval covers it."""
    assert text(value, rules) != text(value, rules)


def test_iterators_are_left_alone() -> None:
    """Nothing is taken from an iterator and a stream stays where it is."""
    numbers, stream = iter([1, 2]), io.StringIO("abc")
    text([numbers, stream])
    assert list(numbers) == [1, 2]
    assert stream.read() == "abc"


def test_lies_are_not_believed() -> None:
    """What a subclass says about itself does not change what is compared and shown."""
    found = capture(
        {"amount": Lying(500), "n": LyingDecimal("7.5"), "d": LyingDict(a=1)}, Rules(), HIDER
    ).context
    assert found == {"amount": 500, "n": decimal.Decimal("7.5"), "d": {"a": 1}}
    assert capture({"amount": LyingDecimal(500)}, Rules(), HIDER).context == {"amount": 500}


def test_almost_no_stack_is_left() -> None:
    """Where there is no room to look at a value it is bound to nothing that could have been approved."""
    found: list[str] = []

    def down() -> None:
        try:
            down()
        except RecursionError:
            try:
                found.append(text([[[Order([1])]]]))
            except RecursionError:
                raise
            raise

    with pytest.raises(RecursionError):
        down()
    whole = text([[[Order([1])]]])
    assert all(each == whole or "once:" in each for each in found)


def test_objects_are_stable_across_processes() -> None:
    """Objects, functions and deep values give the same context in another process."""
    code = (
        "import types; from toolgate._capture.context import *; from toolgate._capture.hiding import Hider\n"
        "from toolgate._capture.jsontext import dumps\n"
        "deep = {'b': {'x', 'y', 'z'}, 'a': b'1'}\n"
        "for _ in range(60): deep = [deep]\n"
        "made = types.SimpleNamespace(b=1, a=deep)\n"
        "print(dumps(capture({'v': [made, len, range(3), (lambda n: n in {'x', 'y', 'z'})]}, Rules(), Hider('k')).context))"
    )
    outs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": s}).stdout
        for s in ("1", "2", "3")
    }  # fmt: skip
    assert len(outs) == 1
    assert "once:" not in outs.pop()


def test_large_values_are_quick() -> None:
    """A million numbers are digested well within a second, shown or hidden."""
    big = list(range(1_000_000))
    began = time.process_time()
    text(big)
    text(big, HIDDEN)
    assert time.process_time() - began < 2


class Boom:
    def __repr__(self) -> str:
        return "Boom(hunter2secret)"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (12345678, "cannot use 12345678"),
        (b"hunter2secret", "cannot use b'hunter2secret'"),
        (b"hunter2secret", "cannot use hunter2secret"),
        ("abc", "cannot use abc"),
        (7, "cannot use 7"),
        ("hun'ter2\"x\\hunter2", "cannot use " + repr("hun'ter2\"x\\hunter2")),
        ("line\nhunter2", "cannot use " + json.dumps("line\nhunter2")),
        ("it's hunter2", 'cannot use {"x": "it\'s hunter2"} ' + repr("it's hunter2\"")),
        ({"hunter2secret": 1}, "no key hunter2secret"),
        ({"k": {"inner": b"hunter2secret"}}, "cannot use hunter2secret"),
        (Boom(), "cannot use Boom(hunter2secret)"),
        ([Boom()], "cannot use [Boom(hunter2secret)]"),
        (Order("hunter2secret"), "cannot use hunter2secret"),
        (nest("hunter2secret", 50), "cannot use hunter2secret"),
        (decimal.Decimal("1234.50"), "cannot use 1234.50"),
    ],
)
def test_hidden_values_stay_out_of_messages(value: Any, message: str) -> None:
    """No form in which a hidden value may be written remains in an error message."""
    from toolgate._capture.facts import describe_error

    captured: Captured = capture({"value": value}, HIDDEN, HIDER)
    told = describe_error(ValueError(message), captured.hidden)
    assert told["type"] == "ValueError"
    left = str(told["message"])
    assert "hunter2" not in left
    assert "[redacted]" in left
    assert not set("1234567") & set(left)
    assert "abc" not in left


class Remote(PurePosixPath):
    """A path on some machine."""

    host = ""


class Lasting(dt.timedelta):
    """A duration that knows more than its text."""

    nanoseconds = 0


class Day(dt.date):
    """A day of somebody's calendar."""

    calendar = ""


class Named(uuid.UUID):
    """An identifier of some tenant's."""

    __slots__ = ("tenant",)


class Precise(dt.timedelta):
    """One whose own text says more."""

    def __str__(self) -> str:
        return f"{dt.timedelta.__str__(self)} and {self.more}"  # type: ignore[attr-defined]  # set by the test


def having(value: Any, name: str, more: Any) -> Any:
    object.__setattr__(value, name, more)
    return value


@pytest.mark.parametrize("nested", [0, 40])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Remote("data"), "host"),
        (lambda: Lasting(1), "nanoseconds"),
        (lambda: Day(2026, 1, 1), "calendar"),
        (lambda: Named(int=7), "tenant"),
        (lambda: Precise(1), "more"),
    ],
    ids=["path", "duration", "date", "identifier", "own text"],
)
def test_what_a_subclass_of_something_written_as_text_has_beside_it(
    make: Any, name: str, nested: int
) -> None:
    """Another machine, tenant or calendar is another call, however deep it lies."""

    def shown(more: Any) -> str:
        value = having(make(), name, more)
        for _ in range(nested):
            value = [value]
        return text(value)

    assert shown("mine") == shown("mine")
    assert shown("mine") != shown("yours")


class Counted(float):
    """Keys that are all written alike, and each another."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def test_many_keys_that_are_written_alike() -> None:
    """They cost no more than as many others: each is not tried against all of them."""
    keys = [Counted(1) for _ in range(3000)]
    safe = JsonSafe(HIDER, Rules().names)
    assert set(cast("dict[str, Any]", safe.convert(dict.fromkeys(keys)))) >= {"$digest"}


def test_one_large_secret_in_many_places() -> None:
    """It is not looked at once for each of them."""
    looks = 0

    large = [0] * 20_000
    hidden = JsonSafe._hidden

    def counted(safe: JsonSafe, value: object) -> Any:
        nonlocal looks
        looks += 1
        return hidden(safe, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonSafe, "_hidden", counted)
        shown = JsonSafe(HIDER, Rules().names).convert([{"password": [large]} for _ in range(500)])
    assert looks < 5
    assert "$digest" in dumps(shown)


def test_long_names_are_not_kept() -> None:
    """What is remembered of names does not grow with them."""
    before = redaction._is_secret_name.cache_info().currsize
    text({"q" * 300 + str(number): number for number in range(10)})
    assert redaction._is_secret_name.cache_info().currsize <= before + 1
