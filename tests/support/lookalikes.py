"""Arguments that look alike or lie about themselves, each pair for a tool to tell apart."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import io
import types
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

import pydantic


class Plain:
    def __init__(self, total: Any) -> None:
        self.total = total


class Slotted:
    __slots__ = ("total",)

    def __init__(self, total: Any) -> None:
        self.total = total


class SameRepr(Plain):
    def __repr__(self) -> str:
        return "an order at 0x1"


class SameJson(Plain):
    def __json__(self) -> str:
        return "{}"

    def __reduce__(self) -> Any:
        return Plain, (1,)


class Silent(Plain):
    def __repr__(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


class Equal(Plain):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass
class Data:
    total: Any


@dataclasses.dataclass(slots=True)
class SlottedData:
    total: Any


@dataclasses.dataclass
class QuietData:
    total: Any = dataclasses.field(repr=False, compare=False)


class Model(pydantic.BaseModel):
    shown: int = 1
    left_out: Any = pydantic.Field(default=0, exclude=True)
    _private: Any = pydantic.PrivateAttr(0)


class OpenModel(pydantic.BaseModel, extra="allow"): ...


class Root(pydantic.RootModel[list[Any]]): ...


class FlatteringModel(pydantic.BaseModel):
    total: int

    @pydantic.model_serializer
    def serialize(self) -> dict[str, int]:
        return {"total": 1}


class FlatteringField(pydantic.BaseModel):
    total: int

    @pydantic.field_serializer("total")
    def serialize(self, _: int) -> int:
        return 1


@dataclasses.dataclass
class DataRow(dict[str, Any]):
    total: int = 1


@dataclasses.dataclass
class DataError(Exception):
    total: int = 1


@dataclasses.dataclass
class DataQueue(collections.deque[Any]):
    total: int = 1


def filled(made: Any, **members: Any) -> Any:
    made.update(members)
    return made


def queued(item: int) -> DataQueue:
    made = DataQueue()
    made.append(item)
    return made


class Text(str):  # noqa: SLOT000 - its attributes are what is tested
    pass


class Number(int):
    pass


class Path(PurePosixPath):
    pass


class Day(dt.date):
    pass


class Duration(dt.timedelta):
    pass


class Moment(dt.datetime):
    pass


class Identifier(uuid.UUID):
    __slots__ = ("tenant",)


class Nanoseconds(dt.datetime):
    """A moment that is more precise than its fields, as pandas.Timestamp is."""

    rest: ClassVar[dict[int, int]] = {}

    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        return f"{super().isoformat(*args, **kwargs)}.{self.rest[id(self)]:09}"

    __str__ = isoformat


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Planet(enum.Enum):
    EARTH = 1

    def __init__(self, _: int) -> None:
        self.mass = 5


class Row(dict[str, Any]):
    pass


class Rows(list[Any]):
    pass


class Array:
    """An array as numpy's: its text is cut short."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return "array([0, 0, ..., 0, 0])"

    def __array__(self) -> Any:
        return self.numbers

    def __iter__(self) -> Iterator[int]:
        return iter((0,))

    def tolist(self) -> list[int]:
        return [0]


def having(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)
    return value


def private(value: Any) -> Model:
    made = Model()
    made._private = value
    return made


def nanoseconds(rest: int) -> Nanoseconds:
    made = Nanoseconds(2026, 1, 1)
    Nanoseconds.rest[id(made)] = rest
    return made


def nest(leaf: Any, depth: int, kind: str = "list") -> Any:
    for _ in range(depth):
        leaf = {"a": leaf} if kind == "dict" else [leaf]
    return leaf


def closure(inner: Any) -> Any:
    return lambda: inner


LOOK_ALIKES: dict[str, tuple[Any, Any]] = {
    "plain objects": (Plain(10), Plain(10**7)),
    "deep in objects": (Plain([{"deep": 1}]), Plain([{"deep": 2}])),
    "slots": (Slotted(1), Slotted(2)),
    "equal repr": (SameRepr(1), SameRepr(2)),
    "equal pickle": (SameJson(1), SameJson(2)),
    "no repr": (Silent(1), Silent(2)),
    "equal to everything": (Equal(1), Equal(2)),
    "dataclass": (Data(1), Data(2)),
    "dataclass with slots": (SlottedData(1), SlottedData(2)),
    "dataclass without repr": (QuietData(1), QuietData(2)),
    "dataclass that is a mapping": (filled(DataRow(), a=1), filled(DataRow(), a=2)),
    "dataclass that is an exception": (having(DataError(), args=(1,)), having(DataError(), args=(2,))),
    "dataclass that is a queue": (queued(1), queued(2)),
    "attribute of a dataclass": (having(Data(1), more=1), having(Data(1), more=2)),
    "attribute of a dataclass or none": (Data(1), having(Data(1), more=2)),
    "class of a dataclass's field": (Data(1), Data("1")),
    "private field of a model": (private(1), private(2)),
    "excluded field of a model": (Model(left_out=1), Model(left_out=2)),
    "extra field of a model": (OpenModel.model_validate({"more": 1}), OpenModel.model_validate({"more": 2})),
    "root of a model": (Root([1]), Root([2])),
    "serializer of a model": (FlatteringModel(total=1), FlatteringModel(total=5000)),
    "serializer of a field": (FlatteringField(total=1), FlatteringField(total=5000)),
    "constructed model": (FlatteringModel.model_construct(total="1"), FlatteringModel.model_construct(total=1)),
    "attribute of a text": (having(Text("a"), tag=1), having(Text("a"), tag=2)),
    "attribute of a number": (having(Number(1), unit="cents"), having(Number(1), unit="euros")),
    "attribute of a path": (having(Path("a"), host="mine"), having(Path("a"), host="yours")),
    "attribute of a date": (having(Day(2026, 1, 1), calendar="a"), having(Day(2026, 1, 1), calendar="b")),
    "attribute of a moment": (having(Moment(2026, 1, 1), fuzzy=1), having(Moment(2026, 1, 1), fuzzy=2)),
    "attribute of a duration": (having(Duration(1), rest=1), having(Duration(1), rest=2)),
    "attribute of an identifier": (having(Identifier(int=7), tenant=1), having(Identifier(int=7), tenant=2)),
    "attribute of a mapping": (having(Row(a=1), table="x"), having(Row(a=1), table="y")),
    "attribute of a list": (having(Rows([1]), table="x"), having(Rows([1]), table="y")),
    "deep attribute of a text": (nest(having(Text("a"), tag=1), 40), nest(having(Text("a"), tag=2), 40)),
    "nanoseconds": (nanoseconds(1), nanoseconds(2)),
    "zone of a moment": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime.fromisoformat("2026-01-01T00:00:00")),
    "enumeration members": (Colour.RED, Colour.BLUE),
    "namespace": (types.SimpleNamespace(n="0x1f", t=1), types.SimpleNamespace(n="0x1f", t=2)),
    "queue": (collections.deque(["0x1", 1]), collections.deque(["0x1", 2])),
    "exception": (ValueError("at 0x1", 1), ValueError("at 0x1", 2)),
    "file of an exception": (FileNotFoundError(2, "no", "a"), FileNotFoundError(2, "no", "b")),
    "bytes": (b"a", b"b"),
    "bytes and text": (b"a", "a"),
    "bytearray": (bytearray(b"a"), bytearray(b"b")),
    "memory": (memoryview(b"a"), memoryview(b"b")),
    "stream of bytes": (io.BytesIO(b"a"), io.BytesIO(b"b")),
    "stream of text": (io.StringIO("a"), io.StringIO("b")),
    "closure": (closure(1), closure(2)),
    "function": (lambda: 1, lambda: 2),
    "partial function": (functools.partial(print, 1), functools.partial(print, 2)),
    "bound method": (Plain(1).__init__, Plain(2).__init__),  # type: ignore[misc]  # of two instances
    "mapping proxy": (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    "mapping of a class of its own": (collections.UserDict(a=1), collections.UserDict(a=2)),
    "view of a mapping": ({"a": 1}.values(), {"a": 2}.values()),
    "range": (range(3), range(4)),
    "complex number": (1 + 2j, 1 + 3j),
    "ctypes": (ctypes.c_int(1), ctypes.c_int(2)),
    "XML": (ET.fromstring("<a b='1'/>"), ET.fromstring("<a b='2'/>")),
    "array": (Array(0, 0, 1, 0, 0), Array(0, 0, 2, 0, 0)),
    "number and text": (1, "1"),
    "number and truth": (1, True),
    "none and text": (None, "null"),
    "digits of a decimal": (decimal.Decimal("1.10"), decimal.Decimal("1.11")),
    "beyond a float": (decimal.Decimal("0.1"), decimal.Decimal("0.1000000000000000055511151231257827")),
    "large numbers": (2**53, 2**53 + 1),
    "huge numbers": (10**500, 10**500 + 1),
    "lone surrogates": ("\ud800", "\ud801"),
    "null characters": ("a\0b", "a\0c"),
    "normal forms of text": ("\u00e9", "e\u0301"),
    "end of a long text": ("x" * 9000 + "a", "x" * 9000 + "b"),
    "end of a long list": (["a"] * 50_000, ["a"] * 49_999 + ["b"]),
    "end of a list of lists": ([[]] * 50_000 + [["a"]], [[]] * 50_000 + [["b"]]),
    "deep list": (nest("tidy up", 29), nest("DROP ALL", 29)),
    "deep mapping": (nest("tidy up", 29, "dict"), nest("DROP ALL", 29, "dict")),
    "very deep list": (nest("tidy up", 5000), nest("DROP ALL", 5000)),
    "very deep mapping": (nest("tidy up", 5000, "dict"), nest("DROP ALL", 5000, "dict")),
    "deep set": (nest({"a", "b"}, 40), nest({"a", "c"}, 40)),
    "deep bytes": (nest((1, b"x"), 40), nest((1, b"y"), 40)),
    "deep object": (nest(Plain(1), 40), nest(Plain(2), 40)),
    "deep dataclass": (nest(Data(1), 40), nest(Data(2), 40)),
    "nested lists": ([[1], [2]], [[1, 2]]),
    "empty values": ([], {}),
}  # fmt: skip


class LyingNumber(int):
    def __int__(self) -> int:
        return 1

    __index__ = __abs__ = __int__

    def __repr__(self) -> str:
        return "1"

    __str__ = __repr__


class LyingFloat(float):
    def __float__(self) -> float:
        return 1.0

    def __repr__(self) -> str:
        return "1.0"

    __str__ = __repr__


class LyingDecimal(decimal.Decimal):
    def __str__(self) -> str:
        return "1"

    def as_tuple(self) -> Any:
        return decimal.Decimal(1).as_tuple()


class LyingDict(dict[Any, Any]):
    def items(self) -> Any:
        return {}.items()

    __iter__ = keys = values = items

    def __len__(self) -> int:
        return 0


class LyingList(list[Any]):
    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class LyingTuple(tuple[Any, ...]):
    __slots__ = ()

    def __iter__(self) -> Any:
        return iter(())


class LyingSet(set[Any]):
    def __iter__(self) -> Any:
        return iter(())


class LyingBytes(bytes):
    def __bytes__(self) -> bytes:
        return b""

    def __len__(self) -> int:
        return 0


class LyingText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "fine"

    __repr__ = __str__

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        return b"fine"


class Key(str):
    """A key that is equal to itself alone, so that a dictionary holds one text twice."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Disguised:
    def __init__(self, total: int) -> None:
        self.total = total

    @property  # type: ignore[misc]  # the lie
    def __class__(self) -> Any:
        return int

    def __int__(self) -> int:
        return 1

    __index__ = __int__


class DisguisedModel(Disguised):
    @property  # type: ignore[misc]  # the lie
    def __class__(self) -> Any:
        return Model


LIES: list[tuple[Any, Any]] = [
    (LyingNumber(5), LyingNumber(6)),
    (LyingFloat(5), LyingFloat(6)),
    (LyingDecimal(5), LyingDecimal(6)),
    (LyingDict(a=1), LyingDict(a=2)),
    (LyingList([1]), LyingList([2])),
    (LyingTuple([1]), LyingTuple([2])),
    (LyingSet([1]), LyingSet([2])),
    (LyingBytes(b"a"), LyingBytes(b"b")),
    (LyingText("a"), LyingText("b")),
    (Disguised(5), Disguised(6)),
    (DisguisedModel(5), DisguisedModel(6)),
    ({Key("a"): 1, Key("a"): 2}, {Key("a"): 99, Key("a"): 2}),
    ({Key("a"): 1, "b": 2}, {Key("a"): 99, "b": 2}),
]
