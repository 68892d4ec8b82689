from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from toolgate import ActionDenied, Guard

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


@pytest.fixture(params=["decorator", "block"])
def tool(request: pytest.FixtureRequest, guard: Guard) -> Callable[[asyncio.Event], Any]:
    """A guarded coroutine function that says when it is inside and then waits for ever."""

    @guard.guarded("a.b")
    async def decorated(inside: int) -> None:
        events[inside].set()
        await asyncio.Event().wait()

    async def block(inside: int) -> None:
        async with guard.action("a.b"):
            events[inside].set()
            await asyncio.Event().wait()

    events: dict[int, asyncio.Event] = {}

    def call(inside: asyncio.Event) -> Any:
        events[0] = inside
        return decorated(0) if request.param == "decorator" else block(0)

    return call


async def test_closed_inside_the_tool(
    tool: Callable[[asyncio.Event], Any], guard: Guard, gateway: Any
) -> None:
    """A coroutine closed inside its tool ends in peace, and its entry is sent all the same."""
    inside = asyncio.Event()
    coroutine = tool(inside)
    # By hand: nothing before the tool has to wait, and a task would not let go of its coroutine.
    coroutine.send(None)
    assert inside.is_set()
    coroutine.close()
    assert await guard.aflush(1)
    assert [(each["status"], each["context"]["error"]["type"]) for each in gateway.logs] == [
        ("failed", "GeneratorExit")
    ]


async def test_cancelled_inside_the_tool(
    tool: Callable[[asyncio.Event], Any], guard: Guard, gateway: Any
) -> None:
    """A cancelled call is recorded before the cancellation goes on."""
    inside = asyncio.Event()
    task = asyncio.create_task(tool(inside))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each["status"] for each in gateway.logs] == ["failed"]


def test_an_argument_called_reason_is_not_logged(
    guard: Guard, gateway: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line of a refused call has the gateway's reason, never an argument of that name."""

    @guard.guarded("a.b")
    def refund(reason: str) -> None:
        pytest.fail("a blocked tool ran")

    gateway.check = [BLOCKED]
    with caplog.at_level(logging.INFO, logger="toolgate"), pytest.raises(ActionDenied):
        refund("the customer's own words")
    told = [each for each in caplog.records if each.__dict__.get("toolgate_event") == "record"]
    assert [each.__dict__["toolgate_reason"] for each in told] == ["no permission"]
    assert "own words" not in caplog.text
