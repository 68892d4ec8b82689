"""Calls that a framework runs by itself: asked about before, and recorded where they are run."""

from typing import Any

import pytest

from toolgate import ApprovalPending
from toolgate.testing import FakeGateway
from toolgate_integrations.base import Bridge, ToolCall

BOTH = pytest.mark.parametrize("mode", ["sync", "async"])


def logged(gateway: FakeGateway) -> list[tuple[str, str]]:
    return [(each.action, each.status) for each in gateway.entries]


async def begin(bridge: Bridge, call: ToolCall, mode: str) -> Any:
    return bridge.begin(call) if mode == "sync" else await bridge.abegin(call)


@BOTH
async def test_a_call_is_asked_about_before_it_runs(mode: str) -> None:
    """What runs it is recorded once; what is not run is recorded as failed."""
    gateway = FakeGateway(allow=["tools.look"])
    bridge = Bridge(gateway.guard())
    begun = await begin(bridge, ToolCall("look", {"what": "sky"}), mode)
    assert ([each.action for each in gateway.checks], gateway.entries) == (["tools.look"], [])
    assert not begun.asks_itself
    assert begun.run(lambda: "seen") == "seen"
    begun = await begin(bridge, ToolCall("look", {"what": "sky"}), mode)
    begun.not_run(RuntimeError("another hook said no"))
    assert logged(gateway) == [("tools.look", "success"), ("tools.look", "failed")]


@BOTH
async def test_a_function_that_is_guarded_itself_asks_where_it_runs(mode: str) -> None:
    """Once, as the agent of the call and in its run; not run, nothing was asked and nothing is recorded."""
    gateway = FakeGateway(allow=["bank.look"])

    @gateway.guard().guarded("bank.look")
    def look(what: str) -> str:
        return f"seen {what}"

    bridge = Bridge(gateway.guard(), agents={"clerk": "agent-7"})
    call = ToolCall("look", {"what": "sky"}, call_id="call-1", run_id="run-1", agent="clerk", function=look)
    (await begin(bridge, call, mode)).not_run(RuntimeError("another hook said no"))
    begun = await begin(bridge, call, mode)
    assert (gateway.checks, gateway.entries) == ([], [])
    assert (begun.asks_itself, begun.arguments) == (True, {"what": "sky"})

    async def alook() -> str:
        return look("sky")

    assert (begun.run(lambda: look("sky")) if mode == "sync" else await begun.arun(alook)) == "seen sky"
    assert [(each.action, each.agent_id, each.run_id) for each in gateway.checks] == [
        ("bank.look", "agent-7", "run-1")
    ]
    assert logged(gateway) == [("bank.look", "success")]


@BOTH
async def test_a_guarded_function_that_waits_can_be_rejected(mode: str) -> None:
    """It has been let through by nobody before, and the bridge knows the request that it has made."""
    gateway = FakeGateway(require_approval=["bank.pay"])
    pay = gateway.guard().guarded("bank.pay")(lambda: "paid")
    bridge, call = Bridge(gateway.guard()), ToolCall("pay", {}, call_id="call-1", function=pay)
    begun = await begin(bridge, call, mode)
    with pytest.raises(ApprovalPending):
        begun.run(pay)
    assert len(gateway.pending()) == 1
    bridge.reject(call, "not now")
    assert gateway.pending() == []
