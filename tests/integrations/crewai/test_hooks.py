"""What CrewAI does around its hooks, and what it must not come to."""

from typing import Any

import pytest
from crewai.hooks import (
    get_before_tool_call_hooks,
    register_after_tool_call_hook,
    register_before_tool_call_hook,
    unregister_after_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolExecutionFailedError, ToolFailure
from support.frameworks.crewai import Scripted, crew, quiet, scripted
from support.frameworks.harness import Call, Scene

from toolgate import ConfigurationError
from toolgate_integrations.base import Bridge
from toolgate_integrations.crewai import GuardHooks, SetupAborted

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")
LOOPS = pytest.mark.parametrize("native", [True, False], ids=["native", "react"])


def run(
    scene: Scene, llm: Scripted, tools: list[Any] | None = None, *, cache: bool = False, **options: Any
) -> list[str]:
    """Kick a crew off under the guard; returns what the model read of its calls."""
    with GuardHooks(scene.guard, **options), quiet():
        crew(llm, tools or [tool(each) for each in scene.tools.values()], cache=cache).kickoff()
    return llm.read


@LOOPS
def test_a_guard_that_fails_lets_nothing_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    """The framework swallows what a hook raises, and runs the tool: so nothing leaves ours."""

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Bridge, "begin", fail)
    assert run(scene, scripted([LOOK], native=native)) == [
        "Not done: the guard failed with RuntimeError. Tell the operator."
    ]
    assert scene.ran == []


@LOOPS
def test_a_tool_that_raises_runs_once(scene: Scene, *, native: bool) -> None:
    """ReAct tries it six times after one question: one question lets one run through, and the log says one."""
    [read] = run(scene, scripted([BURN], native=native))
    assert "water does not burn" in read
    assert scene.ran == [("burn", "water")]
    assert scene.logged() == [("burn", "failed")]


class Look(BaseTool):
    """A tool that is a class."""

    name: str = "look"
    description: str = "Look at something."
    says: Any = None

    def _run(self, what: str) -> Any:
        return self.says(what)


async def failing(what: str) -> str:
    """Fail after a while."""
    raise RuntimeError(f"{what} is dark")


def says_error(what: str) -> str:
    """Look."""
    return f"Error executing tool: {what}"


def declares(what: str) -> Any:
    """Look."""
    return ToolFailure(message=f"no {what}")


@LOOPS
@pytest.mark.parametrize("kind", ["function", "class"])
@pytest.mark.parametrize(
    ("body", "status", "text"),
    [(failing, "failed", "is dark"), (says_error, "success", "Error"), (declares, "failed", "no sky")],
)
def test_outcomes_are_those_of_the_function(
    scene: Scene, body: Any, status: str, text: str, kind: str, *, native: bool
) -> None:
    """Not what a text looks like: what the function raised or returned."""
    made = Look(says=body) if kind == "class" else named(body)
    [read] = run(scene, scripted([LOOK], native=native), [made])
    assert text in read
    assert scene.logged() == [("look", status)]


def named(body: Any, name: str = "look") -> Any:
    """A tool of a function."""
    return tool(name)(body)


@LOOPS
def test_a_result_from_the_cache_is_asked_about_and_not_called_a_success(
    scene: Scene, *, native: bool
) -> None:
    """The tool has not run again, and the log does not say that it has."""
    sea = Call("look", {"what": "sea"}, "call-sea")
    first, _, again = run(scene, scripted([LOOK], [sea], [LOOK], native=native), cache=True)
    assert first == "seen sky"
    assert again.startswith("seen sky")
    assert scene.ran == [("look", "sky"), ("look", "sea")]
    assert scene.logged() == [("look", "failed"), ("look", "success"), ("look", "success")]
    [note] = [
        each["context"]
        for each in scene.owner.entries()
        if each["action"] == "tools.look" and each["status"] == "failed"
    ]
    assert "the tool did not run" in str(note)


def test_what_is_forbidden_since_is_not_answered_from_the_cache(scene: Scene) -> None:
    """Another agent of the crew, or this one later, reads nothing it may not ask for."""

    [permission] = [
        each["id"]
        for each in scene.owner.http.get(f"/api/agents/{scene.agent_id}/permissions").json()
        if each["action"] == "tools.look"
    ]

    def forbid(what: str) -> str:
        """Take the permission away."""
        answer = scene.owner.http.delete(f"/api/permissions/{permission}")
        assert answer.is_success
        return what

    scene.owner.permit(scene.agent_id, "tools.forbid")
    llm = scripted([LOOK], [Call("forbid", LOOK.arguments, "call-forbid")], [LOOK])
    first, _, again = run(scene, llm, [tool(scene.look), named(forbid, "forbid")], cache=True)
    assert first == "seen sky"
    assert "blocked" in again


class Polling(Scripted):
    """Makes the same call again and again; before the seventh it is approved."""

    scene: Any = None

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        if len(self.given) == 6:
            [request] = self.scene.owner.http.get("/api/approvals").json()
            self.scene.approve(request["id"])
        return super().call(messages)


def test_asking_again_and_again_does_not_end_the_run(scene: Scene) -> None:
    """Five equal answers would, and a refusal is not cached: the call goes through once it is approved."""
    llm = Polling(model="scripted", turns=scripted(*[[PAY]] * 7).turns, scene=scene)
    *told, paid = run(scene, llm, cache=True)
    assert all(each.startswith("Not done yet") for each in told)
    assert (len(told), paid) == (6, "paid 40 to eve")
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


def test_a_blocked_call_that_is_made_five_times_ends_the_run(scene: Scene) -> None:
    """As the framework has it: nothing else would come of the sixth."""
    with pytest.raises(ToolExecutionFailedError, match="5 times"):
        run(scene, scripted(*[[DROP]] * 5))
    assert scene.ran == []


@LOOPS
def test_a_hook_that_comes_later_cannot_change_what_was_asked(scene: Scene, *, native: bool) -> None:
    """The gateway was asked about other arguments: the tool does not run with these."""

    def later(context: Any) -> None:
        context.tool_input["what"] = "vault"

    llm = scripted([LOOK], native=native)
    with GuardHooks(scene.guard), quiet():
        register_before_tool_call_hook(later)
        try:
            with pytest.raises(SetupAborted, match="another hook changed the arguments"):
                crew(llm, [tool(scene.look)]).kickoff()
        finally:
            unregister_before_tool_call_hook(later)
    assert scene.ran == []
    assert scene.logged() == [("look", "failed")]


@LOOPS
def test_a_hook_that_comes_earlier_cannot_have_another_call_asked_about(
    scene: Scene, *, native: bool
) -> None:
    """What it puts in place of the call's own tool and arguments is not what runs: nobody is asked about it."""

    def earlier(context: Any) -> None:
        context.tool_name, context.tool_input = "look", {"what": "garden"}

    burning = scripted([LOOK], [BURN], [DROP], native=native)
    register_before_tool_call_hook(earlier)
    register_after_tool_call_hook(earlier)
    try:
        read = run(scene, burning)
    finally:
        unregister_before_tool_call_hook(earlier)
        unregister_after_tool_call_hook(earlier)
    assert scene.ran == [("look", "sky"), ("burn", "water")]
    assert "'tools.drop' is blocked" in read[2]
    assert scene.logged() == [("burn", "failed"), ("drop", "denied"), ("look", "success")]
    assert scene.owner.entries()[-1]["context"]["what"] == "sky"


def test_without_its_first_hook_the_guard_lets_nothing_run(scene: Scene) -> None:
    """It cannot say which call it is asked about."""
    llm = scripted([LOOK])
    with GuardHooks(scene.guard), quiet():
        unregister_before_tool_call_hook(get_before_tool_call_hooks()[0])
        with pytest.raises(SetupAborted, match="hooks was removed"):
            crew(llm, [tool(scene.look)]).kickoff()
    assert scene.ran == []


def test_tools_are_left_as_they_were(scene: Scene) -> None:
    """The function is watched during its calls only."""
    tools = [tool(scene.look), Look(says=scene.look, name="other")]
    before = [dict(vars(each)) for each in tools]
    run(scene, scripted([LOOK]), tools)
    assert [{**vars(each), "current_usage_count": 0} for each in tools] == before


@LOOPS
def test_two_tools_of_one_name_are_refused(scene: Scene, *, native: bool) -> None:
    """ReAct runs the first of them and shows the last to hooks, which might be one that asks by itself."""
    tools = [named(scene.look), named(scene.drop, "look")]
    with pytest.raises(SetupAborted, match="two tools have the name 'look'"):
        run(scene, scripted([LOOK], native=native), tools)
    assert scene.ran == []


def test_a_crew_that_streams_is_guarded_where_it_is_read(scene: Scene) -> None:
    """It runs only then, and not when it is kicked off."""
    llm = scripted([DROP])
    with GuardHooks(scene.guard), quiet():
        made = crew(llm, [tool(scene.drop)])
        made.stream = True
        streamed = made.kickoff()
        assert llm.given == []
        list(streamed)
    assert "blocked" in llm.read[0]
    assert scene.ran == []


def test_a_refused_tool_that_answers_for_the_model(scene: Scene) -> None:
    """The framework takes the refusal for the answer of a `result_as_answer` tool; it has not run."""
    with GuardHooks(scene.guard), quiet():
        made = crew(scripted([DROP]), [tool("drop", result_as_answer=True)(scene.drop)])
        assert "blocked" in made.kickoff().raw
    assert scene.ran == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"on_hold": "interrupt"}, "on_hold is 'interrupt'; use 'wait', 'raise' or 'notify_model'"),
        ({"guard": "guard"}, "guard is 'guard'"),
        ({"agents": ["a"]}, "agents is"),
        ({"tool_actions": "x"}, "tool_actions is 'x'"),
        ({"hold_timeout": 0}, "hold_timeout is 0"),
    ],
)
def test_arguments_are_looked_at(arguments: dict[str, Any], says: str) -> None:
    """When the hooks are made, not at the first call."""
    with pytest.raises(ConfigurationError, match=says):
        GuardHooks(**arguments)


def test_one_guard_is_registered_at_a_time(scene: Scene) -> None:
    """Two would ask about each call twice; after the block another may come."""
    with GuardHooks(scene.guard) as first:
        with pytest.raises(ConfigurationError, match="already registered in this process"):
            GuardHooks(scene.guard).register()
        with pytest.raises(ConfigurationError, match="already registered in this process"):
            first.register()
    again = GuardHooks(scene.guard)
    again.register()
    again.unregister()
    again.unregister()
    llm = scripted([DROP])
    with quiet():
        crew(llm, [tool(scene.drop)]).kickoff()
    assert scene.ran == [("drop", "users")]


def test_waiting_ends_when_it_is_over(scene: Scene) -> None:
    """With a `hold_timeout` the model is told, and the request stays to be decided."""
    [read] = run(scene, scripted([PAY]), on_hold="wait", hold_timeout=0.05)
    assert read.startswith("Not done yet")
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["status"] == "pending"
