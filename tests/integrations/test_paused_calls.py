"""Calls of a paused run: answers of the framework's user, decisions of the gateway, and calls that run once."""

from typing import Any

import httpx
import pytest

from toolgate import Guard
from toolgate._drivers import adrive, drive
from toolgate.testing import FakeGateway
from toolgate_integrations._calls import PausedCall, RunOnce, find_rejection, invoke
from toolgate_integrations.base import Bridge, ToolCall

PAY = ToolCall("pay", {"to": "eve"}, call_id="call-pay", run_id="run-1")
MORE = ToolCall("pay", {"to": "ann"}, call_id="call-more", run_id="run-1")
LOOK = ToolCall("look", {"what": "sky"}, call_id="call-look", run_id="run-1")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, ""),
        (" No ", ""),
        ("rejected", ""),
        ({"approved": False, "message": "not eve"}, "not eve"),
        ({"response": "deny", "reason": "too much"}, "too much"),
        ({"type": "ignore"}, ""),
        ({"type": "response", "args": "ask ann"}, "ask ann"),
        ({"approved": False, "message": "x" * 5000}, "x" * 2000),
    ],
)
def test_answers_that_reject_a_call(answer: object, reason: str) -> None:
    assert find_rejection(answer) == reason


@pytest.mark.parametrize(
    "answer", [None, True, 0, "go", "", {}, {"approved": True}, {"type": "edit", "args": {}}, ["no"]]
)
def test_other_answers_have_no_effect(answer: object) -> None:
    assert find_rejection(answer) is None


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_calls_of_a_turn_are_rejected_or_looked_up(mode: str) -> None:
    gateway = FakeGateway(allow=["tools.look"], require_approval=["tools.pay"])
    with gateway.guard() as guard:
        bridge = Bridge(guard, on_hold="pause", can_pause=True)
        paused = drive(bridge.find_pending_steps(MORE))
        assert paused is not None
        calls = [PausedCall(PAY), PausedCall(MORE, "not ann", paused.approval_id), PausedCall(LOOK)]
        steps = bridge.settle_steps(calls)
        pending = drive(steps) if mode == "sync" else await adrive(steps)
        assert guard.flush(10)
    assert [None if each is None else each.action for each in pending] == ["tools.pay", None, None]
    assert [each.context["to"] for each in gateway.pending()] == ["eve"]
    assert gateway.assert_logged("tools.pay", "denied", to="ann").context["reason"] == "not ann"


def test_calls_are_not_pending_without_a_gateway() -> None:
    """The check before a call runs fails too, and the model reads its error."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no gateway", request=request)

    transport = httpx.MockTransport(refuse)
    with Guard("http://127.0.0.1:9", f"ak_{'a' * 37}", "agent", timeout=0.1, transport=transport) as guard:
        assert drive(Bridge(guard).settle_steps([PausedCall(PAY), PausedCall(LOOK)])) == [None, None]


def test_a_call_runs_once() -> None:
    """Further executions return the result or raise the exception of the first one."""
    ran: list[Any] = []

    def tool(end: BaseException | None) -> str:
        ran.append(end)
        if end is not None:
            raise end
        return "paid"

    succeeded, failed, interrupted = (RunOnce(LookupError("interrupted")) for _ in range(3))
    for _ in range(2):
        assert drive(succeeded.steps(invoke(tool, None))) == "paid"
        with pytest.raises(ValueError, match="too much"):
            drive(failed.steps(invoke(tool, ValueError("too much"))))
    with pytest.raises(KeyboardInterrupt):
        drive(interrupted.steps(invoke(tool, KeyboardInterrupt())))
    with pytest.raises(LookupError, match="interrupted"):
        drive(interrupted.steps(invoke(tool, None)))
    assert len(ran) == 3
    assert not any(each.is_running for each in (succeeded, failed, interrupted))
