"""Who calls a tool of Microsoft Agent Framework, what stands around the guard, and what the tool is given."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import support.frameworks
from agent_framework import (
    Agent,
    AgentSession,
    FunctionInvocationContext,
    FunctionMiddleware,
    MCPStdioTool,
    MiddlewareFailure,
    MiddlewareTermination,
)
from support.frameworks.agent_framework import Scripted, answer, read
from support.frameworks.harness import Call, Scene

from toolgate import ConfigurationError
from toolgate_integrations.agent_framework import GuardMiddleware, MisplacedGuardError

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
BURN = Call("burn", {"what": "water"}, "call-burn")


def made(scene: Scene, *calls: Call, name: str = "treasurer", **options: Any) -> tuple[Agent[Any], Scripted]:
    client = Scripted(calls)
    given = {"tools": [scene.look, scene.pay], "middleware": [*GuardMiddleware(scene.guard)], **options}
    return Agent(client=client, name=name, **given), client


class Between(FunctionMiddleware):
    """Does what a test says."""

    def __init__(self, do: Any) -> None:
        self._do = do

    async def process(self, context: Any, call_next: Any) -> None:
        await self._do(context, call_next)


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_hold": "ask"},
        {"agents": "treasurer"},
        {"tool_actions": 7},
        {"guard": "https://toolgate.example.com"},
    ],
)
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    """What cannot be meant is refused at once, and named."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        GuardMiddleware(**wrong)


@pytest.mark.parametrize("more", [{}, {"on_hold": "notify_model", "agents": {"treasurer": "an-agent"}}])
async def test_a_guard_without_its_star(scene: Scene, more: dict[str, Any]) -> None:
    """It knows neither agents nor sessions: nothing runs, and the run ends with what to do."""
    agent, _ = made(scene, LOOK, middleware=[GuardMiddleware(scene.guard, **more)])
    with pytest.raises(MisplacedGuardError, match=r"\*GuardMiddleware"):
        await agent.run("go", session=AgentSession())
    assert scene.ran == []


async def test_a_guard_given_twice(scene: Scene) -> None:
    """Two questions about one call are a mistake that is told."""
    guard = GuardMiddleware(scene.guard)
    agent, _ = made(scene, LOOK, middleware=[*guard, *guard])
    with pytest.raises(ConfigurationError, match="add it exactly once"):
        await agent.run("go", session=AgentSession())
    assert scene.ran == []


async def test_a_chat_client_of_its_own(scene: Scene) -> None:
    """Without an agent the guard alone is enough, if nothing is to be known of agents."""
    client = Scripted((LOOK,), middleware=[GuardMiddleware(scene.guard, on_hold="notify_model")])
    await client.get_response([], options={"tools": [scene.look]})
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("look", "success")]


async def test_each_agent_acts_as_itself(scene: Scene) -> None:
    """Also where two stream side by side in one task, and where one is a tool of the other."""
    other = scene.owner.agent("teller")
    scene.owner.permit(other, "tools.look")
    guard = GuardMiddleware(scene.guard, agents={"teller": other})
    teller, _ = made(scene, LOOK, name="teller", middleware=[*guard])
    treasurer, _ = made(scene, LOOK, middleware=[*guard])
    streams = [each.run("go", stream=True, session=AgentSession()) for each in (teller, treasurer)]
    for stream in reversed([each.__aiter__() for each in streams]):
        await anext(stream)
    for each in streams:
        assert (await each.get_final_response()).text == "done"
    inner, _ = made(scene, LOOK, name="teller", middleware=[*guard])
    scene.owner.permit(scene.agent_id, "tools.teller")
    outer, _ = made(scene, Call("teller", {"task": "x"}, "1"), tools=[inner.as_tool()], middleware=[*guard])
    await outer.run("go", session=AgentSession())
    assert scene.guard.flush(30)
    told = sorted((each["agent_id"] == other, each["action"]) for each in scene.owner.entries())
    assert told == [
        (False, "tools.look"),
        (False, "tools.teller"),
        (True, "tools.look"),
        (True, "tools.look"),
    ]


async def test_calls_belong_to_their_session(scene: Scene) -> None:
    """The log names the session and the call."""
    agent, _ = made(scene, PAY)
    session = AgentSession(session_id="INV-7")
    [request] = (await agent.run("go", session=session)).user_input_requests
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["run_id"], entry["call_id"]) == ("INV-7", request.id)


async def test_an_id_that_comes_again(scene: Scene) -> None:
    """Providers count their calls anew in each turn: a second call by an id of the first is another call."""
    agent, client = made(scene, PAY)
    session = AgentSession()
    [first] = (await agent.run("go", session=session)).user_input_requests
    scene.approve(first.additional_properties["approval_id"])
    await agent.run(answer(first, True), session=session)
    client.turns = [(PAY,)]
    [second] = (await agent.run("once more", session=session)).user_input_requests
    assert second.additional_properties["approval_id"] != first.additional_properties["approval_id"]
    assert scene.ran == [("pay", "eve", 40)]


async def test_what_is_repaired_in_front_is_what_is_asked_about(scene: Scene) -> None:
    """Middleware before the guard may change arguments; the gateway sees what the tool is given."""

    async def repair(context: Any, call_next: Any) -> None:
        context.arguments = {"what": "sea"}
        await call_next()

    agent, _ = made(scene, LOOK, middleware=[Between(repair), *GuardMiddleware(scene.guard)])
    await agent.run("go", session=AgentSession())
    assert scene.ran == [("look", "sea")]
    assert scene.guard.flush(30)
    assert [each["context"]["what"] for each in scene.owner.entries()] == ["sea"]


async def test_a_call_that_middleware_in_front_makes_again(scene: Scene) -> None:
    """Each try is asked about and recorded, in the same run."""

    async def twice(context: Any, call_next: Any) -> None:
        with suppress(RuntimeError):
            await call_next()
        await call_next()

    agent, client = made(
        scene, BURN, tools=[scene.burn], middleware=[Between(twice), *GuardMiddleware(scene.guard)]
    )
    await agent.run("go", session=AgentSession(session_id="INV-7"))
    assert read(client) == {"call-burn": "Error: Function failed."}
    assert scene.ran == [("burn", "water")] * 2
    assert scene.logged() == [("burn", "failed")] * 2
    assert {each["run_id"] for each in scene.owner.entries()} == {"INV-7"}


async def test_a_run_that_is_ended_behind_the_guard_is_no_failure(scene: Scene) -> None:
    """The framework's way to end a run early keeps its result, and the log does not say that the tool failed."""

    async def end(context: Any, call_next: Any) -> None:
        await call_next()
        raise MiddlewareTermination

    agent, client = made(scene, LOOK, middleware=[*GuardMiddleware(scene.guard), Between(end)])
    result = await agent.run("go", session=AgentSession())
    assert len(client.asked) == 1
    assert "seen sky" in str(result.messages[-1].contents[0].result)
    assert scene.logged() == [("look", "success")]


async def test_an_abort_behind_the_guard_goes_through(scene: Scene) -> None:
    """The framework's way to abort a run is not swallowed."""

    async def abort(context: Any, call_next: Any) -> None:
        raise MiddlewareFailure("no")

    agent, _ = made(scene, LOOK, middleware=[*GuardMiddleware(scene.guard), Between(abort)])
    with pytest.raises(MiddlewareFailure, match="no"):
        await agent.run("go", session=AgentSession())
    assert scene.logged() == [("look", "failed")]


async def test_a_guard_that_fails_runs_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in the guard itself, the tool does not run and the run comes to an end."""
    guard = GuardMiddleware(scene.guard)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(guard._bridge, "arun", broken)
    agent, client = made(scene, LOOK, middleware=[*guard])
    result = await agent.run("go", session=AgentSession())
    assert (scene.ran, result.text) == ([], "done")
    assert "failed" in read(client)["call-look"]


async def test_tools_see_nothing_of_the_guard(scene: Scene) -> None:
    """What the guard is told of runs is not among the runtime arguments, of which an MCP server may ask for any."""
    seen: list[Any] = []

    async def peek(what: str, ctx: FunctionInvocationContext) -> str:
        seen.append(dict(ctx.kwargs))
        return what

    scene.owner.permit(scene.agent_id, "tools.peek")
    agent, _ = made(scene, Call("peek", {"what": "sky"}, "1"), tools=[peek])
    await agent.run("go", session=AgentSession(), function_invocation_kwargs={"tenant": "acme"})
    assert [sorted(each.keys() - {"session"}) for each in seen] == [["tenant"]]


async def test_tools_of_a_server(scene: Scene) -> None:
    """They have the server's name here, and their own name there; what a person approved runs once."""
    scene.owner.permit(scene.agent_id, "bank.look")
    bank = Path(support.frameworks.__file__).with_name("bank.py")
    server = MCPStdioTool(
        name="bank", command=sys.executable, args=["-P", str(bank)], tool_name_prefix="my", load_prompts=False
    )
    calls = (Call("my_look", {"what": "sky"}, "call-look"), Call("my_pay", {"to": "eve", "amount": 1}, "2"))
    async with server:
        agent, client = made(scene, *calls, tools=[server])
        await agent.run("go", session=AgentSession())
    assert "seen sky" in read(client)["call-look"]
    assert "'bank.pay' is blocked" in read(client)["2"]
    assert scene.guard.flush(30)
    assert sorted(each["action"] for each in scene.owner.entries()) == ["bank.look", "bank.pay"]
