"""A plain `ToolNode`, whose calls share one task: nothing runs twice, nothing without its own approval, no rejected one."""

import random
from typing import Any, Literal

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from support.frameworks.graphs import Run, tool_graph
from support.frameworks.harness import Scene
from support.frameworks.scripted import calling

from toolgate import ConfigurationError
from toolgate_integrations.langchain import GuardMiddleware

LOOK = ("look", {"what": "sky"}, "call-look")
PAY = ("pay", {"to": "eve", "amount": 1}, "call-pay")
MORE = ("pay", {"to": "ann", "amount": 2}, "call-more")
MODES = pytest.mark.parametrize("mode", ["sync", "async"])
Mode = Literal["sync", "async"]


def running(scene: Scene, mode: Mode, *calls: Any, **options: Any) -> Run:
    tools = [tool(each) for each in scene.tools.values()]
    guard = GuardMiddleware(scene.guard, **options)
    return Run(tool_graph(calling(calls), tools, guard, InMemorySaver()), mode)


@MODES
async def test_an_allowed_call_beside_a_held_one_runs_once(scene: Scene, mode: Mode) -> None:
    """Nothing of the turn runs while one of its calls waits; then each runs, once."""
    run = running(scene, mode, LOOK, PAY)
    await run.start()
    assert scene.ran == []
    await run.resume("go")
    assert scene.ran == []
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 1)]
    assert scene.logged() == [("look", "success"), ("pay", "pending"), ("pay", "success")]


@MODES
@pytest.mark.parametrize("order", [("call-pay", "call-more"), ("call-more", "call-pay")])
async def test_two_held_calls_are_decided_in_any_order(
    scene: Scene, mode: Mode, order: tuple[str, str]
) -> None:
    """Both requests are made at once; whichever is decided first, and however it is resumed, each has its own fate."""
    run = running(scene, mode, PAY, MORE)
    await run.start()
    requests = dict(run.held)
    assert set(requests) == {"call-pay", "call-more"}
    scene.approve(requests[order[0]])
    await run.resume({"type": "approve", "tool_call_id": order[1]})
    assert dict(run.held) == {order[1]: requests[order[1]]}
    assert scene.ran == []
    scene.approve(requests[order[1]])
    await run.resume({"type": "approve", "tool_call_id": order[0]})
    assert sorted(scene.ran) == [("pay", "ann", 2), ("pay", "eve", 1)]
    assert run.read == {"call-pay": "paid 1 to eve", "call-more": "paid 2 to ann"}
    assert scene.requests() == 2


@MODES
@pytest.mark.parametrize("refused", ["call-pay", "call-more"])
async def test_what_a_person_declined_does_not_run_beside_what_was_approved(
    scene: Scene, mode: Mode, refused: str
) -> None:
    """The approval of one call carries out that one, whichever the model named first."""
    run = running(scene, mode, PAY, MORE)
    await run.start()
    other = next(each for each in run.held if each != refused)
    scene.approve(run.held[other])
    scene.deny(run.held[refused], "not this one")
    await run.resume({"type": "approve"})
    assert scene.ran == [("pay", "ann", 2) if refused == "call-pay" else ("pay", "eve", 1)]
    assert "not this one" in run.read[refused]


@MODES
@pytest.mark.parametrize("refused", ["call-pay", "call-more"])
async def test_a_no_with_a_name_is_a_no_to_that_call(scene: Scene, mode: Mode, refused: str) -> None:
    """Rejected by its id in the framework one call does not run, though it was approved; the other does."""
    run = running(scene, mode, PAY, LOOK, MORE)
    await run.start()
    requests = dict(run.held)
    for approval_id in requests.values():
        scene.approve(approval_id)
    await run.resume({"type": "reject", "message": "no", "tool_call_id": refused})
    ran = ("pay", "ann", 2) if refused == "call-pay" else ("pay", "eve", 1)
    assert sorted(scene.ran) == [("look", "sky"), ran]
    assert run.read[refused] == "Not done: the call was rejected. no"
    assert ("pay", "denied") in scene.logged()


@MODES
async def test_a_rejected_call_that_waits_is_withdrawn_and_the_rest_waits_on(
    scene: Scene, mode: Mode
) -> None:
    """A named no stays one while the other call still waits, through every further pause."""
    run = running(scene, mode, PAY, MORE)
    await run.start()
    requests = dict(run.held)
    await run.resume({"type": "reject", "tool_call_id": "call-pay"})
    assert dict(run.held) == {"call-more": requests["call-more"]}
    scene.approve(requests["call-more"])
    await run.resume("go")
    assert scene.ran == [("pay", "ann", 2)]
    assert scene.status(requests["call-pay"]) == "cancelled"


@MODES
async def test_a_no_without_a_name_refuses_the_turn(scene: Scene, mode: Mode) -> None:
    """Whom it was meant for cannot be known, so nothing of what was paused runs."""
    run = running(scene, mode, LOOK, PAY, MORE)
    await run.start()
    requests = dict(run.held)
    scene.approve(requests["call-more"])
    await run.resume({"type": "reject", "message": "stop it"})
    assert scene.ran == []
    assert set(run.read.values()) == {"Not done: the call was rejected. stop it"}
    assert scene.status(requests["call-pay"]) == "cancelled"
    assert run.held == {}


@MODES
async def test_one_after_the_other(scene: Scene, mode: Mode) -> None:
    """With room for one call at a time the first one does not wait for the others."""
    run = running(scene, mode, PAY, LOOK)
    run.config["max_concurrency"] = 1
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 1)]


async def test_the_synchronous_method_alone_in_an_asynchronous_graph(scene: Scene) -> None:
    """`ToolNode` calls it on the loop's thread; nobody waits for anybody else there."""
    guard = GuardMiddleware(scene.guard)
    guard.awrap_tool_call = None  # type: ignore[assignment, method-assign]  # as `ToolNode` has it by default
    tools = [tool(each) for each in scene.tools.values()]
    run = Run(tool_graph(calling([LOOK, PAY]), tools, guard, InMemorySaver()), "async")
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 1)]


@MODES
async def test_an_edit_reaches_its_own_call(scene: Scene, mode: Mode) -> None:
    """What an approver changed of one call is what runs of it, and the other stays."""
    run = running(scene, mode, PAY, MORE)
    await run.start()
    scene.approve(run.held["call-more"], context={"to": "ann", "amount": 9})
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert sorted(scene.ran) == [("pay", "ann", 9), ("pay", "eve", 1)]


async def test_a_function_that_is_guarded_itself_pauses_a_turn_in_which_nothing_ran(scene: Scene) -> None:
    """What it asks only its own call knows; coming first it pauses the turn, and each runs once."""
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    tools = [tool(scene.guard.guarded("bank.pay")(scene.pay)), tool(scene.look)]
    run = Run(tool_graph(calling([PAY, LOOK]), tools, GuardMiddleware(scene.guard), InMemorySaver()))
    run.config["max_concurrency"] = 1
    await run.start()
    assert scene.ran == []
    scene.approve(run.held["call-pay"])
    await run.resume("go")
    assert scene.ran == [("pay", "eve", 1), ("look", "sky")]
    assert scene.requests() == 1


async def test_a_function_that_is_guarded_itself_is_told_of_once_others_ran(scene: Scene) -> None:
    """Pausing would carry the others out again: the model is told to ask for it alone, and that pauses."""
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    tools = [tool(scene.guard.guarded("bank.pay")(scene.pay)), tool(scene.look)]
    model = calling([LOOK, PAY], [(*PAY[:2], "call-again")])
    run = Run(tool_graph(model, tools, GuardMiddleware(scene.guard), InMemorySaver()))
    run.config["max_concurrency"] = 1
    await run.start()
    assert scene.ran == [("look", "sky")]
    assert "Call the tool again, alone" in run.read["call-pay"]
    assert list(run.held) == ["call-again"]
    scene.approve(run.held["call-again"])
    await run.resume("go")
    assert scene.ran == [("look", "sky"), ("pay", "eve", 1)]


@MODES
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_decided_and_answered_each_call_has_its_own_fate(
    scene: Scene, mode: Mode, seed: int
) -> None:
    """Calls, decisions and answers at random: exactly what was allowed or approved runs, and once."""
    rng = random.Random(seed)
    calls = [
        rng.choice([("look", {"what": str(n)}, f"call-{n}"), ("pay", {"to": "x", "amount": n}, f"call-{n}")])
        for n in range(4)
    ]
    calls.append(("pay", {"to": "x", "amount": 4}, "call-4"))
    run = running(scene, mode, *calls)
    await run.start()
    fate: dict[str, bool] = {}
    while run.held:
        assert scene.ran == []
        for call_id, approval_id in rng.sample(sorted(run.held.items()), rng.randint(1, len(run.held))):
            fate[call_id] = rng.random() < 0.6
            scene.approve(approval_id) if fate[call_id] else scene.deny(approval_id, "no")
        answers = [True, "x", {"type": "approve"}, {"decisions": []}, 7, {"type": 3}]
        await run.resume(rng.choice(answers))
    expected = [(name, *args.values()) for name, args, call_id in calls if name == "look" or fate[call_id]]
    assert sorted(scene.ran) == sorted(expected)


@MODES
async def test_held_run_without_checkpointer_warns_once(
    scene: Scene, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [tool(each) for each in scene.tools.values()]
    guard = GuardMiddleware(scene.guard)
    graph = tool_graph(calling([PAY]), tools, guard, None)
    for _ in range(2):
        if mode == "sync":
            graph.invoke({"messages": []})
        else:
            await graph.ainvoke({"messages": []})
    assert scene.ran == []
    (warning,) = [record for record in caplog.records if "checkpointer" in record.getMessage()]
    assert "the call of 'pay' needs approval" in warning.getMessage()


@MODES
async def test_held_run_with_checkpointer_does_not_warn(
    scene: Scene, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    await running(scene, mode, PAY).start()
    assert "checkpointer" not in caplog.text


@MODES
async def test_misspelt_tool_action_is_an_error(scene: Scene, mode: Mode) -> None:
    run = running(scene, mode, PAY, tool_actions={"pey": "bank.pay"})
    with pytest.raises(ConfigurationError, match="'pey', which does not exist; did you mean 'pay'"):
        await run.start()
    assert scene.ran == []
