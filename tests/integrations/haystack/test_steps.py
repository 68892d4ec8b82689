"""The calls of one step: what Haystack's hooks are not told, and what other hooks and tools make of a call."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import State, replace_values
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook
from haystack.tools import AgentTool, Tool, Toolset, create_tool_from_function
from haystack.tools.errors import ToolInvocationError
from support.frameworks.harness import Call, Scene
from support.frameworks.haystack import called, read, tools_of
from support.waiting import until

from toolgate import ApprovalPending, ConfigurationError, guarded_action
from toolgate_integrations.haystack import STOPPED, guard_hooks, held_calls, resume

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")
GO = [ChatMessage.from_user("go")]


def agent(scene: Scene, *said: Sequence[Call], tools: Any = None, **options: Any) -> Agent:
    """A guarded agent whose model makes the calls, step by step."""
    hooks = {
        name: options.pop(name)
        for name in ("on_hold", "agent", "agents", "beside", "tool_actions")
        if name in options
    }
    return Agent(
        chat_generator=MockChatGenerator(responses=[*(called(*each) for each in said), "done"]),
        tools=tools_of(scene) if tools is None else tools,
        hooks=guard_hooks(scene.guard, **hooks),
        **options,
    )


def errors(scene: Scene) -> list[str]:
    """What the log says went wrong."""
    assert scene.guard.flush(30)
    return [
        each["context"]["error"]["message"] for each in scene.owner.entries() if "error" in each["context"]
    ]


def test_a_run_that_ends_with_a_tools_error(scene: Scene) -> None:
    """No hook comes after a tool that ends the run; the log says all the same what happened, in the tool's words."""
    with pytest.raises(ToolInvocationError, match="does not burn"):
        agent(scene, [LOOK, BURN], raise_on_tool_invocation_failure=True).run(GO)
    assert scene.logged() == [("burn", "failed"), ("look", "success")]
    assert errors(scene) == ["water does not burn"]


async def test_a_run_that_ends_with_an_asynchronous_tools_error(scene: Scene) -> None:
    """The same holds for coroutine functions."""

    async def burn(what: str) -> str:
        """Fail."""
        await asyncio.sleep(0)
        raise RuntimeError(f"{what} does not burn")

    burning = agent(
        scene, [BURN], tools=[create_tool_from_function(burn)], raise_on_tool_invocation_failure=True
    )
    with pytest.raises(ToolInvocationError, match="does not burn"):
        await burning.run_async(GO)
    assert errors(scene) == ["water does not burn"]


def test_a_refusal_ends_no_run(scene: Scene) -> None:
    """Where a tool's error ends the run, a refusal is told to the model and does not."""
    result = agent(scene, [DROP], raise_on_tool_invocation_failure=True).run(GO)
    assert result["last_message"].text == "done"
    assert "blocked" in read(result["messages"])["call-drop"]


def test_calls_that_a_run_never_came_to(scene: Scene) -> None:
    """What was let through in a step that ended before its tool was called is recorded as that."""

    def read_balance(balance: int, what: str) -> str:
        """Look."""
        return scene.look(f"{what} {balance}")

    def burn(what: str) -> dict[str, Any]:
        """Fail."""
        return {"balance": scene.burn(what)}

    looking = create_tool_from_function(read_balance, name="look", inputs_from_state={"balance": "balance"})
    burning = create_tool_from_function(burn, outputs_to_state={"balance": {"source": "balance"}})
    tools = [looking, burning]
    failing = agent(
        scene,
        [LOOK, BURN],
        tools=tools,
        state_schema={"balance": {"type": int}},
        raise_on_tool_invocation_failure=True,
    )
    with pytest.raises(ToolInvocationError):
        failing.run(GO, balance=7)
    # The error holds the run, and they hold each other.
    gc.collect()
    agent(scene, [DROP]).run(GO)
    assert ("look", "failed") in scene.logged()
    assert scene.ran == [("burn", "water")]


def test_a_later_hook_that_changes_a_call(scene: Scene) -> None:
    """A call that another hook changed after it was approved does not run."""

    @hook
    def more(state: State) -> None:
        *before, last = state.data["messages"]
        calls = [replace(each, arguments={"what": "everything"}) for each in last.tool_calls]
        state.set(
            "messages",
            [*before, ChatMessage.from_assistant(tool_calls=calls)],
            handler_override=replace_values,
        )

    meddling = agent(scene, [LOOK])
    meddling.hooks["before_tool"].append(more)
    result = meddling.run(GO)
    assert scene.ran == []
    assert "changed the call after it was approved" in str(result["messages"])
    assert scene.logged() == [("look", "failed")]


def test_an_earlier_hook_that_changes_a_call(scene: Scene) -> None:
    """The gateway is asked about what the agent's other hooks made of a call."""

    @hook
    def other(state: State) -> None:
        *before, last = state.data["messages"]
        calls = [replace(each, arguments={"what": "the sea"}) for each in last.tool_calls]
        state.set(
            "messages",
            [*before, ChatMessage.from_assistant(tool_calls=calls)],
            handler_override=replace_values,
        )

    agent(scene, [LOOK], beside={"before_tool": [other]}).run(GO)
    assert scene.ran == [("look", "the sea")]
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert entry["context"]["what"] == "the sea"


def test_equal_calls_of_one_step(scene: Scene) -> None:
    """Each of two equal calls is asked about, runs and is recorded once; so are calls without ids."""
    result = agent(
        scene, [LOOK, Call("look", {"what": "sky"}, "call-2")], [Call("look", {"what": "sky"}, "")]
    ).run(GO)
    assert scene.ran == [("look", "sky")] * 3
    assert scene.logged() == [("look", "success")] * 3
    assert read(result["messages"])["call-2"] == "seen sky"


def test_ids_that_come_again_in_each_run(scene: Scene) -> None:
    """Some models count their calls from the start in each run: an approval of the first run's says nothing of the next's."""
    first = agent(scene, [PAY]).run(GO)
    [held] = held_calls(first["messages"])
    scene.approve(held.approval_id)
    resume(agent(scene), first["messages"])
    again = agent(scene, [PAY]).run(GO)
    assert again["exit_reason"] == STOPPED
    assert held_calls(again["messages"])[0].approval_id != held.approval_id
    assert scene.ran == [("pay", "eve", 40)]


def test_a_hook_that_fails_runs_nothing(scene: Scene) -> None:
    """What goes wrong while the calls of a step are asked about ends the run before any tool; what began is recorded."""

    def actions(name: str) -> str | None:
        if name == "drop":
            raise LookupError("no such table")
        return None

    with pytest.raises(LookupError):
        agent(scene, [LOOK, DROP], tool_actions=actions).run(GO)
    with pytest.raises(LookupError):
        asyncio.run(agent(scene, [LOOK, DROP], tool_actions=actions).run_async(GO))
    assert scene.ran == []
    assert scene.logged() == [("look", "failed")] * 2


def test_a_refused_tool_ends_no_run_and_meets_no_handler(scene: Scene) -> None:
    """A tool that would end the run, or whose answers are converted, does neither when it is refused."""
    handled: list[Any] = []

    def handler(answer: Any) -> str:
        handled.append(answer)
        return str(answer)

    dropping = create_tool_from_function(scene.drop, outputs_to_string={"handler": handler})
    result = agent(scene, [DROP], tools=[dropping], exit_conditions=["drop", "text"]).run(GO)
    assert (result["exit_reason"], handled) == ("text", [])
    [message] = [each for each in result["messages"] if each.tool_call_results]
    assert message.tool_call_result is not None
    assert message.tool_call_result.error


def test_what_the_framework_gives_a_tool_is_not_shown(scene: Scene) -> None:
    """A tool is given the run's state beside the model's arguments; the gateway hears of the model's only."""

    def look(what: str, state: State, purse: int) -> str:
        """Look."""
        state.set("purse", purse - 1)
        return scene.look(what)

    looking = create_tool_from_function(look, inputs_from_state={"purse": "purse"})
    result = agent(
        scene, [LOOK], tools=[looking], state_schema={"purse": {"type": int, "handler": replace_values}}
    ).run(GO, purse=3)
    assert (result["purse"], scene.ran) == (2, [("look", "sky")])
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert set(entry["context"]) <= {"what", "duration_ms"}


def test_tools_that_are_given_for_one_run(scene: Scene) -> None:
    """Tools and toolsets named when the agent is run are guarded as its own are."""
    result = agent(scene, [LOOK, DROP], tools=[]).run(GO, tools=Toolset(tools_of(scene)))
    assert scene.ran == [("look", "sky")]
    assert "blocked" in read(result["messages"])["call-drop"]


def test_agents_by_name_and_runs(scene: Scene) -> None:
    """The hook's own context names the run and the agent; what is guarded inside a tool acts as that agent too."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.look")
    scene.owner.permit(other, "inside.look")

    @scene.guard.guarded("inside.look")
    def inside(what: str) -> str:
        return scene.look(what)

    def look(what: str) -> str:
        """Look."""
        return inside(what)

    looking = agent(scene, [LOOK], tools=[create_tool_from_function(look)], agents={"other": other})
    looking.run(GO, hook_context={"run_id": "run-7", "agent": "other"})
    assert scene.guard.flush(30)
    said = {(each["action"], each["agent_id"], each["run_id"]) for each in scene.owner.entries()}
    assert said == {("tools.look", other, "run-7"), ("inside.look", other, "run-7")}
    with pytest.raises(ConfigurationError, match="run_id"):
        looking.run(GO, hook_context={"run_id": 7})


def guarded_payment(scene: Scene) -> Tool:
    """A tool whose function is guarded itself."""

    @scene.guard.guarded("tools.pay")
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    tool = create_tool_from_function(pay)
    assert guarded_action(tool.function) == "tools.pay"
    return tool


@pytest.mark.parametrize(
    "run", [lambda one: one.run(GO), lambda one: asyncio.run(one.run_async(GO))], ids=["sync", "async"]
)
def test_a_function_that_is_guarded_itself(scene: Scene, run: Callable[[Agent], dict[str, Any]]) -> None:
    """It asks once, by its own action; held, it stops the run as others do, and runs once it is approved."""
    tools = [guarded_payment(scene)]
    result = run(agent(scene, [PAY], tools=tools))
    assert result["exit_reason"] == STOPPED
    [held] = held_calls(result["messages"])
    scene.approve(held.approval_id)
    last = resume(agent(scene, tools=tools), result["messages"])
    assert last["last_message"].text == "done"
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


def test_a_held_function_where_errors_end_the_run(scene: Scene) -> None:
    """Where a tool's error ends the run, so does the hold of a function that is guarded itself; it does not run."""
    with pytest.raises(ToolInvocationError, match="waits for a person") as raised:
        agent(scene, [PAY], tools=[guarded_payment(scene)], raise_on_tool_invocation_failure=True).run(GO)
    assert isinstance(raised.value.__cause__, ApprovalPending)
    assert scene.ran == []


async def test_a_run_that_is_given_up_while_it_waits(scene: Scene, guard_waits: Any) -> None:
    """The request of a cancelled run does not stay behind, and what was let through beside it does not run."""
    run = asyncio.create_task(agent(scene, [LOOK, PAY], on_hold="wait").run_async(GO))

    def pending() -> Any:
        return scene.owner.http.get("/api/approvals", params={"status": "pending"}).json()

    await guard_waits()
    [request] = await asyncio.to_thread(until, pending)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(until, lambda: scene.status(request["id"]) == "cancelled")
    assert scene.ran == []
    assert ("look", "failed") in scene.logged()


def test_an_agent_as_a_tool(scene: Scene) -> None:
    """The calls of an agent inside a tool are asked about by its own hooks, as its own agent's."""
    clerk = scene.owner.agent("clerk")
    scene.owner.permit(scene.agent_id, "tools.clerk")
    inner = agent(scene, [PAY], agent="clerk", agents={"clerk": clerk})
    asking = AgentTool(agent=inner, name="clerk", description="Asks the clerk.")
    task = {"messages": [{"role": "user", "content": "pay eve"}]}
    result = agent(scene, [Call("clerk", task, "call-1")], tools=[asking]).run(GO)
    assert result["last_message"].text == "done"
    assert scene.ran == []
    assert scene.guard.flush(30)
    said = {(each["action"], each["agent_id"], each["status"]) for each in scene.owner.entries()}
    assert said == {("tools.clerk", scene.agent_id, "success"), ("tools.pay", clerk, "denied")}


def test_what_runs_is_recorded_also_by_a_framework_that_copies_its_tools(scene: Scene) -> None:
    """A step whose tools the framework takes from elsewhere is recorded by what it says of the calls."""

    class Copying(State):
        @property
        def data(self) -> dict[str, Any]:
            return {**self._data, "tools": tuple(self._data["tools"])}

    hooks = guard_hooks(scene.guard)
    calls = called(LOOK, BURN)
    state = Copying(
        {"messages": {"type": list[ChatMessage], "handler": replace_values}, "tools": {"type": list}}
    )
    state.set("messages", [calls])
    state.set("tools", tools_of(scene))
    hooks["before_tool"][0].run(state)
    [look, burn] = calls.tool_calls
    told = [ChatMessage.from_tool("seen", look), ChatMessage.from_tool("no", burn, error=True)]
    state.set("messages", [calls, *told])
    hooks["after_tool"][0].run(state)
    assert scene.logged() == [("burn", "failed"), ("look", "success")]


@pytest.mark.parametrize("guarded", ["function", "async_function"])
async def test_a_tool_of_two_functions(scene: Scene, guarded: str) -> None:
    """Of a tool's two functions one may be guarded itself: the other is asked about all the same."""

    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    async def apay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    functions: dict[str, Any] = {"function": pay, "async_function": apay}
    functions[guarded] = scene.guard.guarded("tools.pay")(functions[guarded])
    parameters = {"type": "object", "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}}}
    tool = Tool(name="pay", description="Pay somebody.", parameters=parameters, **functions)
    assert (await agent(scene, [PAY], tools=[tool]).run_async(GO))["exit_reason"] == STOPPED
    assert (await asyncio.to_thread(agent(scene, [PAY], tools=[tool]).run, GO))["exit_reason"] == STOPPED
    assert scene.ran == []


@pytest.mark.parametrize("way", ["in place", "added", "doubled"])
def test_a_later_hook_that_slips_arguments_in(scene: Scene, way: str) -> None:
    """Neither by changing the very call that was approved, nor by adding to it, does other than that run."""
    seen: list[tuple[str, int]] = []

    def look(what: str, times: int = 1) -> str:
        """Look."""
        seen.append((what, times))
        return what

    @hook
    def more(state: State) -> None:
        *before, last = state.data["messages"]
        [call] = last.tool_calls
        if way == "in place":
            call.arguments["what"] = "everything"
            return
        calls = [replace(call, arguments={**call.arguments, "times": 7})]
        state.set(
            "messages",
            [
                *before,
                ChatMessage.from_assistant(tool_calls=calls if way == "added" else [*calls, call]),
            ],
            handler_override=replace_values,
        )

    meddling = agent(scene, [LOOK], tools=[create_tool_from_function(look)])
    meddling.hooks["before_tool"].append(more)
    result = meddling.run(GO)
    assert seen == []
    assert "changed the call after it was approved" in str(result["messages"])
    assert scene.logged() == [("look", "failed")]
