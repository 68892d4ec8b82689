"""Who calls a tool of Google ADK, what stands around the guard, and what the tool is given."""

import sys
from pathlib import Path
from typing import Any

import pytest
import support.frameworks
from google.adk.agents import LlmAgent
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters
from pydantic import BaseModel
from support.frameworks.adk import answer, approval, asked, read, runner, said, scripted
from support.frameworks.harness import Call, Scene

from toolgate import ConfigurationError
from toolgate_integrations.adk import GuardPlugin

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")


async def heard(agent: LlmAgent, *plugins: Any, message: Any = "go", service: Any = None) -> list[Any]:
    """The requests that come of a message, in a session of its own unless there is one."""
    service = service or InMemorySessionService()
    if not await service.get_session(app_name="bank", user_id="ann", session_id="INV-7"):
        await service.create_session(app_name="bank", user_id="ann", session_id="INV-7")
    made = runner(agent, service, *plugins)
    given: Any = said(message) if isinstance(message, str) else message
    return asked(
        [each async for each in made.run_async(user_id="ann", session_id="INV-7", new_message=given)]
    )


def agent(scene: Scene, *turns: Any, **options: Any) -> tuple[LlmAgent, Any]:
    model = scripted(*turns)
    given: Any = {"name": "treasurer", "tools": [scene.look, scene.pay], **options}
    return LlmAgent(model=model, **given), model


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
        GuardPlugin(**wrong)


async def test_each_agent_acts_as_itself(scene: Scene) -> None:
    """Also one that was handed the conversation, which is a call of a tool of its own."""
    other = scene.owner.agent("teller")
    scene.owner.permit(other, "tools.look")
    scene.owner.permit(scene.agent_id, "tools.transfer_to_agent")
    teller, _ = agent(scene, (LOOK,), name="teller", description="Looks.")
    transfer = Call("transfer_to_agent", {"agent_name": "teller"}, "1")
    root, _ = agent(scene, (transfer,), sub_agents=[teller])
    await heard(root, GuardPlugin(scene.guard, agents={"teller": other}))
    assert scene.guard.flush(30)
    told = sorted((each["agent_id"] == other, each["action"]) for each in scene.owner.entries())
    assert told == [(False, "tools.transfer_to_agent"), (True, "tools.look")]


async def test_calls_belong_to_their_session(scene: Scene) -> None:
    """The log names the session and the call."""
    made, _ = agent(scene, (PAY,))
    await heard(made, GuardPlugin(scene.guard))
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["run_id"], entry["call_id"]) == ("INV-7", "call-pay")


async def test_a_guard_that_fails_runs_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in the guard itself, the tool does not run, and the run ends with the error."""
    guard = GuardPlugin(scene.guard)

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(guard._bridge, "abegin", broken)
    made, _ = agent(scene, (LOOK,))
    with pytest.raises(RuntimeError, match="broken"):
        await heard(made, guard)
    assert scene.ran == []


class Stopped(BaseException):
    """What is no Exception."""


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_raises_past_the_callbacks_is_recorded(scene: Scene, *, stopped: bool) -> None:
    """The framework tells nobody of a callback behind the guard that raises, or of a tool's own BaseException."""

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    def look(what: str) -> str:
        """Look."""
        raise Stopped(what)

    made, _ = agent(scene, (LOOK,), **({"tools": [look]} if stopped else {"before_tool_callback": broken}))
    guard = GuardPlugin(scene.guard)
    with pytest.raises((Stopped, ZeroDivisionError)):
        await heard(made, guard)
    assert scene.logged() == [("look", "failed")]
    assert (scene.ran, guard._open) == ([], {})


class Other(BasePlugin):
    """A plugin that answers in place of a tool, or of what it returned."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(name="other")
        self._answers = answers

    async def before_tool_callback(self, **_: Any) -> Any:
        return self._answers.get("before")

    async def after_tool_callback(self, **_: Any) -> Any:
        return self._answers.get("after")


async def test_a_plugin_in_front_that_answers(scene: Scene) -> None:
    """No tool runs, so nobody is asked."""
    made, _ = agent(scene, (LOOK,))
    await heard(made, Other(before={"result": "cached"}), GuardPlugin(scene.guard))
    assert (scene.ran, scene.logged()) == ([], [])


async def test_a_plugin_in_front_that_hides_results(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """What came of the call is not known: the log does not say that it is, and the operator reads what to do."""
    made, _ = agent(scene, (LOOK,))
    guard = GuardPlugin(scene.guard)
    await heard(made, Other(after={"result": "other"}), guard)
    assert scene.ran == [("look", "sky")]
    assert "put the guard first" in caplog.text
    assert guard._open == {}
    assert ("look", "success") not in scene.logged()


async def test_errors_that_are_told_are_failures(scene: Scene) -> None:
    """Many tools say what went wrong in their answer: the model reads it, and the log says so."""

    def fetch(what: str) -> dict[str, str]:
        """Fetch something."""
        return {"error": f"no {what}"}

    scene.owner.permit(scene.agent_id, "tools.fetch")
    made, model = agent(scene, (Call("fetch", {"what": "sky"}, "1"),), tools=[fetch])
    await heard(made, GuardPlugin(scene.guard))
    assert read(model)["1"] == "no sky"
    assert scene.logged() == [("fetch", "failed")]


async def test_an_edit_reaches_the_tool_as_what_it_declares(scene: Scene) -> None:
    """What the approver changed is validated by the framework as what the model wrote is."""

    class Order(BaseModel):
        to: str
        amount: int

    ran: list[Any] = []

    def send(order: Order) -> str:
        """Send money."""
        ran.append(order)
        return "sent"

    scene.owner.permit(scene.agent_id, "tools.send", requires_approval=True)
    call = Call("send", {"order": {"to": "eve", "amount": 40}}, "1")
    made, _ = agent(scene, (call,), tools=[send])
    service, guard = InMemorySessionService(), GuardPlugin(scene.guard)
    [request] = await heard(made, guard, service=service)
    scene.approve(approval(request), context={"order": {"to": "eve", "amount": 25}})
    await heard(made.clone(), guard, service=service, message=answer(True, request))
    assert ran == [Order(to="eve", amount=25)]


async def test_what_is_guarded_inside_acts_as_the_agent_too(scene: Scene) -> None:
    """A guarded function that a tool calls is another call of the same agent and session."""
    other = scene.owner.agent("teller")
    for action in ("tools.look_up", "files.read"):
        scene.owner.permit(other, action)

    @scene.guard.guarded("files.read")
    def read_file(what: str) -> str:
        return what

    def look_up(what: str) -> str:
        """Look something up."""
        return read_file(what)

    made, _ = agent(scene, (Call("look_up", {"what": "sky"}, "1"),), name="teller", tools=[look_up])
    await heard(made, GuardPlugin(scene.guard, agents={"teller": other}))
    assert scene.guard.flush(30)
    entries = {each["action"]: each for each in scene.owner.entries()}
    assert {each["agent_id"] for each in entries.values()} == {other}
    assert (entries["files.read"]["run_id"], entries["files.read"]["call_id"]) == ("INV-7", None)


# Where FastMCP is imported too, it warns of the old names that ADK tries.
@pytest.mark.filterwarnings("ignore:Accessing `Tool")
@pytest.mark.parametrize("prefix", ["bank", None])
async def test_tools_of_a_server(scene: Scene, caplog: pytest.LogCaptureFixture, prefix: str | None) -> None:
    """They have the name of their prefix, and their own name on the server; without a prefix they have none."""
    scene.owner.permit(scene.agent_id, "bank.look")
    path = Path(support.frameworks.__file__).with_name("bank.py")
    server = StdioServerParameters(command=sys.executable, args=["-P", str(path)])
    tools = McpToolset(
        connection_params=StdioConnectionParams(server_params=server, timeout=30), tool_name_prefix=prefix
    )
    name = "bank_look" if prefix else "look"
    made, model = agent(scene, (Call(name, {"what": "sky"}, "1"),), tools=[tools])
    try:
        if prefix:
            await heard(made, GuardPlugin(scene.guard))
        else:
            with pytest.raises(RuntimeError, match="has no name, which the tool's action must contain"):
                await heard(made, GuardPlugin(scene.guard))
            assert "has no name, which the tool's action must contain" in caplog.text
    finally:
        await tools.close()
    if prefix:
        assert "seen sky" in read(model)["1"]
    assert scene.logged() == ([("look", "success")] if prefix else [])
