"""Guarded tools: whichever way a tool is reached, it is asked about once, and run once."""

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool
from llama_index.core.workflow import Context
from support.frameworks.harness import Call, Scene
from support.frameworks.llamaindex import OLD_NAMES, SERIALIZER, Run, Script, agent

from toolgate import ConfigurationError
from toolgate_integrations.llamaindex import guard_agent, guard_tools

LOOK = Call("look", {"what": "sky"}, "call-look")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")
pytestmark = [pytest.mark.filterwarnings(f"ignore:{each}") for each in OLD_NAMES]


class Old(BaseTool):
    """A tool of the first kind: synchronous, and one value."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata("Look.", "look")

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002 - the framework's name
        return ToolOutput("look", self.scene.look(input), raw_input={}, raw_output=None)


class Retriever(ObjectRetriever):
    """Finds the same tools for whatever is asked."""

    def __init__(self, *tools: Any) -> None:
        self.tools = [FunctionTool.from_defaults(each) for each in tools]

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return self.tools


async def read(made: Any) -> dict[str, str]:
    """What the model reads of its calls."""
    run = await Run(made.run(user_msg="go")).on()
    assert run.output is not None
    return await run.read()


def test_a_function_tool_runs_once_though_it_fails(scene: Scene) -> None:
    """A tool of one argument is not tried a second time by the framework, and stays a function tool."""
    [burn] = guard_tools([scene.burn], scene.guard)
    assert isinstance(burn, FunctionTool)
    assert call_tool(burn, BURN.arguments).content == "Encountered error: water does not burn"
    assert scene.ran == [("burn", "water")]
    assert scene.logged() == [("burn", "failed")]


async def test_values_without_names_are_asked_about_by_name(scene: Scene) -> None:
    """A bare value is bound to the tool's parameter, for tools of every kind; what cannot be named is refused."""
    old, function = guard_tools([Old(scene), scene.drop], scene.guard, tool_actions={"drop": "tools.look"})
    assert (await acall_tool(old, {"input": "sky"})).content == "seen sky"
    assert (await function.acall("users")).content == "dropped users"
    with pytest.raises(ConfigurationError, match="called with 2 positional arguments"):
        function.call("users", "more")
    assert scene.ran == [("look", "sky"), ("drop", "users")]
    assert scene.guard.flush(30)
    told = [each["context"] for each in scene.owner.entries()]
    assert {"table": "users"}.items() <= told[0].items()
    assert {"input": "sky"}.items() <= told[1].items()


async def test_functions_taken_out_of_a_guarded_tool_are_guarded(scene: Scene) -> None:
    """What others make of a tool's functions asks too."""
    [drop] = guard_tools([scene.drop], scene.guard)
    assert isinstance(drop, FunctionTool)
    for taken in (drop.fn, drop.real_fn):
        assert "blocked" in taken(table="users")
    assert "blocked" in await drop.async_fn(table="users")
    assert "blocked" in drop(table="users").content
    assert scene.ran == []


async def test_found_tools_are_guarded(scene: Scene) -> None:
    """What a retriever finds during the run is guarded like the rest; so is what is added later."""
    made = agent(Script([DROP, LOOK]), [], tool_retriever=Retriever(scene.drop))
    guard_agent(made, scene.guard)
    made.tools = [FunctionTool.from_defaults(scene.look)]
    said = await read(made)
    assert "blocked" in said["call-drop"]
    assert said["call-look"] == "seen sky"
    assert scene.logged() == [("drop", "denied"), ("look", "success")]


async def test_an_agent_guarded_by_itself_is_guarded_in_a_workflow(scene: Scene) -> None:
    """A workflow asks its agents for their tools past their methods; they are guarded all the same."""
    made = agent(Script([DROP, LOOK]), [scene.look], tool_retriever=Retriever(scene.drop))
    said = await read(AgentWorkflow(agents=[guard_agent(made, scene.guard)]))
    assert "blocked" in said["call-drop"]
    assert scene.logged() == [("drop", "denied"), ("look", "success")]


@pytest.mark.parametrize("permitted", [True, False])
async def test_handoffs_are_asked_about(scene: Scene, *, permitted: bool) -> None:
    """A handoff between guarded agents is a call like any other, and each agent's calls are its own."""
    other = scene.owner.agent("clerk")
    scene.owner.permit(other, "tools.look")
    if permitted:
        scene.owner.permit(scene.agent_id, "tools.handoff")
    script = Script([Call("handoff", {"to_agent": "clerk", "reason": "yours"}, "call-hand")], [LOOK])
    both = [
        agent(script, [scene.look]),
        agent(script, [scene.look], name="clerk", description="Looks."),
    ]
    made = AgentWorkflow(agents=both, root_agent="treasurer")
    said = await read(guard_agent(made, scene.guard, agents={"clerk": other}))
    assert ("blocked" in said["call-hand"]) is not permitted
    assert scene.guard.flush(30)
    agents = {each["action"]: each["agent_id"] for each in scene.owner.entries()}
    assert agents["tools.look"] == (other if permitted else scene.agent_id)


async def test_the_calls_of_a_run_bear_its_name(scene: Scene) -> None:
    """All calls of a conversation have one run id, also those of its next turn; each has an id of its own."""
    made = guard_agent(agent(Script([LOOK, LOOK], [LOOK], [], [LOOK]), [scene.look]), scene.guard)
    context = Context(made, serializer=SERIALIZER)
    for _ in range(2):
        await made.run(user_msg="go", ctx=context)
    await made.run(user_msg="go")
    assert scene.guard.flush(30)
    entries = scene.owner.entries()
    assert len({each["call_id"] for each in entries}) == len(entries) == 4
    assert len({each["run_id"] for each in entries}) == 1


async def test_functions_that_are_guarded_themselves_ask_once(scene: Scene) -> None:
    """A `@guarded` function inside a tool is asked about by its own action, once, in threads as well."""

    @scene.guard.guarded("tools.look")
    def plain(what: str) -> str:
        """Look."""
        return scene.look(what)

    # The framework changes its context while the gateway decides.
    @scene.guard.guarded("tools.look", ignore={"ctx"})
    async def other(ctx: Context, what: str) -> str:
        """Look."""
        return scene.look(f"{what} {type(ctx).__name__}")

    calls = [Call("plain", {"what": "sky"}, "call-1"), Call("other", {"what": "sea"}, "call-2")]
    made = guard_agent(agent(Script(calls), [plain, other]), scene.guard)
    said = await read(made)
    assert said == {"call-1": "seen sky", "call-2": "seen sea Context"}
    assert scene.logged() == [("look", "success")] * 2


async def test_a_tool_inside_a_tool_is_another_call(scene: Scene) -> None:
    """A tool that calls a guarded tool of its own name does not wait for itself."""
    [inner] = guard_tools([scene.look], scene.guard)

    async def look(what: str) -> str:
        """Look twice."""
        return (await inner.acall(what=what)).content

    made = guard_agent(agent(Script([LOOK]), guard_tools([look], scene.guard)), scene.guard)
    assert await read(made) == {"call-look": "seen sky"}
    assert scene.logged() == [("look", "success")] * 2


def test_what_cannot_be_guarded_is_said(scene: Scene) -> None:
    """Wrong arguments are refused where they are given."""
    with pytest.raises(ConfigurationError, match="agent is 'treasurer'"):
        guard_agent("treasurer", scene.guard)  # type: ignore[type-var]  # what is wrong is the point
    with pytest.raises(ConfigurationError, match="on_hold is 'later'; use 'pause', 'wait'"):
        guard_tools([scene.look], scene.guard, on_hold="later")  # type: ignore[arg-type]  # what is wrong is the point
    with pytest.raises(ConfigurationError, match="7 is not a tool"):
        guard_tools([7], scene.guard)  # type: ignore[list-item]  # what is wrong is the point


def test_what_is_guarded_stays_what_it_was(scene: Scene) -> None:
    """The same agent comes back; tools that are guarded are not guarded twice, and tell the model the same."""
    tools = guard_tools([scene.look, Old(scene)], scene.guard)
    made = agent(Script(), tools)
    assert guard_agent(made, scene.guard) is made
    assert made.tools == tools
    plain = FunctionTool.from_defaults(scene.look)
    assert tools[0].metadata == plain.metadata or tools[0].metadata.description == plain.metadata.description
    assert all(isinstance(each, AsyncBaseTool) for each in tools)
