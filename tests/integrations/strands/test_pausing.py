"""Pauses for a person, what ends them, and functions that are guarded inside a tool."""

import asyncio
from typing import Any

import pytest
from strands import ToolContext, tool
from support.frameworks.harness import Call, Scene
from support.frameworks.strands import agent, answers, read

from toolgate_integrations.strands import GuardPlugin

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")


async def woken(agent: Any, result: Any, said: Any = "y", only: str | None = None) -> Any:
    held = {each.reason["tool_use_id"]: each.id for each in result.interrupts}
    return await agent.invoke_async(answers(held if only is None else {only: held[only]}, said))


async def test_what_a_person_is_shown(scene: Scene) -> None:
    """The interrupt says which call waits, and for which approval."""
    result = await agent(scene, PAY).invoke_async("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    assert "approval" in result.interrupts[0].reason.pop("reason")
    assert result.interrupts[0].reason == {
        "type": "tool_approval",
        "tool_use_id": "call-pay",
        "name": "pay",
        "input": PAY.arguments,
        "approval_id": request["id"],
        "action": "tools.pay",
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [(False, ""), ("No ", ""), ("denied", ""), ({"approved": False, "message": "not eve"}, " not eve")],
)
async def test_a_no_in_the_framework(scene: Scene, said: Any, why: str) -> None:
    """It is taken as it is, even where the gateway has approved, and the model reads what was said."""
    paying = agent(scene, PAY)
    first = await paying.invoke_async("go")
    scene.approve(first.interrupts[0].reason["approval_id"])
    last = await woken(paying, first, said)
    assert (last.stop_reason, scene.ran) == ("end_turn", [])
    assert read(paying)["call-pay"] == ("error", f"Not done: the call was rejected.{why}")
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


@pytest.mark.parametrize("said", [True, "approved", "whatever", {"approved": True}, {"type": "approve"}])
async def test_whatever_else_is_said_decides_nothing(scene: Scene, said: Any) -> None:
    """It wakes the run; undecided at the gateway, it pauses again, for the same request."""
    paying = agent(scene, PAY)
    first = await paying.invoke_async("go")
    again = await woken(paying, first, said)
    assert again.interrupts[0].reason == first.interrupts[0].reason
    assert scene.ran == []


async def test_a_no_after_being_woken_too_early(scene: Scene) -> None:
    """Each pause has an answer of its own: that of the first does not answer the second."""
    paying = agent(scene, PAY)
    again = await woken(paying, await paying.invoke_async("go"))
    last = await woken(paying, again, "n")
    assert (last.stop_reason, scene.ran) == ("end_turn", [])
    assert read(paying)["call-pay"] == ("error", "Not done: the call was rejected.")
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


async def test_answered_one_by_one(scene: Scene) -> None:
    """A run that is woken for one of two calls pauses for the other, and takes no answer for its."""
    paying = agent(scene, PAY, MORE)
    first = await paying.invoke_async("go")
    approvals = {each.reason["tool_use_id"]: each.reason["approval_id"] for each in first.interrupts}
    scene.approve(approvals["call-more"])
    second = await woken(paying, first, "y", only="call-more")
    assert scene.ran == [("pay", "ann", 70)]
    assert [each.reason["tool_use_id"] for each in second.interrupts] == ["call-pay"]
    last = await woken(paying, second, "n")
    assert (last.stop_reason, scene.ran) == ("end_turn", [("pay", "ann", 70)])
    assert scene.requests() == 2


async def test_a_run_that_is_given_up_while_it_waits(scene: Scene, guard_waits: Any) -> None:
    """The request of a cancelled run does not stay behind, and nothing runs."""
    paying = agent(scene, PAY, plugins=[GuardPlugin(scene.guard, on_hold="wait")])
    run = asyncio.create_task(paying.invoke_async("go"))
    await guard_waits()
    asked = await scene.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert scene.status(asked["eve"]) == "cancelled"
    assert scene.ran == []


async def test_a_tool_that_stops_for_a_person_itself(scene: Scene) -> None:
    """It is asked about each time it is carried out; what it stops for is not its failure."""
    ran = []

    @tool(context=True)
    def look(what: str, tool_context: ToolContext) -> str:
        """Look."""
        ran.append(what)
        return f"seen {what}, {tool_context.interrupt('mine', reason='which one?')}"

    looking = agent(scene, LOOK, tools=[look])
    first = await looking.invoke_async("go")
    assert scene.logged() == [("look", "pending")]
    last = await looking.invoke_async(answers({"call-look": first.interrupts[0].id}, "the blue one"))
    assert (last.stop_reason, ran) == ("end_turn", ["sky", "sky"])
    assert read(looking)["call-look"] == ("success", "seen sky, the blue one")
    assert scene.logged() == [("look", "pending"), ("look", "success")]


async def test_a_guarded_function_is_asked_once(scene: Scene) -> None:
    """A function that is guarded itself asks by its own action; its hold pauses the run as any other."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)
    ran = []

    @tool
    @scene.guard.guarded("bank.transfer")
    def pay(to: str, amount: int) -> str:
        """Pay."""
        ran.append((to, amount))
        return "paid"

    @tool
    @scene.guard.guarded("bank.transfer")
    async def wire(to: str, amount: int) -> str:
        """Wire."""
        ran.append((to, amount))
        return "wired"

    paying = agent(scene, PAY, Call("wire", {"to": "ann", "amount": 1}, "call-wire"), tools=[pay, wire])
    first = await paying.invoke_async("go")
    assert {each.reason["action"] for each in first.interrupts} == {"bank.transfer"}
    for each in first.interrupts:
        scene.approve(each.reason["approval_id"])
    last = await woken(paying, first)
    assert (last.stop_reason, sorted(ran)) == ("end_turn", [("ann", 1), ("eve", 40)])
    assert scene.requests() == 2
    assert scene.logged() == [("transfer", "pending")] * 2 + [("transfer", "success")] * 2


async def test_a_guarded_step_inside_a_tool(scene: Scene) -> None:
    """Held inside, the tool is carried out again once the person decided; refused, the model reads why."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)
    ran = []

    @scene.guard.guarded("bank.transfer")
    def transfer(to: str) -> str:
        ran.append(to)
        return "transferred"

    @tool
    def look(what: str) -> str:
        """Look."""
        return transfer(what)

    looking = agent(scene, LOOK, Call("look", {"what": "sea"}, "call-sea"), tools=[look])
    first = await looking.invoke_async("go")
    held = {each.reason["tool_use_id"]: each.reason["approval_id"] for each in first.interrupts}
    scene.approve(held["call-look"])
    scene.deny(held["call-sea"], "not the sea")
    last = await woken(looking, first)
    assert (last.stop_reason, ran) == ("end_turn", ["sky"])
    assert "not the sea" in read(looking)["call-sea"][1]
