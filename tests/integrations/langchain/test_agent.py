"""`create_agent` under the guard: every kind of tool, other middleware, other agents."""

import asyncio
from importlib.metadata import version
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain.tools import InjectedState, ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from packaging.version import Version
from support.frameworks.graphs import Run
from support.frameworks.harness import Scene
from support.frameworks.scripted import calling
from support.waiting import eventually

from toolgate import ConfigurationError
from toolgate_integrations import _registry
from toolgate_integrations.langchain import GuardMiddleware

PAY = ("pay", {"to": "eve", "amount": 40}, "call-pay")
MODES = pytest.mark.parametrize("mode", ["sync", "async"])
Mode = Literal["sync", "async"]
# Before 1.4 LangChain's retries take a pause inside them for an error.
SIDES = [True, False] if Version(version("langchain")) >= Version("1.4") else [True]


def running(
    scene: Scene, mode: Mode, tools: list[Any], *turns: Any, around: Any = None, **options: Any
) -> Run:
    middleware = around or [GuardMiddleware(scene.guard, **options)]
    agent = create_agent(
        calling(*turns), tools, middleware=middleware, checkpointer=InMemorySaver(), name="treasurer"
    )
    return Run(agent, mode)


class Pay(BaseTool):
    """A tool that is a class."""

    name: str = "pay"
    description: str = "Pay somebody."
    scene: Any = None

    def _run(self, to: str, amount: int) -> str:
        return str(self.scene.pay(to, amount))


class PayEitherWay(Pay):
    """A tool that is a class with two methods."""

    async def _arun(self, to: str, amount: int) -> str:
        return str(self.scene.pay(to, amount))


@pytest.fixture
def guarded_pay(scene: Scene) -> Any:
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    return scene.guard.guarded("bank.pay")


def in_every_form(scene: Scene, guarded: Any) -> dict[str, Any]:
    """The same tool, guarded by its own function, as everything LangChain takes."""

    class OwnPay(Pay):
        """Guards its own method."""

        _run = guarded(Pay._run)

    async def apay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    return {
        "function": tool("pay")(guarded(scene.pay)),
        "coroutine": tool("pay")(guarded(apay)),
        "both": StructuredTool.from_function(guarded(scene.pay), guarded(apay), name="pay"),
        "class": OwnPay(scene=scene),
    }


@MODES
@pytest.mark.parametrize("form", ["function", "coroutine", "both", "class"])
async def test_a_function_guarded_itself_is_asked_about_once(
    scene: Scene, mode: Mode, form: str, guarded_pay: Any
) -> None:
    """By its own action and no other; held it pauses the run, approved it goes on, once."""
    if (mode, form) == ("sync", "coroutine"):
        mode = "async"
    run = running(scene, mode, [in_every_form(scene, guarded_pay)[form]], [PAY])
    await run.start()
    assert scene.ran == []
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]
    assert {each["action"] for each in scene.owner.entries()} == {"bank.pay"}


@MODES
async def test_a_function_guarded_itself_that_is_rejected_does_not_run(
    scene: Scene, mode: Mode, guarded_pay: Any
) -> None:
    """Its request is withdrawn; the no is recorded, without arguments that only the function knows how to show."""
    run = running(scene, mode, [tool("pay")(guarded_pay(scene.pay))], [PAY])
    await run.start()
    approval_id = run.held["call-pay"]
    scene.approve(approval_id)
    await run.resume({"type": "reject", "message": "no"})
    assert scene.ran == []
    assert scene.status(approval_id) == "cancelled"
    denied = next(each for each in _entries(scene) if each["status"] == "denied")
    assert denied["context"] == {"reason": "no"}


@MODES
@pytest.mark.parametrize("kind", [Pay, PayEitherWay])
async def test_a_tool_that_is_a_class(scene: Scene, mode: Mode, kind: type[Pay]) -> None:
    """Held, approved, carried out once."""
    run = running(scene, mode, [kind(scene=scene)], [PAY])
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]


@MODES
async def test_a_tool_that_nobody_knows(scene: Scene, mode: Mode) -> None:
    """It is checked like any other; what LangChain says of it is a failure, and the run goes on."""
    scene.owner.permit(scene.agent_id, "tools.made_up")
    run = running(scene, mode, [tool(scene.look)], [("made_up", {}, "call-1")], [("gone", {}, "call-2")])
    await run.start()
    assert "not a valid tool" in run.read["call-1"]
    assert "blocked" in run.read["call-2"]
    assert scene.logged() == [("gone", "denied"), ("made_up", "failed")]


@MODES
async def test_a_tool_that_another_middleware_brings(scene: Scene, mode: Mode) -> None:
    """What is carried out in place of the call is carried out under the call's decision."""

    class Bringer(AgentMiddleware[Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tool=tool(scene.pay)))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(tool=tool(scene.pay)))

    run = running(scene, mode, [tool(scene.look)], [PAY], around=[GuardMiddleware(scene.guard), Bringer()])
    await run.start()
    assert scene.ran == []
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]


@MODES
async def test_a_tool_that_answers_with_a_command(scene: Scene, mode: Mode) -> None:
    """The command goes on as it is, and the call is a success."""

    @tool
    def look(what: str, runtime: ToolRuntime) -> Command[Any]:
        """Look."""
        scene.look(what)
        return Command(update={"messages": [ToolMessage("by command", tool_call_id=runtime.tool_call_id)]})

    run = running(scene, mode, [look], [("look", {"what": "sky"}, "call-1")])
    await run.start()
    assert run.read == {"call-1": "by command"}
    assert scene.logged() == [("look", "success")]


@MODES
async def test_what_the_framework_gives_a_tool_is_no_part_of_the_call(scene: Scene, mode: Mode) -> None:
    """Its state and runtime are neither shown nor bound: the request is the model's own arguments."""

    @tool
    def pay(
        to: str,
        amount: int,
        runtime: ToolRuntime,
        state: Annotated[dict[str, Any], InjectedState],
        secret: Annotated[str, InjectedToolArg] = "s3cret",
    ) -> str:
        """Pay."""
        assert runtime.tool_call_id == "call-pay"
        assert state["messages"]
        assert secret == "s3cret"
        return scene.pay(to, amount)

    run = running(scene, mode, [pay], [PAY])
    await run.start()
    approval_id = run.held["call-pay"]
    asked = scene.owner.http.get(f"/api/approvals/{approval_id}").json()
    assert asked["context"] == {"to": "eve", "amount": 40}
    scene.approve(approval_id)
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]


@MODES
async def test_a_function_guarded_itself_leaves_the_runtime_unbound(scene: Scene, mode: Mode) -> None:
    """`ignore` keeps what changes with every process out of what is approved."""
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)

    @tool
    @scene.guard.guarded("bank.pay", ignore={"runtime"})
    def pay(to: str, amount: int, runtime: ToolRuntime) -> str:
        """Pay."""
        return scene.pay(to, amount)

    run = running(scene, mode, [pay], [PAY])
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]


@MODES
async def test_a_tool_that_asks_somebody_itself(scene: Scene, mode: Mode) -> None:
    """Its own pause is logged as one, not as a failure; its answer reaches it."""

    @tool
    def look(what: str) -> str:
        """Look."""
        return scene.look(f"{what} {interrupt('where?')}")

    run = running(scene, mode, [look], [("look", {"what": "sky"}, "call-1")])
    await run.start()
    assert [each.value for each in run.interrupts] == ["where?"]
    await run.resume("up")
    assert scene.ran == [("look", "sky up")]
    assert scene.logged() == [("look", "pending"), ("look", "success")]


@MODES
async def test_an_agent_that_is_a_tool(scene: Scene, mode: Mode) -> None:
    """What is held inside surfaces outside; the outer call is not a failure, and the inner one runs once."""
    scene.owner.permit(scene.agent_id, "tools.helper")
    inner = create_agent(calling([PAY]), [tool(scene.pay)], middleware=[GuardMiddleware(scene.guard)])

    @tool
    def helper(task: str) -> str:
        """Let a helper do it."""
        return str(inner.invoke({"messages": [("user", task)]})["messages"][-1].content)

    run = running(scene, mode, [helper], [("helper", {"task": "pay"}, "call-outer")])
    await run.start()
    assert list(run.held) == ["call-pay"]
    scene.approve(run.held["call-pay"])
    await run.resume({"type": "approve"})
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [
        ("helper", "pending"),
        ("helper", "success"),
        ("pay", "pending"),
        ("pay", "success"),
    ]


@MODES
@pytest.mark.parametrize(("outside", "entries"), [(True, 1), (False, 3)])
async def test_beside_the_retry_middleware(scene: Scene, mode: Mode, outside: bool, entries: int) -> None:
    """The guard outside records one call however often it is tried; inside, each try is asked for and recorded."""
    guard = GuardMiddleware(scene.guard)
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    around = [guard, retry] if outside else [retry, guard]
    run = running(scene, mode, [tool(scene.burn)], [("burn", {"what": "water"}, "call-1")], around=around)
    await run.start()
    assert len(scene.ran) == 3
    assert scene.logged() == [("burn", "failed")] * entries


@MODES
@pytest.mark.parametrize("outside", SIDES)
async def test_a_held_call_beside_the_retry_middleware(scene: Scene, mode: Mode, outside: bool) -> None:
    """A pause is no error to be tried again, on either side."""
    guard = GuardMiddleware(scene.guard)
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    around = [guard, retry] if outside else [retry, guard]
    run = running(scene, mode, [tool(scene.pay)], [PAY], around=around)
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


def test_two_guards_are_refused(scene: Scene) -> None:
    """LangChain takes no two middlewares of a name: nobody is asked twice by mistake."""
    with pytest.raises(AssertionError, match="duplicate middleware"):
        running(
            scene, "sync", [tool(scene.pay)], [PAY], around=[GuardMiddleware(scene.guard) for _ in range(2)]
        )


@MODES
async def test_told_and_asked_again(scene: Scene, mode: Mode) -> None:
    """With `tell` the model reads that it waits; approved, the same call under another id goes through, once."""
    again = [(*PAY[:2], f"call-{n}") for n in range(2)]
    run = running(scene, mode, [tool(scene.pay)], [again[0]], on_hold="notify_model")
    await run.start()
    assert run.held == {}
    assert "waits for a person" in run.read["call-0"]
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    later = running(scene, mode, [tool(scene.pay)], [again[1]], on_hold="notify_model")
    await later.start()
    assert later.read["call-1"] == "paid 40 to eve"
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


async def test_waited_for(scene: Scene) -> None:
    """With `wait` the run goes on by itself once somebody has decided."""
    run = running(scene, "async", [tool(scene.pay)], [PAY], on_hold="wait")
    going = asyncio.create_task(run.start())

    async def asked() -> Any:
        return scene.owner.http.get("/api/approvals").json()

    [request] = await eventually(asked)
    scene.approve(request["id"])
    await going
    assert scene.ran == [("pay", "eve", 40)]


@MODES
async def test_each_agent_acts_as_itself(scene: Scene, mode: Mode) -> None:
    """`agents` gives the framework's agents identities of their own; others act as the guard's."""
    treasurer = scene.owner.agent("treasurer")
    scene.owner.permit(treasurer, "tools.drop")
    run = running(
        scene, mode, [tool(scene.drop)], [("drop", {"table": "t"}, "call-1")], agents={"treasurer": treasurer}
    )
    await run.start()
    assert scene.ran == [("drop", "t")]
    assert [each["agent_id"] for each in _entries(scene)] == [treasurer]


@pytest.mark.parametrize("named", [{"look": "sky.look"}, lambda name: f"sky.{name}"])
async def test_tools_have_the_actions_they_are_given(scene: Scene, named: Any) -> None:
    """`tool_actions` is a mapping or a function."""
    scene.owner.permit(scene.agent_id, "sky.look")
    run = running(scene, "sync", [tool(scene.look)], [("look", {"what": "x"}, "c")], tool_actions=named)
    await run.start()
    assert [each["action"] for each in _entries(scene)] == ["sky.look"]


async def test_without_a_checkpointer_nothing_runs_that_is_held(scene: Scene) -> None:
    """There is nothing to go on with; the same call of the next run passes by the approval."""
    for round_ in range(2):
        agent = create_agent(calling([PAY]), [tool(scene.pay)], middleware=[GuardMiddleware(scene.guard)])
        outcome = agent.invoke({"messages": [("user", "go")]})
        if round_ == 0:
            assert scene.ran == []
            scene.approve(outcome["__interrupt__"][0].value["approval_id"])
    assert scene.ran == [("pay", "eve", 40)]


def _entries(scene: Scene) -> list[dict[str, Any]]:
    assert scene.guard.flush(30)
    return list(scene.owner.entries())


@MODES
async def test_an_approved_tool_that_stops_itself_is_given_no_answer_of_the_approval(
    scene: Scene, mode: Mode
) -> None:
    """It asks for itself; the approval let it run once, so what comes after is blocked, and the model reads so."""

    @tool
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return scene.pay(to, amount + interrupt("tip?"))

    run = running(scene, mode, [pay], [PAY])
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert [each.value for each in run.interrupts] == ["tip?"]
    await run.resume(5)
    assert scene.ran == []
    assert "has already been allowed once" in run.read["call-pay"]


def test_agents_by_name_are_refused_where_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before langchain 1.2.4 all of them would act as one: that is said, and not done."""
    monkeypatch.setattr(_registry, "version", lambda name: "1.2.3")
    with pytest.raises(ConfigurationError, match=r"needs langchain 1\.2\.4 or later"):
        GuardMiddleware(agents={"clerk": "a"})
    monkeypatch.setattr(_registry, "version", lambda name: "1.2.4")
    GuardMiddleware(agents={"clerk": "a"})
