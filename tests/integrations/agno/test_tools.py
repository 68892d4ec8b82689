"""Tools of every kind, hooks of others, and what the framework does with both."""

import asyncio
import functools
from typing import Any

import pytest
from agno.agent import Agent
from agno.approval import approval
from agno.tools import Toolkit, tool
from support.frameworks.agno import Scripted, agent
from support.frameworks.harness import Call, Scene

from toolgate import ConfigurationError, guarded_action
from toolgate_integrations.agno import GuardedAgent, guard_agent, resume

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")


def of_each_kind(scene: Scene) -> dict[str, Any]:
    """`drop`, as the tools of an agent may be written."""

    async def drop(table: str) -> str:
        return scene.drop(table)

    return {
        "function": [scene.drop],
        "decorated": [tool(scene.drop)],
        "toolkit": [Toolkit(tools=[scene.drop])],
        "made for the run": lambda: [scene.drop],
        "coroutine function": [drop],
        "decorated coroutine function": [tool(drop)],
        "toolkit of coroutine functions": [Toolkit(tools=[drop])],
    }


@pytest.mark.parametrize("kind", list(of_each_kind(Scene(None, None, ""))))  # type: ignore[arg-type]  # names alone
async def test_tools_of_each_kind_are_guarded(scene: Scene, kind: str) -> None:
    """However a tool is written, it does not run where it is blocked, synchronously or not, streamed or not."""
    dropping = agent(scene, [DROP], on_hold="notify_model", tools=of_each_kind(scene)[kind])
    await dropping.arun("go")
    assert "is blocked" in dropping.model.read["call-drop"]
    if "coroutine" not in kind:
        dropping = agent(scene, [DROP], on_hold="notify_model", tools=of_each_kind(scene)[kind])
        await asyncio.to_thread(lambda: list(dropping.run("go", stream=True)))
        assert "is blocked" in dropping.model.read["call-drop"]
    assert scene.ran == []


async def test_an_asynchronous_tool_is_recorded_by_what_became_of_it(scene: Scene) -> None:
    """What the hook of a synchronous function would see of it is a coroutine, and no outcome."""

    async def look(what: str) -> str:
        return scene.look(what)

    async def burn(what: str) -> str:
        return scene.burn(what)

    looking = agent(scene, [LOOK, BURN], on_hold="notify_model", tools=[look, burn])
    await looking.arun("go")
    assert sorted(scene.ran) == [("burn", "water"), ("look", "sky")]
    assert looking.model.read["call-look"] == "seen sky"
    assert scene.logged() == [("burn", "failed"), ("look", "success")]


def test_a_tool_that_was_added_later_is_guarded(scene: Scene) -> None:
    """The tools are guarded when a run takes them, and the agent they come from stays as it was."""
    plain = Agent(model=Scripted([DROP]), tools=[scene.look], telemetry=False)
    dropping = guard_agent(plain, scene.guard, on_hold="notify_model")
    dropping.add_tool(scene.drop)
    dropping.run("go")
    assert scene.ran == []
    assert (type(plain), isinstance(dropping, GuardedAgent)) == (Agent, True)
    assert plain.tools == [scene.look]


def test_copies_are_guarded(scene: Scene) -> None:
    """The framework copies an agent for each request of its server."""
    copied = agent(scene, [DROP], on_hold="notify_model").deep_copy()
    copied.run("go")
    assert scene.ran == []
    assert "is blocked" in copied.model.read["call-drop"]


def test_hooks_of_others_are_kept_and_the_guard_is_the_last(scene: Scene) -> None:
    """A tool's own hooks run; an agent's take their place, as ever, but not the guard's; what they change is asked."""
    seen: list[str] = []

    def own(function_call: Any, arguments: dict[str, Any]) -> Any:
        seen.append("own")
        return function_call(**arguments)

    def of_the_agent(function_call: Any, arguments: dict[str, Any]) -> Any:
        seen.append("agent")
        arguments["what"] = "sea"
        return function_call(**arguments)

    looking = agent(scene, [LOOK, DROP], on_hold="notify_model")
    looking.tools = [tool(tool_hooks=[own])(scene.look), tool(tool_hooks=[own])(scene.drop)]
    looking.run("go")
    assert (seen, scene.ran) == (["own", "own"], [("look", "sky")])
    looking.tool_hooks = [of_the_agent]
    looking.model.turns = [[LOOK, DROP]]
    looking.run("go")
    assert seen == ["own", "own", "agent", "agent"]
    assert scene.ran == [("look", "sky"), ("look", "sea")]
    assert scene.guard.flush(30)
    asked = [each["context"]["what"] for each in scene.owner.entries() if each["status"] == "success"]
    assert sorted(asked) == ["sea", "sky"]


def test_arguments_that_a_hook_hands_on_are_not_what_runs(scene: Scene) -> None:
    """The framework runs a tool with the call's own arguments: those are asked about, and nothing else."""

    def hands_on(function_call: Any) -> Any:
        return function_call(what="something else")

    looking = agent(scene, [LOOK], on_hold="notify_model", tool_hooks=[hands_on])
    looking.run("go")
    assert scene.guard.flush(30)
    assert [each["context"]["what"] for each in scene.owner.entries()] == ["sky"]
    assert scene.ran == [("look", "sky")]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_tools_own_pre_hook_runs_and_cannot_let_a_call_through(
    scene: Scene, asynchronous: bool
) -> None:
    """What it raises is swallowed by the framework, and the gateway is asked all the same."""
    seen: list[str] = []

    def before(fc: Any) -> None:
        seen.append(fc.function.name)
        raise RuntimeError("out of order")

    async def abefore(fc: Any) -> None:
        before(fc)

    async def drop(table: str) -> str:
        return scene.drop(table)

    hooked = tool(pre_hook=abefore if asynchronous else before)(drop)
    dropping = agent(scene, [DROP], on_hold="notify_model", tools=[hooked])
    await dropping.arun("go")
    assert (seen, scene.ran) == (["drop"], [])
    assert "is blocked" in dropping.model.read["call-drop"]


def test_a_call_whose_pre_hook_is_not_awaited_does_not_run(scene: Scene) -> None:
    """A synchronous run drops it: without knowing which call it is, the guard lets none through."""

    async def abefore(fc: Any) -> None: ...

    looking = agent(scene, [LOOK], on_hold="notify_model", tools=[tool(pre_hook=abefore)(scene.look)])
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        looking.run("go")
    assert scene.ran == []
    assert looking.model.read["call-look"].startswith("Not done: the guard could not identify")


def test_a_call_is_asked_about_as_itself_or_not_run(scene: Scene) -> None:
    """An agent that is run in a tool's hook leaves its last call behind where a hook of its own has answered it."""

    def answers() -> str:
        return "nothing"

    other = agent(scene, [LOOK], on_hold="notify_model", tools=[tool(tool_hooks=[answers])(scene.look)])

    def asks_another(function_call: Any) -> Any:
        other.run("go")
        return function_call()

    dropping = agent(
        scene, [DROP], on_hold="notify_model", tools=[tool(tool_hooks=[asks_another])(scene.drop)]
    )
    dropping.run("go")
    assert (scene.ran, scene.logged()) == ([], [])
    assert dropping.model.read["call-drop"].startswith("Not done: the guard could not identify")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_hook_that_retries_a_tool_runs_it_again(scene: Scene, mode: str) -> None:
    runs: list[str] = []

    def look(what: str) -> str:
        runs.append(what)
        if len(runs) == 1:
            raise RuntimeError("not yet")
        return f"seen {what}"

    def retries(function_call: Any, arguments: dict[str, Any]) -> Any:
        try:
            return function_call(**arguments)
        except RuntimeError:
            return function_call(**arguments)

    async def aretries(function_call: Any, arguments: dict[str, Any]) -> Any:
        try:
            return await function_call(**arguments)
        except RuntimeError:
            return await function_call(**arguments)

    hooks = [retries if mode == "sync" else aretries]
    looking = agent(scene, [LOOK], on_hold="notify_model", tools=[look], tool_hooks=hooks)
    looking.run("go") if mode == "sync" else asyncio.run(looking.arun("go"))
    assert runs == ["sky", "sky"]
    assert looking.model.read["call-look"] == "seen sky"
    assert scene.logged() == [("look", "failed"), ("look", "success")]


def test_retry_of_a_call_that_another_agents_call_stands_in_is_not_confused(scene: Scene) -> None:
    other = agent(scene, [LOOK], on_hold="notify_model", tools=[scene.look])

    def asks_another(function_call: Any, arguments: dict[str, Any]) -> Any:
        other.run("go")
        return function_call(**arguments)

    burning = agent(scene, [DROP], on_hold="notify_model", tools=[scene.drop], tool_hooks=[asks_another])
    burning.run("go")
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("drop", "denied"), ("look", "success")]
    assert burning.model.read["call-drop"].startswith("Not done: 'tools.drop' is blocked")


def test_a_cached_answer_is_asked_about_and_a_refusal_is_not_cached(scene: Scene, tmp_path: Any) -> None:
    """The framework's cache of a tool stands behind the guard."""
    cached = [tool(cache_results=True, cache_dir=str(tmp_path))(each) for each in (scene.look, scene.drop)]
    looking = agent(scene, [LOOK, DROP], on_hold="notify_model", tools=cached)
    looking.run("go")
    scene.owner.permit(scene.agent_id, "tools.drop")
    looking.model.turns = [[LOOK, DROP]]
    looking.run("go")
    assert scene.ran == [("look", "sky"), ("drop", "users")]
    assert scene.logged() == [
        ("drop", "denied"),
        ("drop", "success"),
        ("look", "success"),
        ("look", "success"),
    ]


def test_a_refusal_is_marked_as_an_error(scene: Scene) -> None:
    """Whoever reads the messages of a run can tell it from an answer."""
    looking = agent(scene, [LOOK, DROP], on_hold="notify_model")
    looking.run("go")
    assert looking.model.errors == {"call-look": False, "call-drop": True}


def test_a_function_that_is_guarded_itself_is_asked_once(scene: Scene) -> None:
    """By its own action; what Agno's decorator puts around one is a wrapper, and pauses the run when it is held."""
    scene.owner.permit(scene.agent_id, "bank.look")
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    tools = [
        scene.guard.guarded("bank.look")(scene.look),
        tool(scene.guard.guarded("bank.pay")(scene.pay)),
    ]
    assert guarded_action(tools[0]) == "bank.look"
    looking = agent(scene, [LOOK, PAY], tools=tools)
    run = looking.run("go")
    assert (run.is_paused, scene.ran) == (True, [("look", "sky")])


def test_identity(scene: Scene) -> None:
    """An agent's name says as whom its calls are asked about, the session which run they belong to."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "sky.look")
    plain = Agent(model=Scripted([LOOK]), tools=[scene.look], name="looker", telemetry=False)
    actions = {"look": "sky.look"}
    looking = guard_agent(
        plain, scene.guard, tool_actions=actions, agents={"looker": other}, on_hold="notify_model"
    )
    looking.run("go", session_id="INV-7")
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["agent_id"], entry["action"], entry["run_id"]) == (other, "sky.look", "INV-7")


@pytest.mark.parametrize("marked", [False, True])
def test_a_tool_that_pauses_by_itself(scene: Scene, marked: bool) -> None:
    """It would be two questions, one of them answered by nobody: refused; without our pauses the framework asks first."""

    def look(what: str) -> str:
        return scene.look(what)

    asking = approval(look) if marked else tool(requires_confirmation=True)(look)
    with pytest.raises(ConfigurationError, match="'look' has requires_confirmation"):
        agent(scene, [LOOK], tools=[asking])
    looking = agent(scene, [LOOK], tools=[])
    looking.add_tool(asking)
    run = looking.run("go")
    assert "'look' has requires_confirmation" in run.content
    looking = agent(scene, [LOOK], tools=[asking], on_hold="notify_model")
    run = looking.run("go")
    assert (run.is_paused, scene.ran, scene.logged()) == (True, [], [])


@pytest.mark.parametrize("odd", [functools.partial(print), Scene])
def test_a_tool_that_cannot_be_called(scene: Scene, odd: Any) -> None:
    """The framework takes functions alone: the other is named."""
    with pytest.raises(ConfigurationError, match=r"Agno cannot use the tool .* \(.*Error\); pass a function"):
        agent(scene, tools=[odd])


@pytest.mark.parametrize("given", [None, "agent", Agent])
def test_only_agents_are_guarded(scene: Scene, given: Any) -> None:
    """The argument is named."""
    with pytest.raises(ConfigurationError, match="pass an agno"):
        guard_agent(given, scene.guard)


def test_misuse(scene: Scene) -> None:
    """Each wrong argument is named, with its cure."""
    with pytest.raises(
        ConfigurationError, match="on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"
    ):
        guard_agent(Agent(), scene.guard, on_hold="later")  # type: ignore[arg-type]  # what it is about
    with pytest.raises(ConfigurationError, match="not guarded yet"):
        guard_agent(agent(scene), scene.guard)
    paused = agent(scene, [PAY]).run("go")
    with pytest.raises(ConfigurationError, match="pass the agent that guard_agent"):
        resume(Agent(), paused)
