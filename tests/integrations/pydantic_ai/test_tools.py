"""Tools of every kind, other ways to hold, and other ways to run."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import CombinedToolset, FunctionToolset
from support.frameworks.harness import Call, Scene
from support.frameworks.pydantic_ai import agent, read, resumed, scripted
from support.waiting import until

from toolgate import ConfigurationError
from toolgate_integrations.pydantic_ai import GuardCapability, GuardToolset

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")


def pending(scene: Scene) -> list[dict[str, Any]]:
    """The requests that wait; none is seen while the gateway has had enough of being asked."""
    answer = scene.owner.http.get("/api/approvals", params={"status": "pending"})
    return answer.json() if answer.status_code == 200 else []


async def test_waiting_within_the_run(scene: Scene) -> None:
    """With `wait` the run goes on by the person's decision, and its output type needs nothing."""
    paying = agent(
        scene, PAY, DROP, output_type=str, capabilities=[GuardCapability(scene.guard, on_hold="wait")]
    )
    run = asyncio.create_task(paying.run("go"))
    [request] = await asyncio.to_thread(until, lambda: pending(scene))
    assert scene.ran == []
    scene.approve(request["id"])
    result = await run
    assert result.output == "done"
    assert scene.ran == [("pay", "eve", 40)]
    assert read(result)["call-pay"] == ("success", "paid 40 to eve")
    assert scene.logged() == [("drop", "denied"), ("pay", "pending"), ("pay", "success")]


async def test_declined_while_waiting(scene: Scene) -> None:
    """The model reads the person's note, and the run goes on."""
    paying = agent(scene, PAY, output_type=str, capabilities=[GuardCapability(scene.guard, on_hold="wait")])
    run = asyncio.create_task(paying.run("go"))
    [request] = await asyncio.to_thread(until, lambda: pending(scene))
    scene.deny(request["id"], "not eve")
    outcome, text = read(await run)["call-pay"]
    assert (outcome, scene.ran) == ("denied", [])
    assert "not eve" in text


async def test_a_run_that_is_given_up_while_it_waits(scene: Scene, guard_waits: Any) -> None:
    """The request of a cancelled run does not stay behind."""
    paying = agent(scene, PAY, output_type=str, capabilities=[GuardCapability(scene.guard, on_hold="wait")])
    run = asyncio.create_task(paying.run("go"))
    await guard_waits()
    [request] = pending(scene)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(until, lambda: scene.status(request["id"]) == "cancelled")
    assert scene.ran == []


async def test_telling_the_model(scene: Scene) -> None:
    """With `tell` the model reads that a person is asked; once approved, its next same call goes through."""
    telling = {"output_type": str, "capabilities": [GuardCapability(scene.guard, on_hold="notify_model")]}
    first = await agent(scene, PAY, **telling).run("go", conversation_id="talk")
    [request] = pending(scene)
    outcome, text = read(first)["call-pay"]
    assert outcome == "denied"
    assert request["id"] in text
    scene.approve(request["id"])
    again = Call("pay", PAY.arguments, "call-again")
    last = await agent(scene, again, **telling).run("go on", conversation_id="talk")
    assert scene.ran == [("pay", "eve", 40)]
    assert last.output == "done"


async def test_a_guarded_function_is_asked_once(scene: Scene) -> None:
    """A function that is guarded itself asks by its own action; its hold pauses the run as any other."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)
    ran = []

    @scene.guard.guarded("bank.transfer")
    def pay(to: str, amount: int) -> str:
        ran.append((to, amount))
        return "paid"

    @scene.guard.guarded("bank.transfer")
    async def wire(to: str, amount: int) -> str:
        ran.append((to, amount))
        return "wired"

    wired = Call("wire", {"to": "ann", "amount": 1}, "call-wire")
    paying = agent(scene, PAY, wired, tools=[pay, wire])
    first = await paying.run("go")
    assert {each["action"] for each in first.output.metadata.values()} == {"bank.transfer"}
    for said in first.output.metadata.values():
        scene.approve(said["approval_id"])
    last = await resumed(paying, first, pay=True, wire=True)
    assert sorted(ran) == [("ann", 1), ("eve", 40)]
    assert last.output == "done"
    assert scene.requests() == 2
    assert scene.logged() == [("transfer", "pending")] * 2 + [("transfer", "success")] * 2


async def test_a_guarded_step_inside_a_tool_defers_the_tool(scene: Scene) -> None:
    """Held inside, the tool is called again once the person decided; the step passes once."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)
    ran = []

    @scene.guard.guarded("bank.transfer")
    def transfer(to: str) -> str:
        ran.append(to)
        return "transferred"

    def look(what: str) -> str:
        return transfer(what)

    looking = agent(scene, LOOK, tools=[look])
    first = await looking.run("go")
    scene.approve(first.output.metadata["call-look"]["approval_id"])
    last = await resumed(looking, first, look=True)
    assert (last.output, ran) == ("done", ["sky"])
    assert scene.logged() == [
        ("look", "pending"),
        ("look", "success"),
        ("transfer", "pending"),
        ("transfer", "success"),
    ]


@pytest.mark.parametrize("error", [ModelRetry, ToolFailed])
async def test_a_retry_is_a_failure(scene: Scene, error: type[Exception]) -> None:
    """A tool that sends the model back has failed, as the log says; the model tries again, and is asked about again."""
    tried = []

    def look(what: str) -> str:
        tried.append(what)
        if len(tried) == 1:
            raise error("look elsewhere")
        return scene.look(what)

    calls = [[LOOK], [Call("look", {"what": "sea"}, "call-again")]]
    looking = Agent(scripted(*calls), tools=[look], capabilities=[GuardCapability(scene.guard)])
    assert (await looking.run("go")).output == "done"
    assert scene.ran == [("look", "sea")]
    assert scene.logged() == [("look", "failed"), ("look", "success")]
    [failed] = [each for each in scene.owner.entries() if each["status"] == "failed"]
    assert "look elsewhere" in str(failed["context"])


async def test_iterating_over_the_run(scene: Scene) -> None:
    """A run that its caller drives node by node is guarded alike."""
    paying = agent(scene, LOOK, PAY, DROP)
    async with paying.iter("go") as run:
        async for _ in run:
            pass
    first = run.result
    scene.approve(first.output.metadata["call-pay"]["approval_id"])
    results = first.output.build_results(approve_all=True)
    async with paying.iter(message_history=first.all_messages(), deferred_tool_results=results) as run:
        async for _ in run:
            pass
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 40)]
    assert run.result.output == "done"


async def test_an_agent_in_a_tool_has_its_own_permissions(scene: Scene) -> None:
    """An agent called by a tool acts as the agent that is named for it; waiting, it pauses nobody else."""
    clerk = scene.owner.agent("clerk")
    scene.owner.permit(clerk, "tools.pay", requires_approval=True)
    scene.owner.permit(scene.agent_id, "tools.delegate")
    capabilities = [GuardCapability(scene.guard, agents={"clerk": clerk}, on_hold="wait")]
    inner = agent(scene, PAY, LOOK, output_type=str, name="clerk", capabilities=capabilities)

    async def delegate(what: str) -> str:
        return str((await inner.run(what)).output)

    outer = agent(scene, Call("delegate", {"what": "x"}, "call-1"), tools=[delegate], name="treasurer")
    run = asyncio.create_task(outer.run("go"))
    [request] = await asyncio.to_thread(until, lambda: pending(scene))
    assert request["agent_id"] == clerk
    scene.approve(request["id"])
    assert (await run).output == "done"
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [
        ("delegate", "success"),
        ("look", "denied"),
        ("pay", "pending"),
        ("pay", "success"),
    ]


async def test_a_guarded_toolset(scene: Scene) -> None:
    """Without the capability: one toolset's tools are guarded, also below a prefix; others are not."""
    guarded = GuardToolset(FunctionToolset(list(scene.tools.values())), scene.guard).prefixed("my")
    calls = [Call(f"my_{each.tool}", each.arguments, each.id) for each in (LOOK, DROP, PAY)]
    free = Call("free", {}, "call-free")
    paying = agent(
        scene, *calls, free, tools=[lambda_named_free], toolsets=[CombinedToolset([guarded])], capabilities=[]
    )
    first = await paying.run("go")
    assert scene.ran == [("look", "sky")]
    assert read(first)["call-drop"][0] == "denied"
    assert read(first)["call-free"] == ("success", "free")
    scene.approve(first.output.metadata["call-pay"]["approval_id"])
    last = await resumed(paying, first, pay=True)
    assert scene.ran == [("look", "sky"), ("pay", "eve", 40)]
    assert last.output == "done"
    assert scene.logged() == [("drop", "denied"), ("look", "success"), ("pay", "pending"), ("pay", "success")]


def lambda_named_free() -> str:
    return "free"


lambda_named_free.__name__ = "free"


async def test_tool_actions_name_a_toolset_for_good(scene: Scene) -> None:
    """The copies that the framework makes of a toolset for each run ask by the same guard and names."""
    scene.owner.permit(scene.agent_id, "sky.look")

    def made(ctx: RunContext[Any]) -> GuardToolset:
        return GuardToolset(FunctionToolset([scene.look]), scene.guard, tool_actions={"look": "sky.look"})

    looking = Agent(scripted([LOOK]), output_type=[str, DeferredToolRequests])
    looking.toolset(made)
    assert (await looking.run("go")).output == "done"
    assert scene.guard.flush(30)
    assert [each["action"] for each in scene.owner.entries()] == ["sky.look"]


@pytest.mark.parametrize("outer", ["capability", "toolset"])
async def test_a_call_that_is_guarded_twice_is_refused(
    scene: Scene, outer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be asked about twice, and held twice: it does not run, and the operator can read why."""
    inside: Any = GuardToolset(FunctionToolset([scene.look]), scene.guard)
    given: Any = {"toolsets": [inside], "capabilities": [GuardCapability(scene.guard)]}
    if outer == "toolset":
        given = {"toolsets": [GuardToolset(inside, scene.guard)]}
    with pytest.raises(ConfigurationError, match="is guarded twice"):
        await Agent(scripted([LOOK]), output_type=[str, DeferredToolRequests], **given).run("go")
    assert scene.ran == []
    assert "the tool 'look' is guarded twice" in caplog.text
    assert scene.logged() == [("look", "failed")]


@pytest.mark.parametrize("make", [GuardCapability, lambda **given: GuardToolset(FunctionToolset(), **given)])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guard": "yes"}, "guard is 'yes'"),
        ({"on_hold": "later"}, "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"),
        ({"tool_actions": 3}, "tool_actions is 3"),
        ({"agents": ["a"]}, r"agents is \['a'\]"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: Any, given: dict[str, Any], said: str) -> None:
    """The mistake is named where it is made."""
    with pytest.raises(ConfigurationError, match=said):
        make(**given)
