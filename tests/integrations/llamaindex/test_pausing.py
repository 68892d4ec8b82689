"""What a held call waits for: its own answer, carried out once however often the framework wakes it."""

import asyncio
import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from support.frameworks.harness import Call, Scene
from support.frameworks.llamaindex import OLD_NAMES, SERIALIZER, Run, Script, agent

from toolgate_integrations.llamaindex import guard_agent

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
pytestmark = [pytest.mark.filterwarnings(f"ignore:{each}") for each in OLD_NAMES]


def guarded(scene: Scene, *turns: Any, **options: Any) -> FunctionAgent:
    return guard_agent(agent(Script(*turns), list(scene.tools.values()), **options), scene.guard)


async def begun(paying: FunctionAgent) -> Run:
    return await Run(paying.run(user_msg="go")).on()


async def again(paying: FunctionAgent, kept: str) -> Run:
    """The run in a new process, which has not gone on yet."""
    return Run(paying.run(ctx=Context.from_dict(paying, json.loads(kept), serializer=SERIALIZER)))


async def test_the_event_says_what_waits(scene: Scene) -> None:
    """Who answers is shown the call and its approval."""
    run = await begun(guarded(scene, [PAY]))
    asked = run.asked["call-pay"]
    assert (asked.action, asked.tool_name, asked.tool_kwargs) == ("tools.pay", "pay", PAY.arguments)
    assert scene.status(asked.approval_id) == "pending"
    assert "'tools.pay' waits for a person" in asked.prefix
    await run.handler.cancel_run()


async def test_answers_without_a_name_wake_nothing(scene: Scene) -> None:
    """An answer that names no approval, or another one, is none to a call that waits."""
    run = await begun(guarded(scene, [PAY]))
    scene.approve(run.asked["call-pay"].approval_id)
    run.handler.ctx.send_event(HumanResponseEvent(response="yes"))
    run.answer("another")
    run.answer(run.asked["call-pay"].approval_id, "no")
    await run.end()
    assert scene.ran == []
    assert "rejected" in (await run.read())["call-pay"]


async def test_a_no_is_a_no_to_its_own_call_alone_also_after_a_restart(scene: Scene) -> None:
    """A restarted run gives the first answer to every call that waits; only the one it names takes it for its own."""
    first = await begun(guarded(scene, [PAY, MORE]))
    held = {name: asked.approval_id for name, asked in first.asked.items()}
    kept = first.kept()
    await first.handler.cancel_run()
    scene.approve(held["call-more"])
    run = await again(guarded(scene), kept)
    # At once: before the framework has its requirements again.
    run.answer(held["call-pay"], "no", reason="not eve")
    run.answer(held["call-more"])
    await run.end()
    assert scene.ran == [("pay", "ann", 70)]
    read = await run.read()
    assert "rejected. not eve" in read["call-pay"]
    assert "paid 70 to ann" in read["call-more"]
    assert (scene.status(held["call-pay"]), scene.status(held["call-more"])) == ("cancelled", "consumed")


async def test_two_answers_to_one_call_carry_it_out_once(scene: Scene) -> None:
    """The framework carries a step out again for each answer; the model is told of one result."""
    run = await begun(guarded(scene, [PAY]))
    approval_id = run.asked["call-pay"].approval_id
    scene.approve(approval_id)
    for _ in range(3):
        run.answer(approval_id)
    assert (await run.end()).answered == ["call-pay"]
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


async def test_undecided_it_asks_again_and_is_still_one_call(scene: Scene) -> None:
    """Woken too early a call says again that it waits; its last answer has it carried out once."""
    run = await begun(guarded(scene, [PAY]))
    approval_id = run.asked.pop("call-pay").approval_id
    for _ in range(2):
        run.answer(approval_id)
        await run.on()
        assert run.asked.pop("call-pay").approval_id == approval_id
    scene.approve(approval_id)
    run.answer(approval_id)
    assert (await run.end()).answered == ["call-pay"]
    assert scene.ran == [("pay", "eve", 40)]


async def test_a_kept_run_that_is_gone_on_with_twice_ends_twice(scene: Scene) -> None:
    """In one process, too: the payment is made once, and the second run reads so instead of waiting for ever."""
    paying = guarded(scene, [PAY])
    first = await begun(paying)
    approval_id, kept = first.asked["call-pay"].approval_id, first.kept()
    await first.handler.cancel_run()
    scene.approve(approval_id)
    read = []
    for _ in range(2):
        run = await again(paying, kept)
        run.answer(approval_id)
        await asyncio.wait_for(run.end(), 30)
        read.append((await run.read())["call-pay"])
    assert scene.ran == [("pay", "eve", 40)]
    assert read[0] == "paid 40 to eve"
    assert "Not done" in read[1]


async def test_an_agent_inside_a_tool_of_the_same_name_pauses(scene: Scene) -> None:
    """A call of the inner run is another one, also where models name their calls alike."""
    inner = guard_agent(agent(Script([Call("pay", PAY.arguments, "1")]), [scene.pay]), scene.guard)
    asked: list[str] = []

    async def pay(to: str) -> str:
        """Have somebody pay."""
        run = await begun(inner)
        asked.extend(run.asked)
        await run.handler.cancel_run()
        return to

    made = agent(Script([Call("pay", {"to": "eve"}, "1")]), [pay])
    await begun(guard_agent(made, scene.guard, tool_actions={"pay": "tools.look"}))
    assert asked == ["1"]


@pytest.mark.parametrize("name", ["pay", ""])
async def test_models_without_ids_of_their_own(scene: Scene, name: str) -> None:
    """Where every call of a tool has the same id, or none, each is a call of its own, with its own request."""
    one, two = Call("pay", PAY.arguments, name), Call("pay", MORE.arguments, name)
    paying = guarded(scene, [one], [two], [one])
    run = Run(paying.run(user_msg="go"))
    paid = []
    while (await run.on()).output is None:
        [asked] = run.asked.values()
        paid.append(asked.approval_id)
        scene.approve(asked.approval_id)
        run.answer(asked.approval_id)
    assert scene.ran == [("pay", "eve", 40), ("pay", "ann", 70), ("pay", "eve", 40)]
    assert len(set(paid)) == 3


async def test_a_refusal_is_no_last_word(scene: Scene) -> None:
    """The refusal of a tool that returns directly is told to the model, not to the user."""
    drop = FunctionTool.from_defaults(scene.drop, return_direct=True)
    made = agent(Script([Call("drop", {"table": "users"}, "call-drop")]), [drop])
    run = await begun(guard_agent(made, scene.guard))
    assert run.output is not None
    assert run.output.response.content == "done"
    assert "blocked" in (await run.read())["call-drop"]


async def test_a_tool_that_asks_by_itself(scene: Scene) -> None:
    """A tool's own question is no failure; answered, the allowed tool goes on."""

    async def look(ctx: Context, what: str) -> str:
        """Ask, then look."""
        event = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_id="own",
            requirements={"user": "ann"},
            waiter_event=InputRequiredEvent(approval_id="", tool_id="own"),
        )
        return f"{event.response} {scene.look(what)}"

    made = agent(Script([Call("look", {"what": "sky"}, "call-look")]), [look])
    run = await begun(guard_agent(made, scene.guard))
    run.handler.ctx.send_event(HumanResponseEvent(response="I have", user="ann"))
    await run.on()
    assert (await run.read())["call-look"] == "I have seen sky"
    assert scene.logged() == [("look", "pending"), ("look", "success")]


async def test_outside_of_a_run_nothing_pauses(scene: Scene) -> None:
    """A guarded tool that is called directly tells that the call waits; the same call passes when it is approved."""
    made = guarded(scene)
    pay = next(each for each in made.tools or [] if each.metadata.name == "pay")
    told = await pay.acall(**PAY.arguments)
    assert told.is_error
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["id"] in told.content
    scene.approve(request["id"])
    assert (await pay.acall(**PAY.arguments)).content == "paid 40 to eve"
    assert pay.call(**MORE.arguments).is_error
    assert scene.ran == [("pay", "eve", 40)]
