"""Paused runs: which call a tool runs for, calls that are carried out once, a state that is kept, and going on from it."""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from anthropic.lib.tools import ToolError

from toolgate import ConfigurationError, Guard, GuardError
from toolgate._drivers import adrive, drive
from toolgate.testing import FakeGateway
from toolgate_integrations.anthropic.runs import (
    Called,
    CallsOfRun,
    GuardedRun,
    HeldCall,
    PausedRun,
    Resumption,
    find_called,
)
from toolgate_integrations.base import Bridge, ToolCall, refusal_text


class ToldError(Exception):
    """What the model reads of a call that did not run."""


class Tool:
    """A guarded tool, as a plugin makes it.

    Attributes:
        ran: what it was called with.
    """

    def __init__(self, gate: Bridge, name: str) -> None:
        self.bridge, self.name = gate, name
        self.ran: list[Mapping[str, Any]] = []

    def asked(self, called: Called) -> ToolCall:
        return self.bridge.call(self.name, called.input, called.call_id, run_id=called.run_id)

    def call(self, given: Any) -> Any:
        called = find_called(self.name, given)

        def run(approved: dict[str, Any]) -> str:
            self.ran.append(approved)
            if self.name == "burn":
                raise RuntimeError("water does not burn")
            return f"{self.name} done"

        try:
            return called.once(lambda: self.bridge.run(self.asked(called), run))
        except GuardError as error:
            if self.bridge.pauses_for(error):
                called.hold(error)
            raise ToldError(refusal_text(error)) from error


class AsyncTool(Tool):
    """The same, of an asynchronous framework."""

    async def call(self, given: Any) -> Any:
        return await asyncio.to_thread(super().call, given)


class Again(Resumption):
    """How a plugin goes on with a run.

    Attributes:
        said: what the model reads, by the ids of the calls.
    """

    said: dict[str | None, str]

    def add_result(self, called: Called, content: Any, *, is_error: bool = False) -> None:
        self.said[called.call_id] = f"error: {content}" if is_error else content

    def add_error(self, called: Called, error: Exception) -> None:
        self.add_result(called, error, is_error=True)


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=["tools.look", "tools.burn"], require_approval=["tools.pay"])


@pytest.fixture
def guard(gateway: FakeGateway) -> Guard:
    return gateway.guard()


@pytest.fixture
def gate(guard: Guard) -> Bridge:
    return Bridge(guard, on_hold="pause", can_pause=True)


def run_of(run_id: str | None = None) -> CallsOfRun:
    return CallsOfRun(run_id)


def ids(message: Any) -> list[str]:
    """The calls that a message makes."""
    return list(message["calls"])


def paused(gate: Bridge, *payments: str) -> Any:
    """The state of a run that is paused for these payments, as it comes back from a store."""
    calls, tool = run_of("run-1"), Tool(gate, "pay")
    made = [Called("pay", {"to": each, "amount": 40}, f"call-{each}", calls) for each in payments]
    calls.current = lambda: made
    for each in made:
        with pytest.raises(ToldError, match="waits for a person"):
            tool.call(each.input)
    assert tool.ran == []
    results = {each: {"of": each} for each in ("call-look", *calls.held)}
    state = calls.state([{"calls": list(calls.held)}], [], results)
    # What a framework says of a call that waits is not what becomes of it.
    assert state["results"] == [{"of": "call-look"}]
    return json.loads(json.dumps(state))


def resumed(state: Any, *tools: Any, **given: Any) -> Again:
    found = PausedRun.read(state, ids)
    again = Again(found, run_of(found.run_id), tools, given.get("rejected"))
    again.said = {}
    return again


def test_a_call_is_carried_out_once() -> None:
    """Asked for again it is told again, be it an answer or an error; so is one that was interrupted."""
    run, ran = run_of(), []

    def tool(end: BaseException | None) -> str:
        ran.append(end)
        if end is not None:
            raise end
        return "seen"

    for _ in range(2):
        assert drive(run.once("answered", lambda: tool(None))) == "seen"
        with pytest.raises(LookupError):
            drive(run.once("failed", lambda: tool(LookupError())))
    with pytest.raises(KeyboardInterrupt):
        drive(run.once("interrupted", lambda: tool(KeyboardInterrupt())))
    with pytest.raises(ToolError, match="was interrupted"):
        drive(run.once("interrupted", lambda: tool(None)))
    assert len(ran) == 3


async def test_an_asynchronous_call_is_carried_out_once() -> None:
    """The same holds for coroutines; whoever asks while it is under way does not have it carried out beside."""
    run, begun, going, ran = run_of(), asyncio.Event(), asyncio.Event(), []

    async def tool() -> str:
        ran.append(1)
        begun.set()
        await going.wait()
        return "seen"

    first = asyncio.create_task(adrive(run.once("one", tool)))
    await begun.wait()
    with pytest.raises(ToolError, match="was interrupted"):
        await adrive(run.once("one", tool))
    going.set()
    assert await first == await adrive(run.once("one", tool)) == "seen"
    cancelled = asyncio.create_task(adrive(run.once("two", asyncio.Event().wait)))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(ToolError, match="was interrupted"):
        await adrive(run.once("two", tool))
    assert ran == [1]


def test_a_call_is_found_by_its_very_input() -> None:
    """Equal inputs are of two calls, and an input that nobody knows is of none, and runs without a name."""
    run, inputs = run_of(), [{"what": "sky"}, {"what": "sky"}]
    calls = [Called("look", each, f"call-{at}", run) for at, each in enumerate(inputs)]
    run.current = lambda: calls
    assert [find_called("look", each).call_id for each in inputs] == ["call-0", "call-1"]
    unknown = find_called("look", {"what": "sky"})
    assert (unknown.call_id, unknown.run_id, unknown.once(lambda: "seen")) == (None, None, "seen")


@pytest.mark.parametrize("kind", [Tool, AsyncTool])
async def test_going_on(gateway: FakeGateway, gate: Bridge, kind: type[Tool]) -> None:
    """What was approved runs with what the person changed, a no is taken to the gateway, the rest stays held."""
    state = paused(gate, "eve", "ann", "joe")
    requests = {each.context["to"]: each.approval_id for each in gateway.pending()}
    gateway.approve(requests["eve"], context={"to": "eve", "amount": 1})
    tool = kind(gate, "pay")
    again = resumed(state, tool, rejected={"call-ann": "not ann"})
    if kind is Tool:
        drive(again.execute())
    else:
        await adrive(again.execute())
    assert again.said == {"call-eve": "pay done", "call-ann": "error: not ann"}
    assert tool.ran == [{"to": "eve", "amount": 1}]
    assert [each.approval_id for each in again.calls.held.values()] == [requests["joe"]]
    assert [each.approval_id for each in gateway.pending()] == [requests["joe"]]
    assert gate.guard.flush(10)
    assert gateway.assert_logged("tools.pay", "denied", to="ann").context["reason"] == "not ann"


def test_what_goes_wrong_is_told_and_the_others_run(gateway: FakeGateway, gate: Bridge) -> None:
    """An error of one tool, and a call that was declined, keep no other call from running."""
    state = paused(gate, "eve", "ann")
    state["held"] += [
        {**state["held"][0], "call_id": "call-burn", "name": "burn", "input": {"what": "water"}}
    ]
    state["messages"][-1]["calls"].append("call-burn")
    requests = {each.context["to"]: each.approval_id for each in gateway.pending()}
    gateway.deny(requests["eve"], note="too much")
    gateway.approve(requests["ann"])
    again = resumed(state, Tool(gate, "burn"), Tool(gate, "pay"))
    drive(again.execute())
    assert "too much" in again.said["call-eve"]
    assert again.said["call-burn"] == "error: water does not burn"
    assert again.said["call-ann"] == "pay done"


def test_gone_on_with_at_once(gateway: FakeGateway, gate: Bridge) -> None:
    """Several that go on with one and the same state at once find each its own calls, and run each once."""
    state, tool = paused(gate, "eve", "ann"), Tool(gate, "pay")
    gateway.approve(next(each.approval_id for each in gateway.pending() if each.context["to"] == "eve"))
    each = [resumed(state, tool) for _ in range(3)]
    threads = [threading.Thread(target=lambda one=one: drive(one.execute())) for one in each]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert tool.ran == [{"to": "eve", "amount": 40}]
    assert all(set(one.calls.held) == {"call-ann"} for one in each)


@pytest.mark.parametrize("change", ["input", "call_id", "run_id", "name"])
def test_a_state_that_was_changed(gateway: FakeGateway, gate: Bridge, change: str) -> None:
    """An approval lets through nothing but the call it was given for."""
    state = paused(gate, "eve")
    gateway.approve()
    gateway.require_approval("tools.other")
    [held] = state["held"]
    if change == "input":
        held["input"] = {"to": "mallory"}
    elif change == "call_id":
        held["call_id"] = "call-other"
        state["messages"][-1]["calls"] = ["call-other"]
    elif change == "run_id":
        state["run_id"] = "run-other"
    else:
        held["name"] = "other"
    tools = [Tool(gate, "pay"), Tool(gate, "other")]
    drive(resumed(state, *tools).execute())
    assert [each.ran for each in tools] == [[], []]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"messages": []}, "state is not valid; pass"),
        ({"messages": [{"calls": ["call-other"]}]}, "state is not valid; pass"),
        ({"messages": None}, "state is not valid; pass"),
        ({"held": []}, "state is not valid; pass"),
        ({"held": [{"call_id": "call-eve"}]}, "state is not valid; pass"),
        ({"run_id": 7}, "run_id is 7"),
    ],
)
def test_what_is_no_state(gate: Bridge, change: dict[str, Any], why: str) -> None:
    """It is refused before anything is asked."""
    state = paused(gate, "eve")
    with pytest.raises(ConfigurationError, match=why):
        resumed({**state, **change}, Tool(gate, "pay"))
    with pytest.raises(ConfigurationError, match="state is not valid; pass"):
        resumed({**state, "held": state["held"] * 2}, Tool(gate, "pay"))


@pytest.mark.parametrize(
    ("rejected", "why"),
    [
        (["call-eve"], "rejected is"),
        ({"call-eve": None}, "rejected is"),
        ({"call-ann": "no"}, "'call-ann', which is not waiting for approval"),
    ],
)
def test_what_is_no_rejection(gate: Bridge, rejected: Any, why: str) -> None:
    """A no is a reason, by the id of a call that waits."""
    state = paused(gate, "eve")
    with pytest.raises(ConfigurationError, match=why):
        resumed(state, Tool(gate, "pay"), rejected=rejected)
    with pytest.raises(ConfigurationError, match="tool 'pay' waits"):
        resumed(state, Tool(gate, "look"))


def test_a_rejection_that_cannot_be_recorded(guard: Guard, caplog: Any) -> None:
    """An operator's mistake ends the run, and stands in the program's log."""
    with pytest.raises(ConfigurationError, match="a server cannot have the name 'tools'"):
        Bridge(guard).reject(ToolCall("pay", {}, server="tools"), "no")
    assert "a server cannot have the name 'tools'" in caplog.text


def test_what_a_run_shows_while_it_is_paused(gate: Bridge) -> None:
    """Its name, which stays, and the calls that wait."""
    state = paused(gate, "eve")
    run = GuardedRun(None, run_id=state["run_id"], state=state)
    assert (run.run_id, run.held) == ("run-1", (HeldCall(**state["held"][0]),))


@pytest.mark.parametrize(
    ("on_hold", "call_id", "pauses"),
    [
        ("pause", "call-1", True),
        ("wait", "call-1", False),
        ("notify_model", None, False),
        ("raise", None, False),
    ],
)
def test_what_follows_from_on_hold(
    gateway: FakeGateway, guard: Guard, on_hold: str, call_id: str | None, pauses: bool
) -> None:
    """A run pauses for held calls only where it is to; told that it waits, a call bears no id."""
    gate = Bridge(guard, on_hold=on_hold, can_pause=True, agent="clerk")
    call = gate.call("pay", {"to": "eve"}, "call-1")
    assert (call.call_id, call.agent) == (call_id, "clerk")
    pending = drive(gate.find_pending_steps(call))
    assert pending is not None
    assert gate.pauses_for(pending) is pauses
    assert not gate.pauses_for(None)
    assert gate.call("pay", {}, None, agent="other").agent == "other"


def test_arguments_of_a_gate_that_are_wrong(guard: Guard) -> None:
    """Each is refused in a line that names it."""
    with pytest.raises(
        ConfigurationError, match="on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"
    ):
        Bridge(guard, on_hold="later", can_pause=True)
    with pytest.raises(ConfigurationError, match="agent is 7; pass a string"):
        Bridge(guard, on_hold="wait", agent=7)  # type: ignore[arg-type]  # what is refused
