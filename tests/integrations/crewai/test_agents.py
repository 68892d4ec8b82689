"""Who acts, in which run, and what asks by itself."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from crewai import Agent, Crew, Task
from crewai.flow import Flow, start
from crewai.tools import BaseTool, tool
from support.frameworks.crewai import Scripted, crew, quiet, scripted
from support.frameworks.harness import Call, Scene
from support.waiting import until

from toolgate import acting_as
from toolgate_integrations.crewai import GuardHooks

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
LOOPS = pytest.mark.parametrize("native", [True, False], ids=["native", "react"])


def agent(llm: Scripted, *tools: Any, role: str = "treasurer", **options: Any) -> Agent:
    return Agent(role=role, goal="Pay.", backstory="Pays.", llm=llm, tools=list(tools), **options)


def who(scene: Scene) -> list[tuple[str, str, str | None]]:
    """Each log entry's agent, action and run."""
    assert scene.guard.flush(30)
    return sorted((each["agent_id"], each["action"], each["run_id"]) for each in scene.owner.entries())


def test_each_agent_acts_as_itself(scene: Scene) -> None:
    """Also the coworker that a task is delegated to, whose calls are asked about too."""
    boss, clerk = scene.owner.agent("boss"), scene.owner.agent("clerk")
    scene.owner.permit(boss, "tools.delegate_work_to_coworker")
    scene.owner.permit(clerk, "tools.look")
    work = {"task": "Look.", "context": "Now.", "coworker": "clerk"}
    with GuardHooks(scene.guard, agents={"boss": boss, "clerk": clerk}), quiet():
        leading = agent(
            scripted([Call("delegate_work_to_coworker", work, "call-1")], [LOOK]),
            tool(scene.look),
            role="boss",
            allow_delegation=True,
        )
        looking = agent(scripted([LOOK]), tool(scene.look), role="clerk")
        task = Task(description="Look.", expected_output="What was seen.", agent=leading)
        Crew(agents=[leading, looking], tasks=[task], tracing=False).kickoff()
    assert scene.ran == [("look", "sky")]
    assert who(scene) == sorted(
        [
            (boss, "tools.delegate_work_to_coworker", None),
            (clerk, "tools.look", None),
            (boss, "tools.look", None),
        ]
    )


def test_a_role_with_inputs_is_the_role_as_it_is_written(scene: Scene) -> None:
    """What is filled in at the kickoff does not make another agent of it, nor does white space."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.look")
    with GuardHooks(scene.guard, agents={"{topic} clerk": other}), quiet():
        looking = agent(scripted([LOOK]), tool(scene.look), role="{topic} clerk\n")
        task = Task(description="Look.", expected_output="What was seen.", agent=looking)
        Crew(agents=[looking], tasks=[task], tracing=False).kickoff(inputs={"topic": "sky"})
    assert who(scene) == [(other, "tools.look", None)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_agent_without_a_crew(scene: Scene, mode: str) -> None:
    """`Agent.kickoff` is guarded, and acts as whoever acts there."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.look")
    with GuardHooks(scene.guard), quiet(), acting_as(other, run_id="run-7"):
        alone = agent(scripted([LOOK], [PAY]), tool(scene.look), tool(scene.pay))
        if mode == "sync":
            alone.kickoff("go")
        else:
            asyncio.run(alone.kickoff_async("go"))
    assert scene.ran == [("look", "sky")]
    assert who(scene) == [(other, "tools.look", "run-7"), (other, "tools.pay", "run-7")]


def test_a_flow_is_the_run(scene: Scene) -> None:
    """By its id, which stays; the flow that an agent's loop is inside is none."""
    made = scripted([LOOK])

    class Looking(Flow[Any]):
        @start()
        def look(self) -> str:
            return str(crew(made, [tool(scene.look)]).kickoff().raw)

    with GuardHooks(scene.guard), quiet():
        flow = Looking(tracing=False, suppress_flow_events=True)
        flow.kickoff()
    assert who(scene) == [(scene.agent_id, "tools.look", flow.state["id"])]


def guarded_tools(scene: Scene) -> dict[str, Any]:
    @scene.guard.guarded("bank.pay")
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    @scene.guard.guarded("bank.pay")
    async def apay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay somebody."

        @scene.guard.guarded("bank.pay")
        def _run(self, to: str, amount: int) -> str:
            return scene.pay(to, amount)

    return {"function": tool(pay), "coroutine": tool("pay")(apay), "method": Pay()}


@LOOPS
@pytest.mark.parametrize("kind", ["function", "coroutine", "method"])
def test_a_guarded_function_asks_by_itself_once(scene: Scene, kind: str, *, native: bool) -> None:
    """Under its own action, as the agent of the call; its refusal is told as any other, and not tried again."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "bank.pay", requires_approval=True)
    llm = scripted([PAY], native=native)
    with GuardHooks(scene.guard, agents={"treasurer": other}), quiet():
        crew(llm, [guarded_tools(scene)[kind]]).kickoff()
    assert scene.ran == []
    assert llm.read[0].startswith("Not done yet: 'bank.pay' waits")
    assert who(scene) == [(other, "bank.pay", None)]
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    llm = scripted([PAY], [LOOK], [PAY], native=native)
    with GuardHooks(scene.guard, agents={"treasurer": other}), quiet():
        crew(llm, [guarded_tools(scene)[kind]], cache=True).kickoff()
    assert scene.ran == [("pay", "eve", 40)]
    assert llm.read[0] == "paid 40 to eve"


def test_a_guarded_function_is_not_answered_from_the_cache(scene: Scene) -> None:
    """The cache stands before it, and would answer without asking."""
    scene.owner.permit(scene.agent_id, "bank.look")

    @scene.guard.guarded("bank.look")
    def look(what: str) -> str:
        """Look at something."""
        return scene.look(what)

    llm = scripted([LOOK], [LOOK])
    with GuardHooks(scene.guard), quiet():
        crew(llm, [tool(look)], cache=True).kickoff()
    assert scene.ran == [("look", "sky"), ("look", "sky")]
    assert scene.logged() == [("look", "success"), ("look", "success")]


def test_what_the_person_changed_has_the_types_of_the_tool(scene: Scene) -> None:
    """The framework checks it after the guard, as it does what the model writes."""
    paid: list[Any] = []

    def pay(to: str, amount: Decimal) -> str:
        """Pay somebody."""
        paid.append((to, amount))
        return "paid"

    llm = scripted([Call("pay", {"to": "eve", "amount": "40.10"}, "call-pay")])

    async def go() -> None:
        with GuardHooks(scene.guard, on_hold="wait"), quiet():
            run = asyncio.create_task(asyncio.to_thread(crew(llm, [tool(pay)]).kickoff))
            [request] = await asyncio.to_thread(until, lambda: scene.owner.http.get("/api/approvals").json())
            scene.approve(request["id"], context={"to": "eve", "amount": 12.5})
            await run

    asyncio.run(go())
    assert paid == [("eve", Decimal("12.5"))]
    assert llm.read == ["paid"]
