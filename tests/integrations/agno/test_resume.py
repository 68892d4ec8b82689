"""What a paused run is gone on with."""

from typing import Any

import pytest
from agno.db.json import JsonDb
from agno.tools import tool
from support.frameworks.agno import agent, held
from support.frameworks.harness import Call, Scene

from toolgate_integrations.agno import aresume, resume
from toolgate_integrations.base import Bridge

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")


def test_a_run_goes_on_only_when_every_call_is_decided(scene: Scene) -> None:
    """What is undecided the framework would take for a no, and tell nobody."""
    paying = agent(scene, [LOOK, PAY, MORE])
    run = resume(paying, paying.run("go"))
    first = held(run)
    scene.approve(first["call-pay"])
    run = resume(paying, run)
    assert (run.is_paused, scene.ran, held(run)) == (True, [], {"call-more": first["call-more"]})
    scene.deny(first["call-more"], "not ann")
    run = resume(paying, run)
    assert (run.content, scene.ran) == ("done", [("look", "sky"), ("pay", "eve", 40)])
    assert "not ann" in paying.model.read["call-more"]
    assert scene.logged() == [
        ("look", "success"),
        ("pay", "denied"),
        ("pay", "pending"),
        ("pay", "pending"),
        ("pay", "success"),
    ]


def test_confirmed_past_the_guard(scene: Scene) -> None:
    """Gone on with by the framework alone, a held call that it took a yes for does not run."""
    paying = agent(scene, [PAY])
    run = resume(paying, paying.run("go"))
    for each in run.active_requirements:
        each.confirm()
    run = paying.continue_run(run_response=run)
    assert (run.content, scene.ran) == ("done", [])
    assert paying.model.read["call-pay"].startswith("Not done yet")


def test_ids_that_come_again_name_other_calls(scene: Scene) -> None:
    """Some providers count the calls of each turn from 0: an approval of one turn is none of the next."""
    paying = agent(scene, [PAY], [PAY])
    run = resume(paying, paying.run("go"))
    [first] = held(run).values()
    scene.approve(first)
    run = resume(paying, run)
    assert scene.ran == [("pay", "eve", 40)]
    [second] = held(run).values()
    assert second != first
    scene.approve(second)
    assert resume(paying, run).content == "done"
    assert scene.ran == [("pay", "eve", 40), ("pay", "eve", 40)]


def test_a_call_that_is_held_too_late_to_pause(scene: Scene, monkeypatch: Any) -> None:
    """Held only when it is carried out, it does not run; its request would be of no use, and is withdrawn."""
    monkeypatch.setattr(Bridge, "find_pending_steps", lambda self, call: iter(()))
    paying = agent(scene, [PAY])
    run = resume(paying, paying.run("go"))
    assert (run.content, scene.ran) == ("done", [])
    assert "Call the tool again" in paying.model.read["call-pay"]
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["status"] == "cancelled"


def test_a_later_turn_of_a_later_run_is_gone_on_with_after_a_restart(scene: Scene, tmp_path: Any) -> None:
    """Stored without what was said and called before it, its calls are the same ones all the same."""

    def paying(*turns: Any) -> Any:
        options = {"add_history_to_context": True, "store_tool_messages": False}
        return agent(scene, *turns, db=JsonDb(str(tmp_path)), session_id="INV-7", **options)

    looked = paying([LOOK])
    resume(looked, looked.run("go"))
    first = paying([LOOK], [PAY])
    asked = held(resume(first, first.run("go")))
    again = paying()
    run = resume(again, again.get_last_run_output("INV-7"))
    assert held(run) == asked
    scene.approve(asked["call-pay"])
    assert resume(again, run).content == "done"
    assert scene.ran == [("look", "sky"), ("look", "sky"), ("pay", "eve", 40)]
    assert scene.requests() == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_is_held_inside_a_tool_stays_to_be_decided(scene: Scene, asynchronous: bool) -> None:
    """The tool has begun, and only the call inside waits: approved, that goes through the next time."""
    pay = scene.guard.guarded("tools.pay")(scene.pay)

    def look(what: str) -> str:
        return pay("eve", 40)

    async def alook(what: str) -> str:
        return look(what)

    looking = agent(scene, [LOOK], tools=[tool(name="look")(alook if asynchronous else look)])
    await aresume(looking, await looking.arun("go", session_id="INV-7"))
    assert looking.model.read["call-look"].startswith("Not done yet: 'tools.pay' waits")
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    looking.model.turns = [[LOOK]]
    await aresume(looking, await looking.arun("go", session_id="INV-7"))
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [("look", "failed"), ("look", "success"), ("pay", "pending"), ("pay", "success")]


def test_what_only_the_user_can_say_is_left_to_them(scene: Scene) -> None:
    """A tool that the application carries out itself pauses the run as ever, and nobody else answers it."""
    elsewhere = tool(external_execution=True)(scene.drop)
    waiting = agent(
        scene, [LOOK, Call("drop", {"table": "users"}, "call-drop")], tools=[scene.look, elsewhere]
    )
    run = resume(waiting, waiting.run("go"))
    assert (run.is_paused, scene.ran) == (True, [])
    [asked] = [each for each in run.active_requirements if each.needs_external_execution]
    asked.set_external_execution_result("dropped by hand")
    run = resume(waiting, run)
    assert (run.content, scene.ran) == ("done", [("look", "sky")])
    assert waiting.model.read["call-drop"] == "dropped by hand"


def test_arguments_reach_the_tool_as_the_types_it_declares(scene: Scene) -> None:
    """What an approver wrote is brought to them by the framework, as what the model wrote is."""
    got: list[Any] = []

    def pay(to: str, amount: float, tags: set[str]) -> str:
        got.append((to, amount, tags))
        return "paid"

    paying = agent(scene, [Call("pay", {"to": "eve", "amount": 40, "tags": ["a"]}, "call-pay")], tools=[pay])
    run = resume(paying, paying.run("go"))
    scene.approve(held(run)["call-pay"], context={"to": "ann", "amount": 25, "tags": ["b", "c"]})
    resume(paying, run)
    assert got == [("ann", 25.0, {"b", "c"})]
    assert isinstance(got[0][1], float)
