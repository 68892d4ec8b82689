"""Copies of what is guarded, and what is added to it later: nobody comes to a tool that is not guarded."""

import copy
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, StopEvent, step
from support.frameworks.harness import Call, Scene
from support.frameworks.llamaindex import OLD_NAMES, Run, Script, agent

from toolgate_integrations.llamaindex import guard_agent, guard_tools

LOOK = Call("look", {"what": "sky"}, "call-look")
DROP = Call("drop", {"table": "users"}, "call-drop")
pytestmark = [pytest.mark.filterwarnings(f"ignore:{each}") for each in OLD_NAMES]


def dropping(scene: Scene) -> FunctionTool:
    """A tool of a function: what methods belong to is copied with them."""

    def drop(table: str) -> str:
        """Drop a table."""
        return scene.drop(table)

    return FunctionTool.from_defaults(drop)


def looking(scene: Scene) -> FunctionTool:
    """Likewise."""

    def look(what: str) -> str:
        """Look at something."""
        return scene.look(what)

    return FunctionTool.from_defaults(look)


async def read(made: Any) -> dict[str, str]:
    """What the model reads of its calls."""
    run = await Run(made.run(user_msg="go")).on()
    assert run.output is not None
    return await run.read()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
async def test_a_copy_of_an_agent_is_guarded(scene: Scene, copied: Any) -> None:
    """With all that is added to it, and by its own name."""
    clerk = scene.owner.agent("clerk")
    scene.owner.permit(clerk, "tools.look")
    made = guard_agent(agent(Script([DROP, LOOK]), [looking(scene)]), scene.guard, agents={"clerk": clerk})
    assert made.tools is not None
    other: FunctionAgent = copied(made)
    other.name = "clerk"
    other.tools = [*(other.tools or []), dropping(scene)]
    assert "blocked" in (await read(other))["call-drop"]
    assert [each.metadata.name for each in made.tools] == ["look"]
    assert scene.logged() == [("drop", "denied"), ("look", "success")]
    assert {each["agent_id"] for each in scene.owner.entries()} == {clerk}


async def test_a_copy_of_a_workflow_is_guarded(scene: Scene) -> None:
    """Its agents and their handoffs too."""
    script = Script([DROP, Call("handoff", {"to_agent": "clerk", "reason": "yours"}, "call-hand")])
    both = [agent(script, [dropping(scene)]), agent(Script(), [], name="clerk", description="Looks.")]
    made = guard_agent(AgentWorkflow(agents=both, root_agent="treasurer"), scene.guard)
    said = await read(copy.deepcopy(made))
    assert "blocked" in said["call-drop"]
    assert "blocked" in said["call-hand"]
    assert scene.ran == []


async def test_a_copy_of_a_tool_is_guarded(scene: Scene) -> None:
    """Its functions too."""
    [drop] = copy.deepcopy(guard_tools([dropping(scene)], scene.guard))
    assert isinstance(drop, FunctionTool)
    assert "blocked" in (await drop.acall(table="users")).content
    assert "blocked" in drop.fn(table="users")
    assert scene.ran == []


async def test_tools_added_to_an_agent_of_an_unguarded_workflow(scene: Scene) -> None:
    """The workflow reads the tools past the agent's methods, and finds guarded ones, however they came there."""
    made = guard_agent(agent(Script([DROP, LOOK]), [looking(scene)]), scene.guard)
    workflow = AgentWorkflow(agents=[made])
    assert made.tools is not None
    kept = made.tools
    kept.append(dropping(scene))
    assert "blocked" in (await read(workflow))["call-drop"]
    made.tools = [scene.look, dropping(scene)]
    assert isinstance(made.llm.response_generator, Script)  # type: ignore[attr-defined]  # the mock's own
    made.llm.response_generator.turns.append([DROP])  # type: ignore[attr-defined]  # likewise
    assert "blocked" in (await read(workflow))["call-drop"]
    assert scene.ran == [("look", "sky")]


async def test_what_was_put_on_a_tool_does_not_stand_before_the_guard(scene: Scene) -> None:
    """An instrumentation that exchanges the methods of one tool is behind the guard, as the tool is."""
    tool = dropping(scene)
    traced: list[str] = []

    def seen(name: str) -> Any:
        inner = getattr(tool, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            traced.append(name)
            return inner(*args, **kwargs)

        return call

    for name in ("call", "acall"):
        setattr(tool, name, seen(name))
    [drop] = guard_tools([tool], scene.guard)
    assert "blocked" in (await drop.acall(table="users")).content
    assert "blocked" in drop.call(table="users").content
    assert (scene.ran, traced) == ([], [])
    [drop] = guard_tools([tool], scene.guard, tool_actions={"drop": "tools.look"})
    assert (await drop.acall(table="users")).content == "dropped users"
    assert traced == ["acall"]


async def test_an_agent_keeps_the_steps_that_were_added_to_its_class(scene: Scene) -> None:
    """A guarded agent is of a class of its own, which the framework gives no such steps."""

    class Bell(HumanResponseEvent):
        pass

    class Own(FunctionAgent):
        pass

    @step(workflow=Own)
    async def heard(ctx: Context, ev: Bell) -> StopEvent | None:
        return StopEvent(result="heard")

    made = agent(Script([LOOK]), [scene.look])
    own = Own(name="own", description="Own.", tools=made.tools, llm=made.llm)
    handler = guard_agent(own, scene.guard).run(user_msg="go")
    handler.ctx.send_event(Bell(response="ring"))
    assert str(await handler) == "heard"
