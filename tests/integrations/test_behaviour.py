"""Every framework behaves alike: its own agent loop and fake model, the plugin, and a live gateway."""

import asyncio
import contextlib
import gc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.frameworks.choosing import harnesses
from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Session, error_texts, set_scene
from support.gateway import LiveGateway, Owner

from toolgate import ActionDenied
from toolgate._http.client import AsyncGatewayClient, GatewayClient

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
AGAIN = Call("pay", {"to": "eve", "amount": 40}, "call-again")
DROP = Call("drop", {"table": "users"}, "call-drop")
SEND = Call("send", {"to": "eve"}, "call-send")
SEND_LITTLE = Call("send", {"to": "eve", "amount": 50}, "call-little")
LOOK_AGAIN = Call("look", {"what": "sky"}, "call-look-again")
BURN = Call("burn", {"what": "water"}, "call-burn")

T = TypeVar("T", bound=Callable[..., Any])

#: a reduced run has these in every mode of each framework, and each other test in one mode
IN_EVERY_MODE = {"test_allowed", "test_blocked", "test_held_then_approved", "test_held_then_declined"}
#: starts the gateway again in each case, so it is run in the first mode, the quickest one
IN_FIRST_MODE = {"test_outage"}
#: what a held call does in a test that is about that; the others are run as the framework pauses, or waits
ABOUT: dict[str, OnHold] = {}


def about(on_hold: OnHold) -> Callable[[T], T]:
    """A test of those frameworks whose held calls can do this."""

    def note(test: T) -> T:
        ABOUT[test.__name__] = on_hold
        return test

    return note


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test every framework in every mode, but what it says it cannot do."""
    if "harness" in metafunc.fixturenames:
        cell = metafunc.function.__name__
        metafunc.parametrize(
            ("harness", "mode"),
            [
                pytest.param(
                    harness,
                    mode,
                    id=f"{harness.name}-{mode}",
                    marks=[pytest.mark.slow] if _is_slow(harness, mode, cell) else [],
                )
                for harness in harnesses(metafunc.config)
                for mode in harness.modes
                if cell not in harness.cannot and ABOUT.get(cell, harness.holds[0]) in harness.holds
            ],
        )


def _is_slow(harness: Harness, mode: Mode, cell: str) -> bool:
    if cell in getattr(harness, "slow", ()):
        return True
    if cell in IN_EVERY_MODE:
        return False
    # Which mode differs from test to test, so that no mode is left out.
    number = 0 if cell in IN_FIRST_MODE else zlib.crc32(f"{harness.name} {cell}".encode())
    return mode != harness.modes[number % len(harness.modes)]


@pytest.fixture
def scene(owner: Owner, harness: Harness, request: pytest.FixtureRequest) -> Iterator[Scene]:
    # Where nobody answers, all of it is waited for.
    timeout = 0.3 if request.function is test_outage else None
    more = request.function in (
        test_default_argument_is_asked_about,
        test_arguments_changed_during_the_check_do_not_run,
    )
    with set_scene(owner, harness.prefix, timeout, more=more) as scene:
        scene.cached = request.function is test_wrapper_of_a_guarded_function_is_asked_about
        yield scene


@pytest.fixture
async def session(
    scene: Scene, harness: Harness, mode: Mode, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Session]:
    on_hold = ABOUT.get(request.function.__name__, harness.holds[0])
    session = harness.session(scene, mode, tmp_path, on_hold)
    yield session
    # A test that failed may have left a thread waiting for a person.
    scene.let_go()
    await session.close()


async def test_allowed(session: Session, scene: Scene) -> None:
    """An allowed call runs once, the model reads its result, and the log says so."""
    seen = await session.start(LOOK)
    assert scene.ran == [("look", "sky")]
    assert "seen sky" in seen.read["call-look"]
    assert (seen.text, dict(seen.held)) == ("done", {})
    assert scene.logged() == [("look", "success")]


async def test_blocked(session: Session, scene: Scene) -> None:
    """A blocked call does not run; the model reads why, and the run goes on."""
    seen = await session.start(DROP)
    assert scene.ran == []
    assert seen.read["call-drop"].startswith("Not done")
    assert "blocked" in seen.read["call-drop"]
    assert seen.text == "done"
    assert scene.logged() == [("drop", "denied")]


@about("pause")
async def test_held_then_approved(session: Session, scene: Scene) -> None:
    """A held call pauses the run; approved at the gateway it is carried out, once."""
    seen = await session.start(PAY)
    assert scene.ran == []
    assert (list(seen.held), seen.text) == (["call-pay"], None)
    scene.approve(seen.held["call-pay"])
    seen = await session.resume()
    assert scene.ran == [("pay", "eve", 40)]
    assert "paid 40 to eve" in seen.read["call-pay"]
    assert seen.text == "done"
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@about("pause")
async def test_held_then_declined(session: Session, scene: Scene) -> None:
    """A call that a person declined is not carried out; the model reads their note."""
    seen = await session.start(PAY)
    scene.deny(seen.held["call-pay"], "eve is not our customer")
    seen = await session.resume()
    assert scene.ran == []
    assert "eve is not our customer" in seen.read["call-pay"]
    assert seen.text == "done"
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


@about("pause")
async def test_resumed_undecided(session: Session, scene: Scene) -> None:
    """Whatever the resume says, only the gateway's decision lets the call run: undecided, it pauses again."""
    first = await session.start(PAY)
    again = await session.resume("go")
    assert scene.ran == []
    assert dict(again.held) == dict(first.held)
    scene.approve(again.held["call-pay"])
    last = await session.resume("go")
    assert scene.ran == [("pay", "eve", 40)]
    assert last.text == "done"
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@about("pause")
async def test_rejected_in_the_framework(session: Session, scene: Scene) -> None:
    """Rejected in the framework's own way the call does not run, its request is withdrawn, and the log says so."""
    seen = await session.start(PAY)
    approval_id = seen.held["call-pay"]
    seen = await session.resume("reject")
    assert scene.ran == []
    assert scene.status(approval_id) == "cancelled"
    assert seen.text == "done"
    assert seen.read["call-pay"]
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


@about("pause")
async def test_edited(session: Session, scene: Scene) -> None:
    """What the approver changed is what runs."""
    seen = await session.start(PAY)
    scene.approve(seen.held["call-pay"], context={"to": "eve", "amount": 25})
    seen = await session.resume()
    assert scene.ran == [("pay", "eve", 25)]
    assert "paid 25 to eve" in seen.read["call-pay"]


async def test_tool_error(session: Session, scene: Scene) -> None:
    """A tool that raises is logged as failed, whatever the framework makes of it."""
    with contextlib.suppress(RuntimeError):
        await session.start(BURN)
    assert scene.ran == [("burn", "water")]
    assert scene.logged() == [("burn", "failed")]


async def test_outage(session: Session, scene: Scene, live_gateway: LiveGateway) -> None:
    """Without a gateway nothing runs, and the model is told so."""
    live_gateway.stop()
    try:
        seen = await session.start(LOOK)
    finally:
        live_gateway.start()
    assert scene.ran == []
    assert "did not answer" in seen.read["call-look"]
    assert seen.text == "done"


@about("pause")
async def test_parallel(session: Session, scene: Scene) -> None:
    """Of four calls in one turn each has its own fate: one runs, one is blocked, two wait and are decided apart."""
    seen = await session.start(LOOK, DROP, PAY, MORE)
    assert set(seen.held) == {"call-pay", "call-more"}
    assert len(set(seen.held.values())) == 2
    assert [each for each in scene.ran if each[0] != "look"] == []
    scene.approve(seen.held["call-more"])
    scene.deny(seen.held["call-pay"], "not eve")
    seen = await session.resume()
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "ann", 70)]
    assert "seen sky" in seen.read["call-look"]
    assert "blocked" in seen.read["call-drop"]
    assert "not eve" in seen.read["call-pay"]
    assert "paid 70 to ann" in seen.read["call-more"]
    assert seen.text == "done"
    assert scene.requests() == 2


@about("pause")
async def test_replayed_after_a_restart(session: Session, scene: Scene) -> None:
    """A run goes on in another process: nothing is asked or recorded twice, what ran does not run again."""
    seen = await session.start(LOOK, PAY)
    scene.approve(seen.held["call-pay"])
    await session.close()
    fresh = session.restarted()
    try:
        seen = await fresh.resume()
    finally:
        await fresh.close()
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "eve", 40)]
    assert seen.text == "done"
    assert scene.requests() == 1
    assert scene.logged() == [("look", "success"), ("pay", "pending"), ("pay", "success")]


@about("pause")
async def test_a_finished_run_is_not_carried_out_again(session: Session, scene: Scene) -> None:
    """The state of a paused run, gone on with twice, carries its call out once."""
    seen = await session.start(PAY)
    scene.approve(seen.held["call-pay"])
    twin = session.restarted()
    try:
        await session.resume()
        await _ignoring(twin.resume())
    finally:
        await twin.close()
    assert scene.ran == [("pay", "eve", 40)]


@about("wait")
async def test_waited_for_then_approved(session: Session, scene: Scene) -> None:
    """A call waits within the run; what the approver changed is what runs, once."""
    run = asyncio.create_task(session.start(PAY))
    asked = await scene.asked(1)
    assert scene.ran == []
    await asyncio.to_thread(scene.approve, asked["eve"], context={"to": "eve", "amount": 25})
    seen = await run
    assert scene.ran == [("pay", "eve", 25)]
    assert "paid 25 to eve" in seen.read["call-pay"]
    assert (seen.text, dict(seen.held)) == ("done", {})
    assert ("pay", "success") in scene.logged()


@about("wait")
async def test_waited_for_then_declined(session: Session, scene: Scene) -> None:
    """A call that a person declined while it waited is not carried out; the model reads their note."""
    run = asyncio.create_task(session.start(PAY))
    asked = await scene.asked(1)
    await asyncio.to_thread(scene.deny, asked["eve"], "eve is not our customer")
    seen = await run
    assert scene.ran == []
    assert "eve is not our customer" in seen.read["call-pay"]
    assert seen.text == "done"
    assert ("pay", "denied") in scene.logged()


@about("wait")
async def test_waited_for_in_parallel(session: Session, scene: Scene) -> None:
    """Of four calls in one turn two wait, each for its own decision; the two others are held up by nobody's no."""
    run = asyncio.create_task(session.start(LOOK, DROP, PAY, MORE))
    asked: dict[str, str] = {}
    for number in (1, 2):
        # One after the other, where the framework carries out the calls of a turn so.
        for to, approval_id in (await scene.asked(number)).items():
            if to not in asked:
                await asyncio.to_thread(
                    *((scene.approve, approval_id) if to == "ann" else (scene.deny, approval_id, "not eve"))
                )
            asked[to] = approval_id
    seen = await run
    assert sorted(scene.ran) == [("look", "sky"), ("pay", "ann", 70)]
    assert "seen sky" in seen.read["call-look"]
    assert "blocked" in seen.read["call-drop"]
    assert "not eve" in seen.read["call-pay"]
    assert "paid 70 to ann" in seen.read["call-more"]
    assert seen.text == "done"


@about("notify_model")
async def test_told_then_asked_again(session: Session, scene: Scene) -> None:
    """The model reads that a call waits, and goes on; the same call made after the approval runs, once."""
    seen = await session.start(PAY)
    assert scene.ran == []
    assert seen.read["call-pay"].startswith("Not done yet")
    assert (seen.text, dict(seen.held)) == ("done", {})
    asked = await scene.asked(1)
    assert asked["eve"] in seen.read["call-pay"]
    scene.approve(asked["eve"])
    seen = await session.start(AGAIN)
    assert scene.ran == [("pay", "eve", 40)]
    assert "paid 40 to eve" in seen.read["call-again"]
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@about("notify_model")
async def test_told_in_parallel(session: Session, scene: Scene) -> None:
    """Of four calls in one turn each has its own fate, and the model reads of all four."""
    seen = await session.start(LOOK, DROP, PAY, MORE)
    assert scene.ran == [("look", "sky")]
    asked = await scene.asked(2)
    assert "seen sky" in seen.read["call-look"]
    assert "blocked" in seen.read["call-drop"]
    assert asked["eve"] in seen.read["call-pay"]
    assert asked["ann"] in seen.read["call-more"]
    assert seen.text == "done"
    assert scene.logged() == [("drop", "denied"), ("look", "success"), ("pay", "pending"), ("pay", "pending")]


@about("raise")
async def test_pending_call_ends_the_run(session: Session, scene: Scene) -> None:
    """The call does not run, and the caller of the run receives `ApprovalPending`, or its text over a protocol."""
    run = asyncio.create_task(session.start(PAY))
    await asyncio.wait({run})
    error = run.exception()
    assert error is not None
    asked = await scene.asked(1)
    texts = error_texts(error)
    assert "waits for a person's approval" in texts
    assert asked["eve"] in texts
    assert scene.ran == []
    assert scene.logged() == [("pay", "pending")]


async def test_default_argument_is_asked_about(session: Session, scene: Scene) -> None:
    """A call that leaves an argument to its default is decided by the value that the tool would receive."""
    seen = await session.start(SEND)
    assert scene.ran == []
    assert seen.read["call-send"].startswith("Not done")
    assert seen.text == "done"
    assert scene.logged() == [("send", "denied")]
    seen = await session.start(SEND_LITTLE)
    assert scene.ran == [("send", "eve", 50)]
    assert "sent 50 to eve" in seen.read["call-little"]


async def test_arguments_changed_during_the_check_do_not_run(
    session: Session, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes the arguments in memory while the gateway is asked, the tool does not receive it."""
    changes: list[int] = []
    sync_check, async_check = GatewayClient.check, AsyncGatewayClient.check

    def check(client: Any, question: Any, *given: Any) -> Any:
        decision = sync_check(client, question, *given)
        # A dry run is followed by one more check.
        changes.append(0 if question.dry_run else _change_labels())
        return decision

    async def acheck(client: Any, question: Any, *given: Any) -> Any:
        decision = await async_check(client, question, *given)
        # What is only looked at is asked about once more.
        changes.append(0 if question.dry_run else _change_labels())
        return decision

    monkeypatch.setattr(GatewayClient, "check", check)
    monkeypatch.setattr(AsyncGatewayClient, "check", acheck)
    with contextlib.suppress(ActionDenied):
        await session.start(Call("tag", {"labels": ["harmless", "label"]}, "call-tag"))
    assert changes
    assert scene.ran in ([], [("tag", "harmless", "label")])


def _change_labels() -> int:
    """Change every list in this process that holds the labels; returns how many there were."""
    found = [each for each in gc.get_objects() if type(each) is list and each == ["harmless", "label"]]
    for each in found:
        each[0] = "harmful"
    return len(found)


async def test_wrapper_of_a_guarded_function_is_asked_about(session: Session, scene: Scene) -> None:
    """A tool that caches what a guarded function returned is asked about at each call."""
    seen = await session.start(LOOK)
    assert scene.ran == [("look", "sky")]
    assert "seen sky" in seen.read["call-look"]
    scene.revoke("look")
    seen = await session.start(LOOK_AGAIN)
    assert seen.read["call-look-again"].startswith("Not done")
    assert scene.ran == [("look", "sky")]
    assert ("look", "denied") in scene.logged()


async def _ignoring(run: Any) -> None:
    # A framework may refuse to go on with what has ended; that is as good as telling the model.
    try:
        await run
    except AssertionError:
        raise
    except Exception:
        return
