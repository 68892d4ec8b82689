"""docs/frameworks/custom beside the behaviour suite: other ways to hold a call, the acting agent, common mistakes."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.frameworks.harness import Scene
from support.frameworks.invented import Answer, Hooks, Loop, Pause, ToolCall
from support.frameworks.recipe import PAGE, around, between, files
from support.readme import blocks
from support.waiting import eventually, until


def test_the_example_runs_as_written(tmp_path: Path) -> None:
    """Saved under the names in their first lines, the page's blocks print what the page shows."""
    for name, code in files().items():
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks(PAGE, "text")[0]


LOOK = ToolCall("look", {"what": "sky"}, "call-look")
PAY = ToolCall("pay", {"to": "eve", "amount": 40}, "call-pay")
BURN = ToolCall("burn", {"what": "water"}, "call-burn")

both = pytest.mark.parametrize("hooks", [around, between])


def ran_with(scene: Scene, hooks: Hooks, *calls: ToolCall, **habits: bool) -> Loop:
    loop = Loop(dict(scene.tools), hooks, [calls], **habits)
    loop.run()
    return loop


def waiting(scene: Scene) -> Any:
    found = scene.owner.http.get("/api/approvals", params={"status": "pending"}).json()
    return found and found[0]["id"]


@both
def test_waiting_in_the_hook(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """Where the framework has no pause the call waits for the person, beside others that do not."""
    loop = Loop(dict(scene.tools), hooks(scene, on_hold="wait"), [[PAY, LOOK]])
    running = threading.Thread(target=loop.run)
    running.start()
    scene.approve(until(lambda: waiting(scene)))
    running.join()
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 40)]
    assert (loop.read["call-pay"], loop.text) == ("paid 40 to eve", "done")


async def test_waiting_in_an_asynchronous_hook(scene: Scene) -> None:
    """The same, and the loop goes on meanwhile."""
    loop = Loop(dict(scene.tools), around(scene, on_hold="wait"), [[PAY]])
    running = asyncio.create_task(loop.arun())
    scene.deny(await eventually(lambda: asyncio.to_thread(waiting, scene)), "not eve")
    await running
    assert scene.ran == []
    assert "not eve" in loop.read["call-pay"]


@both
def test_waiting_in_vain(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """When the time is over the model is told: a pause would be lost on a framework that has none."""
    loop = ran_with(scene, hooks(scene, on_hold="wait", hold_timeout=0.2), PAY)
    assert (scene.ran, loop.paused, loop.text) == ([], {}, "done")
    assert "waits for a person" in loop.read["call-pay"]


@both
def test_telling_the_model_to_ask_again(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """The model reads that it waits; asked again by another id, once approved, it passes once; denials are not cached."""
    loop = ran_with(scene, hooks(scene, on_hold="notify_model"), PAY, caches=True)
    assert (loop.paused, loop.text) == ({}, "done")
    assert "waits for a person" in loop.read["call-pay"]
    scene.approve(waiting(scene))
    loop.turns = [[ToolCall("pay", PAY.arguments, "call-again")]]
    loop.run()
    assert loop.read["call-again"] == "paid 40 to eve"
    loop = ran_with(scene, hooks(scene, on_hold="notify_model"), PAY)
    assert "waits for a person" in loop.read["call-pay"]
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 2


@both
def test_an_error_that_is_an_answer_is_a_failure(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """The model reads what the framework says, and the log does not say success."""
    loop = ran_with(scene, hooks(scene), BURN, tells_errors=True)
    assert loop.read["call-burn"] == "error: water does not burn"
    assert scene.logged() == [("burn", "failed")]


@both
def test_a_tool_that_pauses_by_itself_has_not_failed(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """The framework comes back to it, and the tool then runs to its end."""
    asked: list[str] = []

    def look(what: str) -> str:
        asked.append(what)
        if len(asked) == 1:
            raise Pause("which sky?")
        return "seen"

    loop = Loop({"look": look}, hooks(scene), [[LOOK]])
    loop.run()
    assert loop.paused["call-look"] == (LOOK, "which sky?")
    loop.run()
    assert (loop.read["call-look"], loop.text) == ("seen", "done")
    assert scene.logged() == [("look", "pending"), ("look", "success")]


@both
def test_each_agent_acts_as_itself(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """The agents of the mapping act under their ids, all others as the guard's own agent."""
    clerk = scene.owner.agent("clerk")
    scene.owner.permit(clerk, "tools.look")
    hung = hooks(scene)
    hook = (hung.around or hung.before).__self__  # type: ignore[union-attr]  # one of them is a method of the page's
    hook.bridge._agents["clerk"] = clerk
    calls = [
        ToolCall("look", {"what": name}, name, agent=name) for name in ("clerk", "treasurer", "stranger")
    ]
    loop = ran_with(scene, hung, *calls)
    assert sorted(scene.ran) == [("look", "clerk"), ("look", "stranger"), ("look", "treasurer")]
    assert set(loop.read) == {"clerk", "treasurer", "stranger"}
    assert scene.guard.flush(30)
    entries = {each["context"]["what"]: each["agent_id"] for each in scene.owner.entries()}
    assert entries == {"clerk": clerk, "treasurer": scene.agent_id, "stranger": scene.agent_id}


@both
@pytest.mark.parametrize(
    "call",
    [
        ToolCall("look", {"what": "sky"}, "i" * 300),
        ToolCall("look", {"what": "sky"}, "a line\nand another"),
    ],
)
def test_ids_of_any_form_are_sent(scene: Scene, hooks: Callable[..., Hooks], call: ToolCall) -> None:
    """An id that the gateway does not accept is sent as its digest."""
    ran_with(scene, hooks(scene), call)
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("look", "success")]


@both
def test_a_tool_with_an_odd_name_is_blocked(scene: Scene, hooks: Callable[..., Hooks]) -> None:
    """Its action is an escaped one, which nobody permitted."""
    loop = ran_with(scene, hooks(scene), ToolCall("look me up", {"what": "sky"}, "call-odd"))
    assert scene.ran == []
    assert "'tools.look%20me%20up' is blocked" in loop.read["call-odd"]


@both
def test_a_guard_that_fails_runs_nothing(
    scene: Scene, hooks: Callable[..., Hooks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong in the hook, and wherever it is swallowed: the tool does not run."""
    hung = hooks(scene)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(scene.guard, "action", fail)
    loop = ran_with(scene, hung, LOOK)
    assert scene.ran == []
    assert "RuntimeError" in loop.read["call-look"] or "out of order" in loop.read["call-look"]


def test_the_framework_is_as_careless_as_real_ones(scene: Scene) -> None:
    """What the test above holds is no merit of the framework: there a hook that raises lets the tool run."""

    def before(call: ToolCall) -> Answer | None:
        raise RuntimeError("out of order")

    ran_with(scene, Hooks(before=before, after=lambda *_: None), LOOK)
    assert scene.ran == [("look", "sky")]


def test_edits_reach_the_tool_of_two_callbacks(scene: Scene) -> None:
    """What the framework runs is what was approved, in a loop that was taken up elsewhere."""
    loop = ran_with(scene, between(scene), PAY)
    scene.approve(waiting(scene), context={"to": "eve", "amount": 25})
    taken_up = Loop(dict(scene.tools), between(scene))
    taken_up.load(loop.state())
    taken_up.run()
    assert scene.ran == [("pay", "eve", 25)]
