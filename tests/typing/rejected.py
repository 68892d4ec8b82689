"""Wrong uses: both type checkers reject exactly the lines marked so."""

from __future__ import annotations

import re
from typing import Literal

from toolgate import ApprovalPending, Guard, acting_as, configure, guarded, resume
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
    gateway.hold("a.b", then="maybe")  # rejected
    gateway.approve(5)  # rejected
    gateway.assert_logged("a.b")  # rejected
    gateway.checks[0].outcome = "allowed"  # rejected
    Guard.embedded("toolgate.db", allow=["a.b"])  # rejected
    Guard.embedded("toolgate.db", agent="bot", hold=5)  # rejected
