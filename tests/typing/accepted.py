"""Right uses: both type checkers accept every line, and see through the decorator."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, partialmethod
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, assert_type, overload

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Scope

import toolgate
from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    Decision,
    GatewayUnavailable,
    Guard,
    acting_as,
    action,
    bind_context,
    configure,
    guarded,
    resume,
)
from toolgate._options import Limits
from toolgate.asgi import Endpoint, GuardMiddleware
from toolgate.testing import ApprovalRequest, Checked, FakeGateway, Logged

P = ParamSpec("P")
T = TypeVar("T")
guard = Guard(url="https://gateway.example", api_key="ak_", agent_id="agent", timeout=2)


@guarded("stripe.refund")
def refund(charge_id: str, amount: float, *, note: str | None = None) -> str:
    return charge_id


@guard.guarded("email.send", on_hold="wait", hold_timeout=300, exclude={"body"}, redact=["iban"])
async def send(to: str, body: str = "") -> int:
    return len(to)


@guarded("generic", ignore=("session",), amount="cents", agent_id="other")
def generic(value: T, cents: int, session: object) -> T:
    return value


def cents_of(quantity: int, price: Decimal) -> Decimal:
    return quantity * price


def told(quantity: int) -> dict[str, str]:
    return {"summary": str(quantity)}


@guarded("shop.buy", include={"quantity"}, redact=["iban", re.compile("DE")], amount=cents_of, context=told)
def buy(quantity: int, price: Decimal) -> int:
    return quantity


@guard.guarded("shop.pay", redact={re.compile("DE")}, amount="cents", context="payload")
async def pay(cents: int, payload: dict[str, object]) -> None: ...


@overload
def pick(kind: Literal["a"]) -> int: ...
@overload
def pick(kind: Literal["b"]) -> str: ...
@guarded("pick")
def pick(kind: str) -> int | str:
    return kind


def pick_one(n: int, note: str) -> str:
    return note * n


class Tools:
    @guarded("tools.method")
    def method(self, n: int) -> str:
        return str(n)

    @classmethod
    @guarded("tools.made")
    def made(cls, n: int) -> Tools:
        return cls()

    @guard.guarded("tools.above")
    @classmethod
    def above(cls, n: int) -> Tools:
        return cls()

    @guarded("tools.static")
    @staticmethod
    def static(n: int) -> int:
        return n

    @staticmethod
    @guarded("tools.under")
    def under(n: int) -> int:
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
def above(n: int) -> Generator[str, None, None]:
    yield str(n)


@contextmanager
@guarded("managed.below")
def below(n: int) -> Generator[str, None, None]:
    yield str(n)


@guard.guarded("managed.async")
@asynccontextmanager
async def amanaged(n: int) -> AsyncGenerator[str, None]:
    yield str(n)


@asynccontextmanager
@guard.guarded("managed.async.below")
async def abelow(n: int) -> AsyncGenerator[str, None]:
    yield str(n)


@guarded("future")
def future(n: int) -> Awaitable[int]:
    return aheld(n)


class Callee:
    name = "callee"

    def __call__(self, n: int) -> str:
        return str(n)

    @guarded("callee.items")
    def items(self, n: int) -> Iterator[int]:
        yield n

    @guarded("callee.managed")
    @contextmanager
    def managed(self, n: int) -> Generator[Callee, None, None]:
        yield self

    def plain(self, n: int, note: str) -> str:
        return note * n

    twice = guarded("callee.twice")(partialmethod(plain, 2))


@dataclass(frozen=True)
class Shop:
    name: str

    @guarded("shop.sell")
    def sell(self, n: int) -> str:
        return self.name * n


class Overloaded:
    @overload
    def pick(self, kind: Literal["a"]) -> int: ...
    @overload
    def pick(self, kind: Literal["b"]) -> str: ...
    @guarded("overloaded.pick")
    def pick(self, kind: str) -> int | str:
        return kind


def handed_on(tool: Callable[P, T]) -> Callable[P, T]:
    return guarded("handed.on")(tool)


callee = guarded("callee")(Callee())
some = guarded("partial")(partial(pick_one, 1))
counted = handed_on(pick_one)


def decide(pending: ApprovalPending) -> Literal["wait", "check"] | None:
    return "wait" if pending.reason else None


async def adecide(pending: ApprovalPending) -> Literal["raise", "wait", "check"]:
    return "check"


def interrupt(pending: ApprovalPending) -> NoReturn:
    raise RuntimeError(pending.approval_id)


class Plugin:
    def woken(self, pending: ApprovalPending) -> Literal["check"]:
        return "check"

    async def __call__(self, pending: ApprovalPending) -> None: ...


@guarded("held.sync", on_hold=decide, hold_timeout=5)
def held(n: int) -> int:
    return n


@guard.guarded("held.async", on_hold=adecide)
async def aheld(n: int) -> int:
    return n


@guarded("held.method", on_hold=Plugin().woken)
def method_held(n: int) -> int:
    return n


@guarded("held.object", on_hold=Plugin())
async def object_held(n: int) -> int:
    return n


@guarded("held.interrupted", on_hold=interrupt)
def interrupted(n: int) -> int:
    return n


@guarded("held.lambda", on_hold=lambda pending: "wait")
def lambda_held(n: int) -> int:
    return n


def use(function: Callable[[str, float], str]) -> None: ...


async def kinds() -> None:
    generator = items(1)
    assert_type(generator, Generator[int, str, bytes])
    assert_type(generator.send("a"), int)
    async for item in aitems(1):
        assert_type(item, int)
    with above(1) as entered, below(2) as inner:
        assert_type((entered, inner), tuple[str, str])
    async with amanaged(1) as text, abelow(1) as more:
        assert_type((text, more), tuple[str, str])
    assert_type(await future(1), int)
    assert_type(callee(1), str)
    assert_type(callee.name, str)
    assert_type(some(note="n"), str)
    assert_type(list(Callee().items(1)), list[int])
    with Callee().managed(1) as same_callee:
        assert_type(same_callee, Callee)
    assert_type(Callee().twice("n"), str)
    assert_type(Shop("s").sell(1), str)
    assert_type(Overloaded().pick("b"), str)
    assert_type(counted(1, note="n"), str)
    assert_type(bind_context(pick_one)(1, note="n"), str)

    @above(1)
    def decorated(n: int) -> str:
        return str(n)

    assert_type(decorated(1), str)


async def main() -> None:
    use(refund)
    assert_type(refund("ch_1", 5, note="n"), str)
    assert_type(refund("ch_1", amount=5.5), str)
    coroutine: Coroutine[Any, Any, int] = send("a")
    assert_type(await coroutine, int)
    assert_type(generic([1], 5, None), list[int])
    assert_type(pick("a"), int)
    assert_type(Tools().method(1), str)
    assert_type(Tools.made(1), Tools)
    assert_type(Tools.above(1), Tools)
    assert_type(Tools.static(1), int)
    assert_type(Tools().under(1), int)
    assert_type(buy(1, Decimal(2)), int)
    with action("shop.buy", {"cents": 5}, include=["cents"], redact=[re.compile("x")], amount="cents"):
        await pay(5, payload={})
    with guard.action("db.drop", context={"table": "users"}) as act:
        act.context["rows"] = 12
    async with action("db.drop", {"n": 1}, on_hold="wait") as act:
        act.context["rows"] = 12
    with resume("appr"):
        assert_type(held(1), int)
    async with guard.resume("appr"):
        assert_type(await aheld(1), int)
    async with guard.action("db.drop", {"n": 1}, on_hold=adecide, edits=True) as act:
        act.context["rows"] = 12
    with acting_as("agent", run_id="run"), guard:
        decision = guard.check("a.b", {"amount": 12.5})
        assert_type(decision, Decision)
        assert_type(decision.reason, str | None)
        assert_type(guard.log("a.b", "success", context={}), dict[str, Any])
    async with guard as same:
        assert_type(same, Guard)
        assert_type(await guard.acheck("a.b"), Decision)
        assert_type(await guard.aflush(1), bool)
    configure(url="https://gateway.example", allow_insecure=False)
    try:
        refund("ch_1", 5)
    except ApprovalDenied as error:
        assert_type(error.approval_id, str | None)
    except ActionDenied as error:
        assert_type(error.reason, str)
    except (ApprovalPending, ApprovalExpired) as error:
        assert_type(error.approval_id, str)
    except GatewayUnavailable as error:
        assert_type(error.status, int | None)
    except toolgate.GuardError:
        pass


def test_users(fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    fake_gateway.allow("stripe.refund", max_amount=Decimal(100), amount_required=False)
    fake_gateway.require_approval("mail.send", then="ignored")
    fake_gateway.block("file.delete", "not here")
    fake_gateway.budget(
        Decimal("9.5"), "a.*", "b.c", measure="sum(args.n)", at_limit="require_approval", name="n"
    )
    assert_type(refund("ch_1", 5), str)
    assert_type(fake_gateway.assert_checked("stripe.refund", amount=5), Checked)
    assert_type(fake_gateway.assert_logged("stripe.refund", "success", amount=5), Logged)
    assert_type(fake_gateway.checks[-1].outcome, Literal["allowed", "blocked", "held"])
    assert_type(fake_gateway.entries, list[Logged])
    assert_type(fake_gateway.pending(), list[ApprovalRequest])
    fake_gateway.approve(note="fine", context={"to": "ann"})
    with fake_gateway.outage(status=503), fake_gateway.replacing(guard) as same:
        assert_type(same, Guard)


def embed() -> None:
    limits: dict[str, Limits | None] = {"pay": {"max_amount": 5, "amount_required": True}, "math.add": None}
    with Guard.embedded("toolgate.db", agent="bot", allow=limits, require_approval=["mail.send"]) as embedded:
        assert_type(embedded, Guard)
        assert_type(embedded.gateway.pending(), list[ApprovalRequest])
        embedded.gateway.deny("appr", note="no")
    by_hand = FakeGateway(
        allow={"pay": {"max_amount": 0.5}, "math.add": None}, require_approval=["mail.send"]
    )
    assert_type(by_hand.guard("bot"), Guard)


def serve() -> ASGIApp:
    def named(scope: Scope) -> Endpoint | None:
        return Endpoint("stripe.refund", amount=cents_of) if scope["method"] == "POST" else None

    async def agent_of(scope: Scope) -> str | None:
        return None

    app = Starlette()
    app.add_middleware(GuardMiddleware, actions={"POST /refunds/{id}": "stripe.refund"}, agent="X-Agent")
    inner = GuardMiddleware(app, actions=named, agent=agent_of, guard=guard, on_hold="wait", hold_timeout=5)
    return GuardMiddleware(
        inner,
        actions={"GET /a": "a.read", "POST /a?n": Endpoint("a.write", exclude={"n"}, on_hold="notify_model")},
        unguarded=["GET /health"],
        max_body=10_000,
    )
