"""Wrong uses: both type checkers reject exactly the lines marked so."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, overload

from toolgate import ApprovalPending, Guard, acting_as, bind_context, configure, guarded, resume
from toolgate.testing import FakeGateway

guard = Guard("https://gateway.example", "ak_", "agent")


@guarded("stripe.refund")
def refund(charge_id: str, amount: float) -> str:
    return charge_id


@guard.guarded("email.send")
async def send(to: str) -> int:
    return len(to)


class Tools:
    @guarded("tools.method")
    def method(self, n: int) -> str:
        return str(n)

    @guard.guarded("tools.above")
    @classmethod
    def above(cls, n: int) -> int:
        return n

    @guarded("tools.static")
    @staticmethod
    def static(n: int) -> int:
        return n


@guarded("items.sync")
def items(n: int) -> Generator[int, str, bytes]:
    answer = yield n
    return answer.encode()


@guard.guarded("items.async")
async def aitems(n: int) -> AsyncIterator[int]:
    yield n


@guarded("managed.above")
@contextmanager
def managed(n: int) -> Generator[str, None, None]:
    yield str(n)


@guard.guarded("managed.async")
@asynccontextmanager
async def amanaged(n: int) -> AsyncGenerator[str, None]:
    yield str(n)


@overload
def pick(kind: Literal["a"]) -> int: ...
@overload
def pick(kind: Literal["b"]) -> str: ...
@guarded("pick")
def pick(kind: str) -> int | str:
    return kind


class Callee:
    def __call__(self, n: int) -> str:
        return str(n)


@dataclass
class Shop:
    @guarded("shop.sell")
    def sell(self, n: int) -> str:
        return str(n)


callee = guarded("callee")(Callee())
some = guarded("partial")(partial(refund, "ch_1"))


def approves(pending: ApprovalPending) -> bool:
    return True


async def aapproves(pending: ApprovalPending) -> bool:
    return True


def asks_nothing() -> Literal["wait"]:
    return "wait"


def amounts(n: int) -> int:
    return n


def amounts_to_nothing(n: int) -> str:
    return str(n)


def misspelt(pending: ApprovalPending) -> Literal["wiat"]:
    return "wiat"


async def kinds() -> None:
    items("1")  # rejected
    items(1).send(5)  # rejected
    _items: list[str] = list(items(1))  # rejected
    aitems("1")  # rejected
    await aitems(1)  # rejected
    managed("1")  # rejected
    with managed(1) as entered:
        _entered: int = entered  # rejected
    async with amanaged(1) as text:
        _text: int = text  # rejected
    amanaged()  # rejected
    pick("c")  # rejected
    _picked: str = pick("a")  # rejected
    callee("1")  # rejected
    _other = callee.other  # rejected
    some(amount="5")  # rejected
    _some: int = some(amount=5.0)  # rejected
    Shop().sell("1")  # rejected
    bind_context(5)  # rejected
    bind_context(refund)("ch_1", "5")  # rejected


async def main() -> None:
    refund(5, 5.0)  # rejected
    refund("ch_1")  # rejected
    refund("ch_1", 5.0, "more")  # rejected
    refund("ch_1", amount="5")  # rejected
    refund("ch_1", price=5)  # rejected
    _number: int = refund("ch_1", 5.0)  # rejected
    _length: int = send("a")  # rejected
    await send(5)  # rejected
    Tools().method("1")  # rejected
    Tools.above("1")  # rejected
    Tools.static("1")  # rejected
    guarded("a.b")(5)  # rejected
    guarded("a.b", on_hold="ask")  # rejected
    guarded("a.b", hold_timeout="5")  # rejected
    guarded("a.b", exclude=5)  # rejected
    guarded("a.b", amount=5)  # rejected
    guarded("a.b", amount=amounts_to_nothing)  # rejected
    guarded("a.b", context=5)  # rejected
    guarded("a.b", context=amounts)  # rejected
    guarded("a.b", include=5)  # rejected
    guarded("a.b", redact=[5])  # rejected
    guarded("a.b", redact=[re.compile(b"x")])  # rejected
    guard.action("a.b", amount=5)  # rejected
    guard.action("a.b", context=amounts)  # rejected
    guarded("a.b", unknown=5)  # rejected
    guarded(refund)  # rejected
    guarded()  # rejected
    guard.check(5)  # rejected
    guard.check("a.b", ["amount"])  # rejected
    guard.log("a.b", "done")  # rejected
    guard.log("a.b")  # rejected
    guard.action("a.b", on_hold=5)  # rejected
    guard.action("a.b", on_hold=len)  # rejected
    guard.action("a.b", on_hold="check")  # rejected
    guard.action("a.b", edits="yes")  # rejected
    guarded("a.b", on_hold=approves)  # rejected
    guarded("a.b", on_hold=aapproves)  # rejected
    guarded("a.b", on_hold=asks_nothing)  # rejected
    guarded("a.b", on_hold=misspelt)  # rejected
    resume()  # rejected
    guard.resume(5)  # rejected
    with resume("appr") as approval:
        _approval: str = approval  # rejected
    acting_as()  # rejected
    configure(port=5)  # rejected
    await guard.acheck("a.b").maybe  # rejected
    guard.check("a.b").allowed = True  # rejected


def fake(gateway: FakeGateway) -> None:
    gateway.allow("a.b", max_amount="9")  # rejected
    gateway.require_approval("a.b", then="maybe")  # rejected
    gateway.budget(5, "a.b", at_limit="hold")  # rejected
    gateway.approve(5)  # rejected
    gateway.assert_logged("a.b")  # rejected
    gateway.checks[0].outcome = "allowed"  # rejected
    Guard.embedded("toolgate.db", allow=["a.b"])  # rejected
    Guard.embedded("toolgate.db", agent="bot", require_approval=5)  # rejected
