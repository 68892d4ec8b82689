"""A block's decision lets one equal guarded call inside it run; every other call asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from toolgate import ActionDenied, ConfigurationError, Guard

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


def make_pay(guard: Guard, ran: list[object]) -> Callable[..., Any]:
    @guard.guarded("pay")
    def pay(to: str, amount: int = 5) -> None:
        ran.append((to, amount))

    return pay


def test_equal_call_runs_by_the_decision_of_the_block(gateway: Any, guard: Guard) -> None:
    ran: list[object] = []
    pay = make_pay(guard, ran)
    with guard.action("pay", {"to": "eve", "amount": 5}) as act, act.proof():
        pay("eve")
    assert ran == [("eve", 5)]
    assert len(gateway.checks) == 1
    assert [entry["status"] for entry in gateway.logs] == ["success"]


def test_second_equal_call_is_asked_about(gateway: Any, guard: Guard) -> None:
    ran: list[object] = []
    pay = make_pay(guard, ran)
    with guard.action("pay", {"to": "eve", "amount": 5}) as act, act.proof():
        gateway.check.append(BLOCKED)
        pay("eve")
        with pytest.raises(ActionDenied):
            pay("eve")
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("to", "amount", "agent_id"), [("eve", 6, None), ("ann", 5, None), ("eve", 5, "agent-2")]
)
def test_other_call_is_asked_about(
    gateway: Any, guard: Guard, to: str, amount: int, agent_id: str | None
) -> None:
    ran: list[object] = []
    pay = guard.guarded("pay", agent_id=agent_id)(make_pay(guard, ran).__wrapped__)
    with guard.action("pay", {"to": "eve", "amount": 5}) as act, act.proof():
        gateway.check.append(BLOCKED)
        with pytest.raises(ActionDenied):
            pay(to, amount)
    assert ran == []


def test_other_action_and_other_guard_are_asked_about(
    gateway: Any, guard: Guard, make_guard: Callable[..., Guard]
) -> None:
    ran: list[object] = []
    function: Any = make_pay(guard, ran)
    with guard.action("pay", {"to": "eve", "amount": 5}) as act, act.proof():
        for other in (guard.guarded("refund"), make_guard().guarded("pay")):
            gateway.check.append(BLOCKED)
            with pytest.raises(ActionDenied):
                other(function.__wrapped__)("eve")
    assert ran == []


async def test_proof_ends_with_the_block(gateway: Any, guard: Guard) -> None:
    ran: list[object] = []
    pay = make_pay(guard, ran)
    begin = asyncio.Event()

    async def later() -> None:
        await begin.wait()
        pay("eve")

    with guard.action("pay", {"to": "eve", "amount": 5}) as act, act.proof():
        task = asyncio.create_task(later())
    gateway.check.append(BLOCKED)
    begin.set()
    with pytest.raises(ActionDenied):
        await task
    assert ran == []


def test_block_that_was_not_entered_proves_nothing(guard: Guard) -> None:
    with pytest.raises(ConfigurationError, match="call it inside the block"):
        guard.action("pay").proof()
