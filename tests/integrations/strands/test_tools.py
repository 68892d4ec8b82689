"""What is asked about and what is recorded, whatever stands around a tool."""

from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.middleware import ExecuteToolStage, ToolResultEvent
from strands.types.exceptions import EventLoopException
from support.frameworks.harness import Call, Scene
from support.frameworks.strands import Scripted, agent, answers, read

from toolgate import ConfigurationError, guarded_action
from toolgate_integrations.strands import GuardPlugin

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")


async def go(agent: Any, said: Any = "go") -> Any:
    return await agent.invoke_async(said)


async def woken(agent: Any, result: Any, said: Any = "y") -> Any:
    return await go(agent, answers({each.name: each.id for each in result.interrupts}, said))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"guard": "me"}, "guard is 'me'"),
        ({"on_hold": "later"}, "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"),
        ({"agents": ["treasurer"]}, "agents is"),
        ({"tool_actions": 7}, "tool_actions is 7"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    """At once, by their names."""
    with pytest.raises(ConfigurationError) as error:
        GuardPlugin(**arguments)
    assert said in str(error.value)


def test_two_guards_in_one_agent_are_refused(scene: Scene) -> None:
    """By the framework: a call would be asked about twice."""
    with pytest.raises(ValueError, match="already registered"):
        agent(scene, plugins=[GuardPlugin(scene.guard), GuardPlugin(scene.guard)])


async def test_a_decorator_around_the_tool_does_not_count_as_a_guard(scene: Scene) -> None:
    """The framework calls the tool past what stands around it: such a tool is asked about as any other."""
    around = scene.guard.guarded("tools.look")(tool(scene.drop))
    assert guarded_action(around) == "tools.look"
    dropping = agent(scene, DROP, tools=[around])
    await go(dropping)
    assert scene.ran == []
    assert "blocked" in read(dropping)["call-drop"][1]
    assert scene.logged() == [("drop", "denied")]


async def test_the_tool_that_runs_is_the_one_that_is_asked_about(scene: Scene) -> None:
    """A hook that puts another tool in the place of the one that was called changes what is asked."""
    looking = agent(scene, Call("look", {"table": "users"}, "call-look"))
    looking.hooks.add_callback(BeforeToolCallEvent, lambda event: setattr(event, "selected_tool", dropping))
    dropping = looking.tool_registry.registry["drop"]
    await go(looking)
    assert scene.ran == []
    assert scene.logged() == [("drop", "denied")]


async def test_arguments_changed_after_the_guard_do_not_run(scene: Scene) -> None:
    """A middleware that was added later stands between the guard and the tool; the tool is not called."""
    looking = agent(scene, LOOK)

    async def change(context: Any, call_next: Any) -> AsyncIterator[Any]:
        async for event in call_next(
            context.replace(tool_use={**context.tool_use, "input": {"what": "safe"}})
        ):
            yield event

    looking.add_middleware(ExecuteToolStage, change)
    await go(looking)
    assert scene.ran == []
    assert "after they were approved" in read(looking)["call-look"][1]
    assert scene.logged() == [("look", "failed")]


async def test_arguments_that_are_changed_in_place_are_noticed(scene: Scene) -> None:
    """What was approved is kept where no middleware reaches it, also what lies deeper."""
    ran = []

    @tool
    def pay(to: dict[str, Any], amount: int) -> str:
        """Pay."""
        ran.append((to, amount))
        return "paid"

    scene.owner.permit(scene.agent_id, "tools.send")
    call = Call("pay", {"to": {"name": "eve"}, "amount": 40}, "call-pay")
    paying = agent(
        scene, call, tools=[pay], plugins=[GuardPlugin(scene.guard, tool_actions={"pay": "tools.send"})]
    )

    async def change(context: Any, call_next: Any) -> AsyncIterator[Any]:
        context.tool_use["input"]["to"]["name"] = "mallory"
        async for event in call_next(context):
            yield event

    paying.add_middleware(ExecuteToolStage, change)
    await go(paying)
    assert ran == []
    assert "after they were approved" in read(paying)["call-pay"][1]
    assert scene.logged() == [("send", "failed")]


async def test_an_answer_in_the_tools_place_is_no_success(scene: Scene) -> None:
    """The log does not say that a tool ran that did not."""
    looking = agent(scene, LOOK)

    async def answer(context: Any, call_next: Any) -> AsyncIterator[Any]:
        told = {"toolUseId": "call-look", "status": "success", "content": [{"text": "from memory"}]}
        yield ToolResultEvent(told)

    looking.add_middleware(ExecuteToolStage, answer)
    await go(looking)
    assert (scene.ran, read(looking)["call-look"]) == ([], ("success", "from memory"))
    assert scene.logged() == [("look", "failed")]


@pytest.mark.parametrize("error", [RuntimeError("broken"), ConfigurationError("broken")])
async def test_a_guard_that_fails_lets_nothing_run(scene: Scene, error: Exception) -> None:
    """Whatever goes wrong in it, the model is told; a setup error ends the run."""

    def breaks(_: str) -> str:
        raise error

    looking = agent(scene, LOOK, plugins=[GuardPlugin(scene.guard, tool_actions=breaks)])
    if isinstance(error, ConfigurationError):
        with pytest.raises(EventLoopException, match="broken"):
            await go(looking)
    else:
        assert str(await go(looking)).strip() == "done"
        assert read(looking)["call-look"][0] == "error"
    assert scene.ran == []


async def test_arguments_that_are_no_object_are_not_asked_about(scene: Scene) -> None:
    """There is nothing to compare; the tool is not called."""
    looking = agent(scene, Call("look", ["sky"], "call-look"))  # type: ignore[arg-type]  # what a model may write
    await go(looking)
    assert scene.ran == []
    assert "not a JSON object" in read(looking)["call-look"][1]
    assert scene.logged() == []


async def test_events_of_a_tool_arrive_while_it_runs(scene: Scene) -> None:
    """The guard holds up nothing that a tool tells on its way, and the tool goes on once it was taken."""
    steps: list[str] = []

    @tool
    async def look(what: str) -> AsyncIterator[str]:
        """Look."""
        for step in ("first", "second"):
            steps.append(f"made {step}")
            yield step
        yield f"seen {what}"

    looking = agent(scene, LOOK, tools=[look])
    async for event in looking.stream_async("go"):
        if "tool_stream_event" in event:
            steps.append(f"read {event['tool_stream_event']['data']}")
    assert steps[:4] == ["made first", "read first", "made second", "read second"]
    assert read(looking)["call-look"] == ("success", "seen sky")
    assert scene.logged() == [("look", "success")]


async def test_failures_are_told_as_without_a_guard(scene: Scene) -> None:
    """What the tool raises, or says of itself, is recorded as a failure and reaches the model unchanged."""

    @tool
    def look(what: str) -> dict[str, Any]:
        """Look."""
        return {"status": "error", "content": [{"text": f"no {what}"}]}

    read_by = []
    for plugins in ([GuardPlugin(scene.guard)], []):
        both = agent(scene, LOOK, BURN, tools=[look, tool(scene.burn)], plugins=plugins)
        await go(both)
        read_by.append(read(both))
    assert read_by[0] == read_by[1]
    assert scene.logged() == [("burn", "failed"), ("look", "failed")]


async def test_a_call_that_a_hook_repeats_is_asked_about_again(scene: Scene) -> None:
    """What was approved runs once: the second attempt is blocked."""
    paying = agent(scene, PAY)
    again = iter((True, False))
    paying.hooks.add_callback(AfterToolCallEvent, lambda event: setattr(event, "retry", next(again)))
    first = await go(paying)
    scene.approve(first.interrupts[0].reason["approval_id"])
    await woken(paying, first)
    assert scene.ran == [("pay", "eve", 40)]
    assert read(paying)["call-pay"][1].startswith("Not done")


async def test_an_answers_form_is_no_tool(scene: Scene) -> None:
    """The tool in which the framework has a model answer does nothing, and is not asked about."""

    class Report(BaseModel):
        text: str

    result = await agent(scene, Call("Report", {"text": "all well"}, "call-1")).invoke_async(
        "go", structured_output_model=Report
    )
    assert result.structured_output == Report(text="all well")
    assert scene.logged() == []


async def test_agents_act_as_themselves(scene: Scene) -> None:
    """Also one that is a tool of another: its calls are asked for in its own name, the call of it in the outer's."""
    clerk_id = scene.owner.agent("clerk")
    scene.owner.permit(clerk_id, "tools.look")
    plugin = GuardPlugin(scene.guard, agents={"clerk": clerk_id}, tool_actions={"clerk": "desk.clerk"})
    scene.owner.permit(scene.agent_id, "desk.clerk")
    clerk = agent(scene, LOOK, name="clerk", plugins=[plugin])
    outer = agent(
        scene, Call("clerk", {"input": "look"}, "call-1"), tools=[clerk.as_tool()], plugins=[plugin]
    )
    await go(outer)
    assert scene.ran == [("look", "sky")]
    assert scene.guard.flush(30)
    assert {(each["action"], each["agent_id"]) for each in scene.owner.entries()} == {
        ("tools.look", clerk_id),
        ("desk.clerk", scene.agent_id),
    }


async def test_what_the_person_changed_has_the_types_of_the_tool(scene: Scene) -> None:
    """The tool is given what was approved as it declares it."""
    given = []

    @tool(context=True)
    def pay(amount: Decimal, due: date, tool_context: ToolContext) -> str:
        """Pay."""
        given.append((amount, due, tool_context.tool_use["toolUseId"]))
        return "paid"

    paying = agent(scene, Call("pay", {"amount": "40.10", "due": "2026-01-01"}, "call-pay"), tools=[pay])
    first = await go(paying)
    edit = {"amount": 25.1, "due": "2026-02-01"}
    scene.approve(first.interrupts[0].reason["approval_id"], context=edit)
    await woken(paying, first)
    assert given == [(Decimal("25.1"), date(2026, 2, 1), "call-pay")]


@pytest.mark.parametrize("on_hold", ["pause", "wait", "notify_model"])
async def test_calls_without_a_model(scene: Scene, on_hold: Any) -> None:
    """`agent.tool.look()` is asked about as the model's calls are, and a refusal is its result."""
    plain = agent(scene, plugins=[GuardPlugin(scene.guard, on_hold=on_hold)])
    assert plain.tool.look(what="sky")["content"] == [{"text": "seen sky"}]
    dropped = plain.tool.drop(table="users")
    assert (dropped["status"], scene.ran) == ("error", [("look", "sky")])
    assert "blocked" in dropped["content"][0]["text"]


async def test_a_held_call_without_a_model(scene: Scene) -> None:
    """No run stands behind it that could pause: it says so, and made again once approved it runs once."""
    plain = agent(scene)
    held = plain.tool.pay(to="eve", amount=40)
    assert held["content"][0]["text"].startswith("Not done yet")
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    assert plain.tool.pay(to="eve", amount=40)["content"] == [{"text": "paid 40 to eve"}]
    assert plain.tool.pay(to="eve", amount=40)["status"] == "error"
    assert scene.ran == [("pay", "eve", 40)]


async def test_a_held_call_in_the_background(scene: Scene) -> None:
    """Nothing pauses for it: the model reads that it waits."""
    paying = Agent(
        model=Scripted([PAY]),
        tools=[tool(scene.pay)],
        plugins=[GuardPlugin(scene.guard)],
        background_tasks={"always": ["pay"]},
        callback_handler=None,
    )
    result = await go(paying)
    assert result.stop_reason == "end_turn"
    assert scene.ran == []
    assert scene.logged() == [("pay", "pending")]
