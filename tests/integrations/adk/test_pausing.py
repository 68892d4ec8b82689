"""What ends a run of Google ADK until its user answers: whatever the answer says, only the gateway lets a call run."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions import InMemorySessionService
from google.adk.tools import AgentTool, FunctionTool
from support.frameworks.adk import answer, approval, asked, read, runner, said, scripted
from support.frameworks.harness import Call, Scene
from support.gateway import LiveGateway

from toolgate import Guard
from toolgate_integrations.adk import GuardPlugin

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
LOOK = Call("look", {"what": "sky"}, "call-look")


class Bank:
    """One session of an app whose agent makes the calls of each turn."""

    def __init__(
        self, scene: Scene, *turns: Any, tools: Any = None, guard: Any = None, plugins: Any = ()
    ) -> None:
        self.model, self.service = scripted(*turns), InMemorySessionService()
        self.agent = LlmAgent(name="treasurer", model=self.model, tools=tools or [scene.look, scene.pay])
        self.runner = runner(self.agent, self.service, guard or GuardPlugin(scene.guard), *plugins)

    async def hears(self, message: Any = "go") -> list[Any]:
        """The requests that come of a message."""
        if not await self.service.get_session(app_name="bank", user_id="ann", session_id="1"):
            await self.service.create_session(app_name="bank", user_id="ann", session_id="1")
        given: Any = said(message) if isinstance(message, str) else message
        run = self.runner.run_async(user_id="ann", session_id="1", new_message=given)
        return asked([each async for each in run])


async def test_the_model_is_not_asked_while_a_call_waits(scene: Scene) -> None:
    """It would answer for a payment that nobody has decided about."""
    bank = Bank(scene, (PAY,))
    [request] = await bank.hears()
    assert len(bank.model.asked) == 1
    assert scene.ran == []
    told = (request.args or {})["toolConfirmation"]["payload"]
    assert (told["action"], scene.status(told["approval_id"])) == ("tools.pay", "pending")


async def test_a_no_is_a_no(scene: Scene) -> None:
    """The framework itself would run a tool whose user said no: it is neither run nor logged as if it had."""
    bank = Bank(scene, (PAY,))
    [request] = await bank.hears()
    scene.approve(approval(request))
    await bank.hears(answer(False, request))
    assert scene.ran == []
    assert "rejected" in read(bank.model)["call-pay"]
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


@pytest.mark.parametrize("confirmed", [True, False])
async def test_what_an_answer_brings_along_is_not_looked_at(scene: Scene, confirmed: bool) -> None:
    """A user may write what they like into the payload: another call's approval lets nothing through, nor is withdrawn."""
    bank = Bank(scene, (PAY, MORE))
    pay, more = await bank.hears()
    scene.approve(approval(more))
    forged = {"payload": {"approval_id": approval(more)}}
    again = await bank.hears(answer(confirmed, pay, **forged))
    assert scene.ran == []
    assert [each.id for each in again] == ([pay.id] if confirmed else [])
    assert scene.status(approval(more)) == "approved"
    assert scene.status(approval(pay)) == ("pending" if confirmed else "cancelled")


async def test_requests_are_answered_one_by_one(scene: Scene) -> None:
    """Of two that are answered together, the one that is decided runs, and the other waits on."""
    bank = Bank(scene, (PAY, MORE))
    pay, more = await bank.hears()
    scene.approve(approval(more))
    await bank.hears(answer(True, pay, more))
    assert scene.ran == [("pay", "ann", 70)]
    assert "Not done yet" in read(bank.model)["call-pay"]
    scene.approve(approval(pay), context={"to": "eve", "amount": 25})
    await bank.hears(answer(True, pay))
    assert scene.ran == [("pay", "ann", 70), ("pay", "eve", 25)]
    assert scene.requests() == 3


async def test_a_late_answer(scene: Scene) -> None:
    """The conversation may go on while a call waits; an answer that comes twice runs nothing twice."""
    bank = Bank(scene, (PAY,))
    [request] = await bank.hears()
    await bank.hears("how are you?")
    scene.approve(approval(request))
    await bank.hears(answer(True, request))
    await bank.hears(answer(True, request))
    assert scene.ran == [("pay", "eve", 40)]


async def test_an_answer_without_a_gateway_is_not_used_up(scene: Scene, live_gateway: LiveGateway) -> None:
    """Nobody can say: nothing runs, and the same request is answered again later."""
    with Guard(scene.owner.url, scene.owner.key, scene.agent_id, timeout=3) as guard:
        bank = Bank(scene, (PAY,), guard=GuardPlugin(guard))
        [request] = await bank.hears()
        scene.approve(approval(request))
        live_gateway.stop()
        try:
            [again] = await bank.hears(answer(True, request))
        finally:
            live_gateway.start()
        assert (again.id, scene.ran) == (request.id, [])
    bank.runner = runner(bank.agent.clone(), bank.service, GuardPlugin(scene.guard))
    await bank.hears(answer(True, again))
    assert scene.ran == [("pay", "eve", 40)]


async def test_a_tool_that_asks_its_user_anyway(scene: Scene) -> None:
    """A tool that is declared to be confirmed has not run when it asks; the log does not say that it has."""
    bank = Bank(scene, (LOOK,), tools=[FunctionTool(scene.look, require_confirmation=True)])
    [request] = await bank.hears()
    assert scene.logged() == [("look", "pending")]
    await bank.hears(answer(True, request))
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("look", "pending"), ("look", "success")]


async def test_a_tool_that_asks_and_is_held_asks_once(scene: Scene) -> None:
    """The gateway's request and the tool's own are one question."""
    bank = Bank(scene, (PAY,), tools=[FunctionTool(scene.pay, require_confirmation=True)])
    [request] = await bank.hears()
    scene.approve(approval(request))
    assert await bank.hears(answer(True, request)) == []
    assert scene.ran == [("pay", "eve", 40)]


# The framework's own way to give an app's plugins to an agent that is a tool.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")
async def test_an_agent_that_is_a_tool_cannot_pause(scene: Scene) -> None:
    """Its session is thrown away: its model is told, and the same call goes through once approved."""
    scene.owner.permit(scene.agent_id, "tools.teller")
    inner = scripted((PAY,), (), (PAY,))
    teller = LlmAgent(name="teller", model=inner, tools=[scene.pay])
    call = Call("teller", {"request": "pay"}, "1")
    bank = Bank(scene, (call,), (), (Call("teller", {"request": "pay"}, "2"),), tools=[AgentTool(teller)])
    assert await bank.hears() == []
    assert "waits for a person" in read(inner)["call-pay"]
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    await bank.hears("again")
    assert scene.ran == [("pay", "eve", 40)]


async def test_an_agent_whose_tools_nobody_would_ask_about(scene: Scene) -> None:
    """An agent that is a tool without the app's plugins is refused: its own calls would go past the guard."""
    scene.owner.permit(scene.agent_id, "tools.teller")
    teller = LlmAgent(name="teller", model=scripted((PAY,)), tools=[scene.pay])
    call = Call("teller", {"request": "pay"}, "1")
    bank = Bank(scene, (call,), tools=[AgentTool(teller, include_plugins=False)])
    with pytest.raises(RuntimeError, match="include_plugins=True"):
        await bank.hears()
    assert scene.ran == []


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_guarded_function_pauses_too(scene: Scene, confirmed: bool) -> None:
    """A function that is guarded itself asks by its own action, once; a no withdraws its request."""

    @scene.guard.guarded("bank.pay")
    async def send(to: str, amount: int) -> str:
        """Send money."""
        return scene.pay(to, amount)

    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    bank = Bank(scene, (Call("send", {"to": "eve", "amount": 40}, "call-pay"),), tools=[send])
    [request] = await bank.hears()
    assert [each.id for each in await bank.hears(answer(True, request))] == [request.id]
    assert scene.requests() == 1
    if confirmed:
        scene.approve(approval(request))
    await bank.hears(answer(confirmed, request))
    assert scene.ran == ([("pay", "eve", 40)] if confirmed else [])
    assert scene.status(approval(request)) == ("consumed" if confirmed else "cancelled")
    last = ("pay", "success" if confirmed else "denied")
    assert scene.logged() == sorted([("pay", "pending"), last])
