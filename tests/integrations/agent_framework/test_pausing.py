"""What pauses a run of Microsoft Agent Framework, and what it is gone on with: only the gateway lets a call run."""

import asyncio
import json
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentSession,
    Content,
    FunctionMiddleware,
    FunctionTool,
    InMemoryCheckpointStorage,
    Message,
    ToolApprovalMiddleware,
    Workflow,
    WorkflowBuilder,
    tool,
)
from support.frameworks.agent_framework import Scripted, answer, read
from support.frameworks.harness import Call, Scene

from toolgate_integrations.agent_framework import GuardMiddleware

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
LOOK = Call("look", {"what": "sky"}, "call-look")
DROP = Call("drop", {"table": "users"}, "call-drop")


class Currency(Enum):
    """What a payment may be in."""

    EUR = "EUR"


def agent(scene: Scene, *calls: Call, **options: Any) -> tuple[Agent[Any], Scripted]:
    """A guarded agent that makes the calls in one turn, and its client."""
    client = Scripted(calls)
    given = {"tools": list(scene.tools.values()), "middleware": [*GuardMiddleware(scene.guard)], **options}
    return Agent(client=client, name="treasurer", **given), client


def approval(request: Content) -> str:
    return str(request.additional_properties["approval_id"])


async def test_a_request_names_its_approval(scene: Scene) -> None:
    """The framework's own request is enough to find, show and decide the gateway's."""
    made, _ = agent(scene, PAY)
    [request] = (await made.run("go", session=AgentSession())).user_input_requests
    said = json.loads(json.dumps(request.to_dict()))["additional_properties"]
    assert (said["action"], scene.status(said["approval_id"])) == ("tools.pay", "pending")
    assert said["reason"]
    assert request.function_call is not None
    assert request.function_call.parse_arguments() == dict(PAY.arguments)


async def test_an_approval_of_the_frameworks_own_lets_nothing_through(scene: Scene) -> None:
    """A tool with approval_mode, and the calls beside it, come as approved: the gateway is asked all the same."""
    pay = tool(scene.pay, approval_mode="always_require")
    made, client = agent(scene, PAY, DROP, LOOK, tools=[pay, scene.drop, scene.look])
    session = AgentSession()
    [asked] = (await made.run("go", session=session)).user_input_requests
    assert "approval_id" not in asked.additional_properties
    assert scene.requests() == 0
    [held] = (await made.run(answer(asked, True), session=session)).user_input_requests
    assert scene.ran == [("look", "sky")]
    scene.approve(approval(held))
    last = await made.run(answer(held, True), session=session)
    assert (scene.ran, last.text) == ([("look", "sky"), ("pay", "eve", 40)], "done")
    assert "blocked" in read(client)["call-drop"]


async def test_a_no_is_taken_only_for_what_waits(scene: Scene) -> None:
    """A rejection of a call that this session knows nothing of withdraws nothing, and is no log entry."""
    made, _ = agent(scene, PAY)
    session = AgentSession()
    [request] = (await made.run("go", session=session)).user_input_requests
    await made.run(answer(request, False), session=AgentSession())
    assert scene.status(approval(request)) == "pending"
    assert scene.logged() == [("pay", "pending")]
    await made.run(answer(request, False), session=session)
    assert scene.status(approval(request)) == "cancelled"
    await made.run(answer(request, False), session=session)
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


async def test_a_no_of_many_kinds(scene: Scene) -> None:
    """What is not plainly true is a no to the framework, and is one to the gateway."""
    made, _ = agent(scene, PAY)
    session = AgentSession()
    [request] = (await made.run("go", session=session)).user_input_requests
    said: Any = request.to_function_approval_response(True)
    said.approved = "yes"
    await made.run(Message(role="user", contents=[said]), session=session)
    assert scene.ran == []
    assert scene.status(approval(request)) == "cancelled"


async def test_a_no_to_what_has_run(scene: Scene) -> None:
    """It comes too late: the session knows of no call that waits, and the log says no second thing of it."""
    made, _ = agent(scene, PAY)
    session = AgentSession()
    [request] = (await made.run("go", session=session)).user_input_requests
    scene.approve(approval(request))
    await made.run(answer(request, True), session=session)
    await made.run(answer(request, False), session=session)
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


async def test_middleware_behind_the_guard_that_asks(scene: Scene) -> None:
    """The call has not run, and is no failure; it goes on when the framework's own request is answered."""

    class Asking(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            if "approval_response" in context.metadata:
                await call_next()
                return
            name = context.metadata["function_call_occurrence_id"]
            call = Content.from_function_call(
                call_id=context.metadata["call_id"], name="look", arguments=dict(context.arguments), id=name
            )
            context.result = Content.from_function_approval_request(id=name, function_call=call)

    made, client = agent(scene, LOOK, middleware=[*GuardMiddleware(scene.guard), Asking()])
    session = AgentSession()
    [request] = (await made.run("go", session=session)).user_input_requests
    assert (scene.ran, scene.logged()) == ([], [("look", "pending")])
    await made.run(answer(request, True), session=session)
    assert read(client) == {"call-look": "seen sky"}
    assert scene.logged() == [("look", "pending"), ("look", "success")]


async def test_requests_are_answered_one_by_one(scene: Scene) -> None:
    """Each call of a turn has its own request and its own answer, in whatever order."""
    made, _ = agent(scene, PAY, MORE)
    session = AgentSession()
    pay, more = (await made.run("go", session=session)).user_input_requests
    scene.approve(approval(more))
    await made.run(answer(more, True), session=session)
    assert scene.ran == [("pay", "ann", 70)]
    scene.approve(approval(pay))
    await made.run(answer(pay, True), session=session)
    assert scene.ran == [("pay", "ann", 70), ("pay", "eve", 40)]


async def test_a_late_answer(scene: Scene) -> None:
    """The conversation may go on while a call waits; it is carried out when it is answered."""
    made, _ = agent(scene, PAY)
    session = AgentSession()
    [request] = (await made.run("go", session=session)).user_input_requests
    assert (await made.run("how are you?", session=session)).text == "done"
    scene.approve(approval(request))
    assert (await made.run(answer(request, True), session=session)).text == "done"
    assert scene.ran == [("pay", "eve", 40)]


async def test_arguments_outlive_the_pause_as_what_they_are(scene: Scene) -> None:
    """What a session keeps is JSON: the tool is given its own types again, and what the approver changed as well."""
    ran: list[datetime] = []

    def book(day: datetime, note: str = "") -> str:
        """Book a day."""
        ran.append(day)
        return "booked"

    scene.owner.permit(scene.agent_id, "tools.book", requires_approval=True)
    book_it = Call("book", {"day": "2026-11-22T10:00:00Z"}, "call-book")
    for edited in ({}, {"day": "2027-01-01T08:30:00+00:00"}):
        made, _ = agent(scene, book_it, tools=[book])
        session = AgentSession()
        [request] = (await made.run("go", session=session)).user_input_requests
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        waiting = scene.owner.http.get(f"/api/approvals/{approval(request)}").json()["context"]
        scene.approve(approval(request), **({"context": {**waiting, **edited}} if edited else {}))
        last = await made.run(answer(request, True), session=session)
        assert (last.text, last.user_input_requests) == ("done", [])
    assert ran == [datetime(2026, 11, 22, 10, tzinfo=UTC), datetime(2027, 1, 1, 8, 30, tzinfo=UTC)]


async def test_an_agent_that_is_a_tool_cannot_pause(scene: Scene) -> None:
    """Its caller would make an error of the pause: its model is told, and the same call goes through once approved."""
    scene.owner.permit(scene.agent_id, "tools.teller")
    teller = Scripted((PAY,), (), (PAY,))
    guard = GuardMiddleware(scene.guard)
    inner = Agent(client=teller, name="teller", tools=[scene.pay], middleware=[*guard])
    client = Scripted([Call("teller", {"task": "x"}, "1")], (), [Call("teller", {"task": "x"}, "2")])
    outer = Agent(client=client, name="treasurer", tools=[inner.as_tool()], middleware=[*guard])
    session = AgentSession()
    assert (await outer.run("go", session=session)).text == "done"
    assert "waits for a person" in read(teller)["call-pay"]
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    assert (await outer.run("again", session=session)).text == "done"
    assert scene.ran == [("pay", "eve", 40)]


async def test_an_agent_that_a_tool_runs_cannot_pause(scene: Scene) -> None:
    """Also where the tool runs it by itself, in a session of its own: nobody would go on with it."""
    scene.owner.permit(scene.agent_id, "tools.ask")
    inner, teller = agent(scene, PAY)

    async def ask(task: str) -> str:
        """Ask the teller."""
        return (await inner.run(task, session=AgentSession())).text

    outer, client = agent(scene, Call("ask", {"task": "x"}, "1"), tools=[ask])
    assert (await outer.run("go", session=AgentSession())).text == "done"
    assert "waits for a person" in read(teller)["call-pay"]
    assert read(client) == {"1": "done"}


async def test_an_agent_that_is_a_tool_of_an_agent_without_a_guard(scene: Scene) -> None:
    """It cannot pause either: its session is thrown away, and with it what would be gone on with."""
    inner, teller = agent(scene, PAY)
    client = Scripted([Call("treasurer", {"task": "x"}, "1")])
    outer = Agent(client=client, name="outer", tools=[inner.as_tool()])
    session = AgentSession()
    assert (await outer.run("go", session=session)).text == "done"
    assert "waits for a person" in read(teller)["call-pay"]
    assert read(client) == {"1": "done"}
    scene.approve((await scene.asked(1))["eve"])
    teller.turns, client.turns = [(PAY,)], [(Call("treasurer", {"task": "x"}, "2"),)]
    await outer.run("again", session=session)
    assert scene.ran == [("pay", "eve", 40)]


@pytest.mark.parametrize(("in_front", "stream"), [(True, False), (False, True)])
async def test_a_request_that_a_rule_answers_waits(
    scene: Scene, in_front: bool, stream: bool, guard_waits: Any
) -> None:
    """The framework's own rules go on with the run at once: it waits for the person, and asks no more."""
    rules, guard = ToolApprovalMiddleware(auto_approval_rules=[lambda _: True]), GuardMiddleware(scene.guard)
    made, client = agent(scene, PAY, middleware=[rules, *guard] if in_front else [*guard, rules])
    session = AgentSession()

    async def answered() -> str:
        if stream:
            return (await made.run("go", session=session, stream=True).get_final_response()).text
        return (await made.run("go", session=session)).text

    run = asyncio.create_task(answered())
    await guard_waits()
    scene.approve((await scene.asked(1))["eve"])
    assert (await asyncio.wait_for(run, 30)).endswith("done")
    assert read(client) == {"call-pay": "paid 40 to eve"}
    assert (scene.ran, scene.requests()) == ([("pay", "eve", 40)], 1)


async def test_a_guarded_function_whose_request_a_rule_answers(scene: Scene) -> None:
    """How it waits is its own matter: the model is told, and the run comes to an end."""

    @scene.guard.guarded("tools.pay")
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return scene.pay(to, amount)

    rules = ToolApprovalMiddleware(auto_approval_rules=[lambda _: True])
    made, client = agent(scene, PAY, tools=[pay], middleware=[rules, *GuardMiddleware(scene.guard)])
    result = await asyncio.wait_for(made.run("go", session=AgentSession()), 30)
    assert (result.text, scene.ran) == ("done", [])
    assert "waits for a person" in read(client)["call-pay"]


async def test_a_workflow_pauses(scene: Scene) -> None:
    """It goes on from a checkpoint, in another process; gone on with from there once more, the call is refused."""
    storage = InMemoryCheckpointStorage()

    def workflow(*calls: Call) -> Workflow:
        made, _ = agent(scene, *calls)
        executor = AgentExecutor(made, id="treasurer")
        return WorkflowBuilder(start_executor=executor, checkpoint_storage=storage, name="payments").build()

    [request] = (await workflow(PAY).run("go")).get_request_info_events()
    scene.approve(approval(request.data))
    kept = await storage.get_latest(workflow_name="payments")
    assert kept is not None
    for _ in range(2):
        woken = workflow()
        await woken.run(checkpoint_id=kept.checkpoint_id, checkpoint_storage=storage)
        result = await woken.run(
            responses={request.request_id: request.data.to_function_approval_response(True)}
        )
        assert (result.get_request_info_events(), scene.ran) == ([], [("pay", "eve", 40)])
    assert scene.logged() == [("pay", "denied"), ("pay", "pending"), ("pay", "success")]


async def test_without_a_session_nothing_pauses(scene: Scene) -> None:
    """The framework drops an answer without a word there: the model is told, and asks again."""
    made, client = agent(scene, PAY)
    first = await made.run("go")
    assert (first.text, first.user_input_requests) == ("done", [])
    assert "waits for a person" in read(client)["call-pay"]
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    client.turns = [(PAY,)]
    await made.run("again")
    assert scene.ran == [("pay", "eve", 40)]


async def test_what_cannot_be_kept_cannot_pause(scene: Scene) -> None:
    """Arguments that are no text cannot be written into a session: the model is told, the run goes on."""

    class Odd(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.arguments = {**context.arguments, "to": b"\xff"}
            await call_next()

    made, client = agent(scene, PAY, middleware=[Odd(), *GuardMiddleware(scene.guard)])
    result = await made.run("go", session=AgentSession())
    assert (result.text, result.user_input_requests) == ("done", [])
    assert "waits for a person" in read(client)["call-pay"]


@pytest.mark.parametrize("kind", [Path, Currency])
async def test_what_takes_no_approval_cannot_pause(scene: Scene, kind: type) -> None:
    """The framework ends a run that is gone on with such an argument: the model is told, and asks again."""
    ran: list[Any] = []

    def book(what: Any) -> str:
        """Book."""
        ran.append(what)
        return "booked"

    book.__annotations__["what"] = kind
    scene.owner.permit(scene.agent_id, "tools.book", requires_approval=True)
    made, client = agent(scene, Call("book", {"what": "EUR"}, "call-book"), tools=[book])
    session = AgentSession()
    result = await made.run("go", session=session)
    assert (result.text, result.user_input_requests) == ("done", [])
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    client.turns = [(Call("book", {"what": "EUR"}, "call-again"),)]
    await made.run("again", session=session)
    assert ran == [kind("EUR")]


async def test_a_guarded_function_pauses_too(scene: Scene) -> None:
    """A function that is guarded itself asks by its own action, once, and is gone on with after a restart."""

    @scene.guard.guarded("bank.pay")
    def send(to: str, amount: int) -> str:
        """Send money."""
        return scene.pay(to, amount)

    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    call = Call("send", {"to": "eve", "amount": 40}, "call-pay")
    session = AgentSession()
    made, _ = agent(scene, call, tools=[send])
    [request] = (await made.run("go", session=session)).user_input_requests
    assert scene.requests() == 1
    scene.approve(approval(request))
    kept = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    other, _ = agent(scene, tools=[FunctionTool(name="send", description="", func=send)])
    await other.run(answer(request, True), session=kept)
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]
