"""A guarded workbench: whatever a guard or a tool does, the run goes on, and nothing runs that may not."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import FunctionalTermination, TextMessageTermination
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tool_agent import ToolException
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench, ToolResult, ToolSchema
from support.frameworks.autogen import Model, agent, read
from support.frameworks.harness import Call, Scene
from support.waiting import eventually

from toolgate import ConfigurationError
from toolgate_integrations.autogen import GuardedWorkbench

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")


def made(scene: Scene, *turns: Any, tools: Any = None, **options: Any) -> Any:
    tools = list(scene.tools.values()) if tools is None else tools
    return agent(Model(*turns), GuardedWorkbench(tools, scene.guard, **options))


class Broken(StaticWorkbench):
    """A workbench that raises instead of answering."""

    def __init__(self, tools: Any, error: BaseException) -> None:
        super().__init__(tools)
        self.error = error

    async def call_tool(self, *args: Any, **kwargs: Any) -> ToolResult:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of paper"),
        ToolException("call-look", "out of paper", "look"),
        asyncio.CancelledError(),
    ],
    ids=["error", "framework's", "cancelled"],
)
async def test_whatever_is_raised_the_run_goes_on(scene: Scene, error: BaseException) -> None:
    """An exception out of a workbench would have the run wait forever; it is told to the model, and logged."""
    broken = Broken([FunctionTool(scene.look, description="Look.")], error)
    result = await asyncio.wait_for(made(scene, [LOOK], tools=broken).run(task="go"), 20)
    assert result.messages[-1].content == "done"
    assert scene.logged() == [("look", "failed")]


class Gone(StaticWorkbench):
    """A workbench whose server is gone once its tools were listed."""

    listed = False

    async def list_tools(self) -> list[ToolSchema]:
        if self.listed:
            raise ConnectionError("nobody is there")
        self.listed = True
        return await super().list_tools()

    async def call_tool(self, *args: Any, **kwargs: Any) -> ToolResult:
        raise ConnectionError("nobody is there")


async def test_tools_that_are_gone(scene: Scene) -> None:
    """The framework lists the tools again for each call, and a run would wait forever; before a turn it is an error."""
    bench = GuardedWorkbench(Gone([FunctionTool(scene.look, description="Look.")]), scene.guard)
    looking = AssistantAgent("treasurer", Model([LOOK]), workbench=bench)
    result = await asyncio.wait_for(looking.run(task="go"), 20)
    assert read(result.messages) == {"call-look": "nobody is there"}
    assert scene.logged() == [("look", "failed")]
    with pytest.raises(ConnectionError, match="nobody is there"):
        await looking.run(task="go")


async def test_what_the_guard_cannot_ask_is_refused(scene: Scene) -> None:
    """A guard that is broken lets nothing run, and the run goes on; one that is set up wrongly ends it."""

    def broken(name: str) -> str:
        raise LookupError(name)

    result = await asyncio.wait_for(made(scene, [LOOK], tool_actions=broken).run(task="go"), 20)
    assert result.messages[-1].content == "done"
    with pytest.raises(ConfigurationError, match="invalid action 'not an action'"):
        await asyncio.wait_for(made(scene, [LOOK], tool_actions={"look": "not an action"}).run(task="go"), 20)
    assert scene.ran == []


@pytest.mark.parametrize("arguments", ["[1]", "null", '"sky"'])
async def test_arguments_that_have_no_names(scene: Scene, arguments: str) -> None:
    """What a model writes in place of named arguments is told to it, and ends nothing."""
    result = await asyncio.wait_for(
        made(scene, [Call("look", json.loads(arguments), "call-look")]).run(task="go"), 20
    )
    assert scene.ran == []
    assert result.messages[-1].content == "done"


async def test_the_token_ends_a_call_that_waits(scene: Scene, guard_waits: Any) -> None:
    """Cancelled by the framework's token a call waits no longer, its request is withdrawn, and the run ends."""
    token = CancellationToken()
    running = asyncio.create_task(made(scene, [PAY], on_hold="wait").run(task="go", cancellation_token=token))
    await guard_waits()
    [approval_id] = (await scene.asked(1)).values()
    token.cancel()
    result = await asyncio.wait_for(running, 20)
    assert "cancelled" in read(result.messages)["call-pay"]
    assert scene.status(approval_id) == "cancelled"
    assert scene.ran == []


async def test_the_token_ends_a_tool_that_runs(scene: Scene) -> None:
    """Cancelled inside its tool a call is a failure, and the run ends."""
    token = CancellationToken()

    async def look(what: str) -> str:
        """Look."""
        token.cancel()
        await asyncio.Event().wait()
        return what

    running = made(scene, [LOOK], tools=[look]).run(task="go", cancellation_token=token)
    result = await asyncio.wait_for(running, 20)
    assert "cancelled" in read(result.messages)["call-look"]
    assert scene.logged() == [("look", "failed")]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside events"])
async def test_the_task_ends_a_call_that_waits(scene: Scene, guard_waits: Any, beside: bool) -> None:
    """AutoGen would leave it under way, and once approved its tool would run for nobody."""
    paying = made(scene, [PAY], on_hold="wait")
    if beside:
        inner = AssistantAgent("inner", Model())
        paying = agent(
            Model([PAY, Call("inner", {"task": "go"}, "call-inner")]),
            [
                GuardedWorkbench([scene.pay], scene.guard, on_hold="wait"),
                StaticStreamWorkbench([AgentTool(inner)]),
            ],
        )
    running = asyncio.create_task(paying.run(task="go"))
    await guard_waits()
    [approval_id] = (await scene.asked(1)).values()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def withdrawn() -> bool:
        return await asyncio.to_thread(scene.status, approval_id) == "cancelled"

    await eventually(withdrawn)
    assert scene.ran == []


async def test_the_task_leaves_a_tool_that_runs(scene: Scene) -> None:
    """As AutoGen does: it goes on to its end, and is recorded as what it came to."""
    goes_on = asyncio.Event()

    async def look(what: str) -> str:
        """Look."""
        running.cancel()
        await goes_on.wait()
        return scene.look(what)

    running = asyncio.create_task(made(scene, [LOOK], tools=[look]).run(task="go"))
    with pytest.raises(asyncio.CancelledError):
        await running
    goes_on.set()

    async def logged() -> Any:
        return await asyncio.to_thread(scene.logged)

    assert await eventually(logged) == [("look", "success")]


@pytest.mark.parametrize("wrapped", [list, lambda tools: StaticWorkbench([FunctionTool(tools[0], "Look.")])])
async def test_functions_that_are_guarded_themselves_ask_once_and_for_their_agent(
    scene: Scene, wrapped: Callable[[Any], Any]
) -> None:
    """A synchronous function, which the framework runs in a thread without its caller's context, acts as its agent."""
    other = scene.owner.agent("clerk")
    scene.owner.permit(other, "tools.look")

    @scene.guard.guarded("tools.look")
    def look(what: str) -> str:
        """Look."""
        return scene.look(what)

    result = await made(
        scene, [LOOK], tools=wrapped([look]), agents={"treasurer": other}, agent="treasurer"
    ).run(task="go")
    assert read(result.messages) == {"call-look": "seen sky"}
    assert scene.logged() == [("look", "success")]
    assert [each["agent_id"] for each in scene.owner.entries()] == [other]


async def test_the_agent_of_a_team_is_found(scene: Scene) -> None:
    """In a team the framework tells whose turn it is."""
    other = scene.owner.agent("clerk")
    scene.owner.permit(other, "tools.look")
    one = made(scene, [LOOK], agents={"treasurer": other})
    await RoundRobinGroupChat([one], termination_condition=TextMessageTermination("treasurer")).run(task="go")
    assert scene.guard.flush(30)
    assert [each["agent_id"] for each in scene.owner.entries()] == [other]


async def test_ids_that_come_again_are_other_calls(scene: Scene) -> None:
    """A model client that counts its calls anew does not make one call of two."""
    paying = made(scene, [PAY], [PAY], on_hold="wait")
    running = asyncio.create_task(paying.run(task="go"))
    scene.approve((await scene.asked(1))["eve"])

    async def second() -> Any:
        answer = await asyncio.to_thread(scene.owner.http.get, "/api/approvals", params={"status": "pending"})
        return answer.json()

    scene.approve((await eventually(second))[0]["id"])
    await asyncio.wait_for(running, 20)
    assert scene.ran == [("pay", "eve", 40)] * 2
    assert scene.requests() == 2


def held(messages: Any) -> bool:
    """Whether a call was told to wait."""
    events = [each for each in messages if isinstance(each, ToolCallExecutionEvent)]
    return any("waits for a person" in result.content for each in events for result in each.content)


async def test_a_told_call_goes_through_in_another_process(scene: Scene) -> None:
    """A team that was stopped at a held call, and is loaded elsewhere, makes the call again after the approval: once."""

    def team(*turns: Any) -> RoundRobinGroupChat:
        one = made(scene, *turns)
        return RoundRobinGroupChat([one], termination_condition=FunctionalTermination(held), max_turns=1)

    first = team([PAY])
    result = await first.run(task="go")
    assert "waits for a person" in read(result.messages)["call-pay"]
    kept = json.dumps(await first.save_state())
    [approval_id] = (await scene.asked(1)).values()
    scene.approve(approval_id)
    second = team([Call("pay", PAY.arguments, "call-again")])
    await second.load_state(json.loads(kept))
    result = await second.run(task="It was approved.")
    assert read(result.messages)["call-again"] == "paid 40 to eve"
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


async def test_a_call_that_waited_for_its_time_goes_through_later(scene: Scene) -> None:
    """The model makes it again, by another id: approved meanwhile, it runs once, and nobody is asked anew."""
    paying = made(scene, [PAY], on_hold="wait", hold_timeout=0.05)
    assert "waits for a person" in read((await paying.run(task="go")).messages)["call-pay"]
    scene.approve((await scene.asked(1))["eve"])
    again = made(scene, [Call("pay", PAY.arguments, "call-again")], on_hold="wait", hold_timeout=0.05)
    assert read((await again.run(task="go")).messages) == {"call-again": "paid 40 to eve"}
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


async def test_edits_are_held_to_the_tools_own_types(scene: Scene) -> None:
    """What the approver made of the arguments is validated by the tool."""
    running = asyncio.create_task(made(scene, [PAY], on_hold="wait").run(task="go"))
    scene.approve((await scene.asked(1))["eve"], context={"to": "eve", "amount": 25})
    await asyncio.wait_for(running, 20)
    assert scene.ran == [("pay", "eve", 25)]


async def test_what_is_given_stays_as_it_is(scene: Scene) -> None:
    """The tools of a workbench that is guarded are told to the model as before, and are not changed themselves."""
    tool = FunctionTool(scene.look, description="Look.")
    bench = StaticWorkbench([tool])
    guarded = GuardedWorkbench(bench, scene.guard)
    assert await guarded.list_tools() == await bench.list_tools()
    assert (await bench.call_tool("look", {"what": "sky"})).to_text() == "seen sky"
    assert scene.logged() == []
    state = await guarded.save_state()
    await guarded.load_state(state)
    async with guarded:
        await guarded.reset()


def test_what_cannot_be_guarded_is_said(scene: Scene) -> None:
    """Wrong arguments are refused where they are given."""
    with pytest.raises(ConfigurationError, match="workbench is 7"):
        GuardedWorkbench(7, scene.guard)  # type: ignore[arg-type]  # what is wrong is the point
    with pytest.raises(ConfigurationError, match="7 is not a tool"):
        GuardedWorkbench([7], scene.guard)  # type: ignore[list-item]  # likewise
    with pytest.raises(ConfigurationError, match="two tools have the name 'look'"):
        GuardedWorkbench([scene.look, FunctionTool(scene.look, description="Look.")], scene.guard)
    with pytest.raises(ConfigurationError, match="on_hold is 'pause'; use 'wait', 'raise' or 'notify_model'"):
        GuardedWorkbench([], scene.guard, on_hold="pause")  # type: ignore[arg-type]  # likewise
    with pytest.raises(ConfigurationError, match="already guarded"):
        GuardedWorkbench(GuardedWorkbench([], scene.guard), scene.guard)


def test_a_guarded_agent_is_not_written_down_unguarded(scene: Scene) -> None:
    """An agent's configuration would be loaded without its guard; it is refused."""
    with pytest.raises(ConfigurationError, match="create the agent in code"):
        GuardedWorkbench([scene.look], scene.guard).dump_component()
