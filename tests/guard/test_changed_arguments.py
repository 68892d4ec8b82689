"""Arguments that other code changes while the gateway is asked do not reach the tool."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, Guard

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}


@dataclass
class Order:
    amount: int


def then(answer: dict[str, Any], change: Callable[[], object]) -> Callable[[], dict[str, Any]]:
    """An answer of the gateway, given after a change."""

    def reply() -> dict[str, Any]:
        change()
        return answer

    return reply


def recorder(ran: list[object]) -> Callable[[Any], None]:
    """A tool that keeps what it was given."""

    def pay(order: Any) -> None:
        ran.append(order)

    return pay


def refused(gateway: Any) -> bool:
    """Whether the last log entry tells that the call was refused because an argument changed."""
    for guard in gateway.guards:
        assert guard.flush()
    entry = gateway.taken[-1]
    return (
        entry["status"] == "denied"
        and "changed while the gateway checked the call" in entry["context"]["reason"]
    )


def test_nested_value_changed_during_the_check_does_not_run(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    order = {"lines": [{"amount": 50}]}
    gateway.check.append(then(ALLOWED, lambda: order["lines"][0].update(amount=5000)))
    pay = make_guard().guarded("pay")(recorder(ran))
    with pytest.raises(ActionDenied, match="'order' changed while the gateway checked the call"):
        pay(order)
    assert ran == []
    assert refused(gateway)


def test_value_changed_while_a_thread_waits_for_approval_does_not_run(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    order = Order(50)
    gateway.check += [HELD, then(ALLOWED, lambda: setattr(order, "amount", 5000))]
    pay = make_guard().guarded("pay", on_hold="wait")(recorder(ran))
    errors: list[BaseException] = []

    def call() -> None:
        try:
            pay(order)
        except ActionDenied as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert (len(errors), ran) == (1, [])
    assert refused(gateway)


async def test_value_changed_by_another_task_does_not_run(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    items = [1]
    gateway.check.append(then(ALLOWED, lambda: items.append(2)))

    @make_guard().guarded("pay")
    async def pay(items: list[int]) -> None:
        ran.append(items)

    with pytest.raises(ActionDenied, match="'items' changed"):
        await asyncio.create_task(pay(items))
    assert ran == []


def test_generator_does_not_begin_with_changed_arguments(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    items = [1]
    gateway.check.append(then(ALLOWED, items.clear))

    @make_guard().guarded("list")
    def each(items: list[int]) -> Iterator[int]:
        ran.append(items)
        yield from items

    with pytest.raises(ActionDenied, match="'items' changed"):
        list(each(items))
    assert ran == []


async def test_async_generator_does_not_begin_with_changed_arguments(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    items = [1]
    gateway.check.append(then(ALLOWED, items.clear))

    @make_guard().guarded("list")
    async def each(items: list[int]) -> AsyncIterator[int]:
        ran.append(items)
        yield 1

    with pytest.raises(ActionDenied, match="'items' changed"):
        [item async for item in each(items)]
    assert ran == []


def test_argument_that_only_the_amount_is_computed_of_is_compared(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    order = Order(50)
    gateway.check.append(then(ALLOWED, lambda: setattr(order, "amount", 5000)))
    guard = make_guard()
    pay = guard.guarded("pay", ignore={"order"}, amount=lambda order: order.amount)(recorder(ran))
    with pytest.raises(ActionDenied, match="'amount' changed"):
        pay(order)
    assert ran == []


def test_unbound_argument_may_change(gateway: Any, make_guard: Callable[..., Guard]) -> None:
    session = {"requests": 0}
    gateway.check.append(then(ALLOWED, lambda: session.update(requests=1)))
    pay = make_guard().guarded("pay", ignore={"session"})(lambda amount, session: amount)
    assert pay(50, session) == 50


def test_computed_context_of_immutable_arguments_may_differ_each_time(
    make_guard: Callable[..., Guard],
) -> None:
    counter = itertools.count()
    guard = make_guard()
    pay = guard.guarded("pay", context=lambda amount: {"number": next(counter)})(lambda amount, items: amount)
    assert pay(50, []) == 50


def test_tool_gets_the_very_objects_of_its_caller(make_guard: Callable[..., Guard]) -> None:
    items: list[int] = []
    make_guard().guarded("fill")(lambda items: items.append(1))(items)
    assert items == [1]


def test_edited_call_does_not_run_with_other_changed_arguments(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    items = [1]
    gateway.check += [HELD, then(ALLOWED, lambda: items.append(2))]
    gateway.approval += [
        {"id": "appr-1", "status": "replaced", "note": None, "replaced_by": "appr-2"},
        {"id": "appr-2", "status": "approved", "note": None, "approved_context": {"amount": 5, "items": [1]}},
    ]
    pay = make_guard().guarded("pay", on_hold="wait")(lambda amount, items: ran.append((amount, items)))
    with pytest.raises(ActionDenied, match="'items' changed"):
        pay(50, items)
    assert ran == []


@pytest.mark.parametrize("changed", ["the mapping", "a value in it"])
def test_block_is_not_entered_with_a_changed_context(
    gateway: Any, make_guard: Callable[..., Guard], changed: str
) -> None:
    ran: list[object] = []
    context: dict[str, Any] = {"amount": 50, "order": {"lines": [1]}}
    change = (lambda: context.update(amount=5000)) if changed == "the mapping" else context["order"].clear
    gateway.check.append(then(ALLOWED, change))
    with pytest.raises(ActionDenied, match="changed while the gateway"), make_guard().action("pay", context):
        ran.append(context)
    assert ran == []
    assert refused(gateway)


async def test_call_handed_to_another_process_is_compared_too(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    context: dict[str, Any] = {"order": {"lines": [1]}}
    gateway.check.append(then(ALLOWED, context["order"].clear))
    with pytest.raises(ActionDenied, match="'order' changed"):
        await make_guard().action("pay", context).aauthorize()


def test_held_call_still_raises_pending(gateway: Any, make_guard: Callable[..., Guard]) -> None:
    items = [1]
    gateway.check.append(then(HELD, lambda: items.append(2)))
    with pytest.raises(ApprovalPending):
        make_guard().guarded("pay")(lambda items: None)(items)


Basket: Any = Enum("Basket", {"SMALL": [1], "LARGE": Order(5)})


class Fruit(Enum):
    APPLE = "apple"


class Tier(Enum):
    GOLD = "gold"

    def __init__(self, _: str) -> None:
        self.limit = 5


class Zone(dt.tzinfo):
    hours = 0

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=self.hours)

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> str:
        return "own"


def changeable_values() -> Iterator[Any]:
    """Values of kinds that look immutable or cannot be iterated, each with a change that is undone afterwards."""
    yield pytest.param(Basket.SMALL, Basket.SMALL.value.append, Basket.SMALL.value.remove, id="enum-list")
    order: Any = Basket.LARGE.value
    yield pytest.param(
        Basket.LARGE,
        partial(setattr, order, "amount"),
        lambda _: setattr(order, "amount", 5),
        id="enum-object",
    )
    yield pytest.param(
        [Basket.LARGE],
        partial(setattr, order, "amount"),
        lambda _: setattr(order, "amount", 5),
        id="enum-in-list",
    )
    yield pytest.param(
        Tier.GOLD,
        partial(setattr, Tier.GOLD, "limit"),
        lambda _: setattr(Tier.GOLD, "limit", 5),
        id="enum-attribute",
    )
    zone = Zone()
    for moment in (dt.datetime(2026, 1, 1, tzinfo=zone), dt.time(12, tzinfo=zone)):
        yield pytest.param(
            moment,
            lambda _: setattr(zone, "hours", 5),
            lambda _: setattr(zone, "hours", 0),
            id=f"{type(moment).__name__}-with-own-zone",
        )


@pytest.mark.parametrize(("value", "change", "undo"), list(changeable_values()))
def test_value_of_a_special_kind_that_changed_does_not_run(
    gateway: Any, make_guard: Callable[..., Guard], value: Any, change: Any, undo: Any
) -> None:
    ran: list[object] = []
    pay = make_guard().guarded("stripe.refund")(recorder(ran))
    pay(value)
    gateway.check = [then(ALLOWED, lambda: change(5000))]
    try:
        with pytest.raises(ActionDenied, match="changed while the gateway checked the call"):
            pay(value)
    finally:
        undo(5000)
    assert ran == [value]


@pytest.mark.parametrize(
    "value",
    [
        Fruit.APPLE,
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.time(12),
    ],
    ids=["enum", "utc", "zoneinfo", "time"],
)
def test_constants_are_not_compared(make_guard: Callable[..., Guard], value: object) -> None:
    """A context that is computed from them may differ each time."""
    counted = itertools.count()
    guard = make_guard()
    pay = guard.guarded("stripe.refund", context=lambda order: {"call": next(counted)})(recorder([]))
    pay(value)
    assert next(counted) == 1


class Row:
    def __init__(self, amount: int) -> None:
        self.amount = amount


@pytest.mark.parametrize("value", [Row(5), [Row(5)], {"rows": (Row(5),)}], ids=["itself", "list", "dict"])
def test_object_that_is_not_json_is_refused_before_the_gateway_is_asked(
    gateway: Any, make_guard: Callable[..., Guard], value: object
) -> None:
    ran: list[object] = []
    pay = make_guard().guarded("stripe.refund")(recorder(ran))
    with pytest.raises(ConfigurationError, match=r"'order' .* of type '.*Row', .*ignore="):
        pay(value)
    assert ran == []
    assert gateway.checks == []


def test_unbound_object_is_passed(make_guard: Callable[..., Guard]) -> None:
    ran: list[object] = []
    row = Row(5)
    make_guard().guarded("stripe.refund", ignore={"order"})(recorder(ran))(row)
    assert ran == [row]


def test_object_that_is_put_into_an_argument_is_a_change(
    gateway: Any, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    items: list[object] = [1]
    gateway.check.append(then(ALLOWED, lambda: items.append(Row(5))))
    with pytest.raises(ActionDenied, match="'order' changed"):
        make_guard().guarded("pay")(recorder(ran))(items)
    assert ran == []
    assert refused(gateway)


def test_container_of_many_numbers_is_compared(gateway: Any, make_guard: Callable[..., Guard]) -> None:
    numbers = [{"amount": n} for n in range(40_000)]
    pay = make_guard().guarded("stripe.refund")(recorder([]))
    gateway.check = [then(ALLOWED, lambda: numbers[-1].update(amount=-1))]
    with pytest.raises(ActionDenied, match="changed while the gateway checked the call"):
        pay(numbers)
