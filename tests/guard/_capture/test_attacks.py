"""Attacks on what an approval covers: calls that look approved and do something else.

The approver decides about the context that the gateway is sent. Each attack makes that context differ from what the
tool receives, or makes capturing it do harm. A call is protected if it is refused before the gateway is asked, or if
the differing part is bound: shown, or part of a digest.

1. Look-alikes. Two arguments that the tool tells apart have the same text or the same visible fields, so that the
   approval for one covers the other: equal `repr` of plain objects, slots and dictionaries; private, extra and excluded
   fields of models; models with serializers of their own; attributes added to dataclasses, texts, numbers, dates, paths
   and UUIDs; nanoseconds of a date; closures, functions with equal names, partial functions and bound methods; streams,
   exceptions, queues, mapping views and proxies; enumeration members; numbers and texts of different types; differences
   that are nested deeper, or stand later, than what is shown.
2. Lies. A class overrides `__str__`, `__int__`, `items`, `__iter__`, `__len__`, `__bytes__`, `as_tuple` or `__class__`
   and tells the capture another value than the tool reads; a dictionary key is equal to none or to every other key.
3. Change after the check. Another thread, task or hook changes an argument between the check and the run, or while an
   approval is waited for: in a list, a mapping, a dataclass, a model, the value or an attribute of an enumeration
   member, the own time zone of a date, the memory of a ctypes value, an XML element, the object behind a weak reference.
4. Code run by the capture. Looking at an argument runs its `__eq__`, `__hash__`, `__repr__`, `__iter__`,
   `__getattr__`, `__reduce__` or `__deepcopy__`, consumes an iterator or generator, or moves a stream.
5. Exhaustion. Values that hold themselves, that share parts so that they are endless on paper, that are nested too
   deeply for the stack, numbers with millions of digits, and very large lists.
6. Imitation. A mapping or a name is written like a digest, a mask or a placeholder of the capture, and passes for the
   hidden value that it imitates; a text passes for a number.
7. Unstable contexts. The same arguments give another context in another process, so that an approval is never found,
   or is found for others: the order of sets, the addresses in a `repr`.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import decimal
import enum
import io
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

import pydantic
import pytest
from support.lookalikes import (
    LIES,
    LOOK_ALIKES,
    Colour,
    Data,
    LyingDecimal,
    LyingDict,
    LyingNumber,
    LyingText,
    Model,
    Plain,
    Planet,
    Text,
    having,
    nest,
)

from toolgate import ActionDenied, ConfigurationError, Guard
from toolgate._capture.context import Rules, capture
from toolgate._capture.jsontext import dumps
from toolgate._capture.serializer import Fingerprinter

HIDER = Fingerprinter("ak_" + "q" * 37)
HIDDEN = Rules(exclude={"value"})
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


def covered(value: object, rules: Rules) -> str | None:
    """The context that an approval of this argument covers, or None for an argument that is refused."""
    try:
        return dumps(capture({"value": value}, rules, HIDER).context, canonical=True)
    except ConfigurationError as error:
        return None if "value" in str(error) else str(error)


@pytest.mark.parametrize("rules", [Rules(), HIDDEN], ids=["shown", "hidden"])
@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_approval_does_not_cover_a_look_alike(name: str, rules: Rules) -> None:
    one, other = LOOK_ALIKES[name]
    found = covered(one, rules)
    assert found is None or found != covered(other, rules)
    assert found == covered(one, rules) or (found is not None and "once:" in found)


@pytest.mark.parametrize(
    ("enum_class", "name", "attribute"), [(Planet, "EARTH", "mass"), (Colour, "RED", "_value_")]
)
def test_approval_does_not_cover_a_changed_enumeration_member(
    enum_class: Any, name: str, attribute: str
) -> None:
    member = enum_class[name]
    before, old = covered(member, Rules()), getattr(member, attribute)
    setattr(member, attribute, 5000)
    try:
        assert before is None or covered(member, Rules()) != before
    finally:
        setattr(member, attribute, old)


@pytest.mark.parametrize("rules", [Rules(), HIDDEN], ids=["shown", "hidden"])
@pytest.mark.parametrize(("one", "other"), LIES, ids=lambda value: type(value).__name__)
def test_approval_does_not_cover_what_a_class_lies_about(one: Any, other: Any, rules: Rules) -> None:
    found = covered(one, rules)
    assert found is None or found != covered(other, rules)


def test_approver_sees_the_value_behind_a_lie() -> None:
    found = capture({"amount": LyingNumber(500), "d": LyingDict(a=1), "t": LyingText("rm")}, Rules(), HIDER)
    assert found.context == {"amount": 500, "d": {"a": 1}, "t": "rm"}
    assert capture({"amount": LyingDecimal(500)}, Rules(), HIDER).context == {"amount": 500}


Basket: Any = enum.Enum("Basket", {"SMALL": [1], "LARGE": Data(5)})


class Zone(dt.tzinfo):
    hours = 0

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=self.hours)

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> str:
        return "own"


class Point(ctypes.Structure):
    _fields_ = (("price", ctypes.c_int),)


def recorder(ran: list[object]) -> Callable[[Any], None]:
    def tool(order: Any) -> None:
        ran.append(order)

    return tool


def changes() -> Iterator[Any]:
    """Values, each with a change by other code; enumerations are made for each."""
    items: list[Any] = [1]
    yield pytest.param(items, partial(items.append, 2), id="list")
    order = {"lines": [{"amount": 5}]}
    yield pytest.param(order, lambda: order["lines"][0].update(amount=5000), id="mapping")
    yield pytest.param((items,), partial(items.append, 3), id="list-in-tuple")
    tags = {"a"}
    yield pytest.param(tags, partial(tags.add, "b"), id="set")
    data = bytearray(b"a")
    yield pytest.param(data, partial(data.extend, b"b"), id="bytearray")
    row = Data(5)
    yield pytest.param(row, partial(setattr, row, "total", 5000), id="dataclass")
    model = Model()
    yield pytest.param(model, partial(setattr, model, "shown", 5000), id="model")
    secret = Model()
    yield pytest.param(secret, partial(setattr, secret, "_private", 5000), id="private-field")
    left_out = Model()
    yield pytest.param(left_out, partial(setattr, left_out, "left_out", 5000), id="excluded-field")
    plain = Plain(5)
    yield pytest.param(plain, partial(setattr, plain, "total", 5000), id="object")
    text = Text("a")
    yield pytest.param(text, partial(setattr, text, "tag", 5000), id="attribute-of-text")
    yield pytest.param(Basket.SMALL, partial(Basket.SMALL.value.append, 2), id="value-of-enum")
    large = Basket.LARGE.value
    yield pytest.param([Basket.LARGE], partial(setattr, large, "total", 5000), id="object-in-enum")
    yield pytest.param(Planet.EARTH, partial(setattr, Planet.EARTH, "mass", 5000), id="attribute-of-enum")
    zone = Zone()
    for moment in (dt.datetime(2026, 1, 1, tzinfo=zone), dt.time(12, tzinfo=zone)):
        yield pytest.param(
            moment,
            lambda: setattr(zone, "hours", zone.hours + 1),
            id=f"zone-of-{type(moment).__name__}",
        )
    point = Point(5)
    yield pytest.param(point, partial(setattr, point, "price", 5000), id="ctypes-structure")
    array = (ctypes.c_int * 3)(1, 2, 3)
    yield pytest.param(array, partial(array.__setitem__, 0, 5000), id="ctypes-array")
    element = ET.fromstring("<a><b amount='5'/></a>")
    yield pytest.param(element, partial(element[0].set, "amount", "5000"), id="xml-element")
    other = Plain(5)
    yield pytest.param(weakref.ref(other), partial(setattr, other, "total", 5000), id="weak-reference")
    buffer = io.BytesIO(b"a")
    yield pytest.param(buffer, partial(buffer.write, b"b"), id="stream")


@pytest.mark.parametrize(("value", "change"), list(changes()))
def test_argument_that_changes_after_the_check_does_not_reach_the_tool(
    gateway: Any, make_guard: Callable[..., Guard], value: Any, change: Callable[[], object]
) -> None:
    ran: list[object] = []

    def reply() -> dict[str, Any]:
        change()
        return ALLOWED

    gateway.check.append(reply)
    with pytest.raises((ActionDenied, ConfigurationError), match="order"):
        make_guard().guarded("stripe.refund")(recorder(ran))(value)
    assert ran == []


class Spy:
    """Counts the calls of its methods."""

    called: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name != "__class__":
            Spy.called.append(name)
        return object.__getattribute__(self, name)

    def _counted(self, *args: Any) -> Any:
        Spy.called.append("operator")
        raise RuntimeError

    __eq__ = __iter__ = __len__ = __bool__ = __int__ = __float__ = __index__ = _counted
    __getitem__ = __contains__ = __call__ = __next__ = __deepcopy__ = __copy__ = _counted
    __reduce__ = __reduce_ex__ = __getstate__ = __fspath__ = __bytes__ = _counted

    def __hash__(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        Spy.called.append(name)
        raise RuntimeError


@pytest.mark.parametrize(
    "value", [Spy(), [Spy()], {"a": Spy()}, Data(Spy())], ids=["itself", "list", "dict", "data"]
)
def test_capture_runs_no_code_of_an_object(value: Any) -> None:
    Spy.called.clear()
    covered(value, Rules())
    assert Spy.called == []


def test_capture_consumes_nothing() -> None:
    generator, numbers, stream = (n for n in "ab"), iter([1, 2]), io.StringIO("abc")
    for value in (generator, numbers, stream, [generator, numbers, stream]):
        covered(value, Rules())
    assert (list(generator), list(numbers), stream.read()) == (["a", "b"], [1, 2], "abc")


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        (n for n in "ab"),
        iter([1]),
        sys.stdout,
        Plain(threading.Lock()),
        nest(threading.Lock(), 20),
    ],
    ids=["lock", "generator", "iterator", "file", "attribute", "deep"],
)
@pytest.mark.parametrize("rules", [Rules(), HIDDEN], ids=["shown", "hidden"])
def test_approval_covers_nothing_that_has_state_which_cannot_be_read(value: Any, rules: Rules) -> None:
    found = covered(value, rules)
    assert found is None or found != covered(value, rules)


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise SystemError(name)

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise SystemError

    def __repr__(self) -> str:
        raise SystemError


class HostileMapping(dict[Any, Any]):
    def __len__(self) -> int:
        raise SystemError

    items = keys = values = __iter__ = __getitem__ = __len__  # type: ignore[assignment]  # what is tested


class NamelessClass(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in {"__name__", "__qualname__", "__module__"}:
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Nameless(metaclass=NamelessClass):
    pass


def hostile_values() -> dict[str, Any]:
    values = {"object": Hostile(), "mapping": HostileMapping(a=1), "class": Hostile, "nameless": Nameless()}
    return {**values, "list": [Hostile()], "dictionary": {"a": HostileMapping()}}


@pytest.mark.parametrize("name", hostile_values())
def test_hostile_class_raises_nothing_of_its_own(name: str) -> None:
    value = hostile_values()[name]
    covered(value, Rules())
    covered(value, HIDDEN)


def test_value_that_holds_itself_ends() -> None:
    loop: Any = {"a": [1]}
    loop["a"].append(loop)
    other: Any = {"a": [2]}
    other["a"].append(other)
    for rules in (Rules(), HIDDEN):
        found = covered(loop, rules)
        assert found is None or found != covered(other, rules)


def test_value_that_is_endless_on_paper_ends() -> None:
    one: Any = ["x"]
    other: Any = ["y"]
    for _ in range(40):
        one, other = [one] * 4, [other] * 4
    for rules in (Rules(), HIDDEN):
        found = covered(one, rules)
        assert found is None or found != covered(other, rules)


def test_text_that_is_endless_on_paper_ends() -> None:
    one: Any = ["x" * 1_000_000]
    for _ in range(10):
        one = [one] * 4
    for rules in (Rules(), HIDDEN):
        found = covered(one, rules)
        assert found is None or len(found) < 64 * 1024


def test_call_with_almost_no_stack_left_is_refused_or_bound() -> None:
    found: list[str | None] = []

    def down() -> None:
        try:
            down()
        except RecursionError:
            try:
                found.append(covered([[[{"a": [1]}]]], Rules()))
            except RecursionError:
                raise
            raise

    with pytest.raises(RecursionError):
        down()
    whole = covered([[[{"a": [1]}]]], Rules())
    assert found
    assert all(each is None or each == whole or "once:" in each for each in found)


@pytest.mark.parametrize(
    "number",
    [10**400, 10**100_000, decimal.Decimal(10) ** 401, decimal.Decimal("1e-401"), decimal.Decimal("0e9999")],
    ids=["int", "very long int", "decimal", "small", "exponent"],
)
def test_number_that_the_gateway_cannot_read_is_not_an_amount(number: Any) -> None:
    try:
        found: Any = capture({"amount": number}, Rules(), HIDER).context
    except ConfigurationError:
        return
    assert "$digest" in found["amount"]


@pytest.mark.parametrize(
    ("hidden", "rules"),
    [
        ("x" * 9000, Rules()),
        ("hunter22", HIDDEN),
        ({"4111 1111 1111 1111": 1}, Rules()),
        ("curl # token=aaaa", Rules()),
        (b"raw", Rules()),
        (having(Text("a"), tag=1), Rules()),
        (pydantic.SecretStr("sesame-open"), Rules()),
    ],
)
def test_imitation_of_a_digest_is_another_call(hidden: Any, rules: Rules) -> None:
    shown: Any = capture({"value": hidden}, rules, HIDER).context["value"]
    assert covered(shown, Rules()) != covered(hidden, rules)
    if len(shown) == 1:
        (label,) = shown
        assert covered({label.removeprefix("$"): 1}, Rules()) != covered(hidden, rules)


@pytest.mark.parametrize(
    "hidden", [b"a", having(Text("a"), tag=1), pydantic.SecretStr("a")], ids=["bytes", "text", "secret"]
)
def test_imitation_of_a_hidden_placeholder_is_another_call(hidden: Any) -> None:
    names = ("$digest", "$value", "$bytes", "$secret", "$object", "$more", "bytes")
    for name in names:
        for value in ("a", "61", "YQ==", {"tag": 1}):
            assert covered({name: value}, HIDDEN) != covered(hidden, HIDDEN)


def test_text_does_not_pass_for_a_number() -> None:
    shown = capture({"a": decimal.Decimal("1.50"), "b": "1.50", "c": "Decimal('1.50')"}, Rules(), HIDER)
    assert dumps(shown.context) == '{"a":1.50,"b":"1.50","c":"Decimal(\'1.50\')"}'


def test_same_call_is_the_same_in_every_process() -> None:
    code = (
        "import dataclasses, datetime, uuid\n"
        "from toolgate._capture.context import *; from toolgate._capture.serializer import Fingerprinter\n"
        "from toolgate._capture.jsontext import dumps\n"
        "deep = {'b': {'x', 'y', 'z'}, 'a': b'1'}\n"
        "for _ in range(60): deep = [deep]\n"
        "value = [deep, {'x', 'y', 'z'}, uuid.UUID(int=7), datetime.date(2026, 1, 1), {('a', 'b'), ('a', 'c')}]\n"
        "print(dumps(capture({'v': value, 'password': value}, Rules(), Fingerprinter('k')).context))"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outs) == 1
    assert "once:" not in outs.pop()
