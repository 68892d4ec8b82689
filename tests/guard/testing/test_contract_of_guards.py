"""A guard behaves alike at the fake gateway and at the real one in its process: one list of cases, put to both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.waiting import until

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalPending,
    ConfigurationError,
    Guard,
    GuardError,
    acting_as,
)
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway

pytestmark = pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")

ALLOW = {"math.add": None, "pay": {"max_amount": 100}}
HOLD = ["mail.send", "file.delete"]


@dataclass(frozen=True)
class Scene:
    """A guard, and whoever decides."""

    guard: Guard
    gateway: FakeGateway | EmbeddedGateway


@pytest.fixture(scope="module")
def embedded() -> Iterator[Scene]:
    with Guard.embedded(":memory:", agent="bot", allow=ALLOW, require_approval=HOLD) as guard:
        yield Scene(guard, guard.gateway)


@pytest.fixture(params=["fake", "embedded"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """One after the other; of the embedded one all tests share the file, and use contexts of their own."""
    if request.param == "embedded":
        found: Scene = request.getfixturevalue("embedded")
        return found
    gateway = FakeGateway(ALLOW, HOLD)
    return Scene(gateway.guard(), gateway)


def test_allowed_and_blocked(scene: Scene) -> None:
    """What is named runs; what is above its maximum, lacks its amount or is not named does not, with the same reasons."""
    ran: list[object] = []

    @scene.guard.guarded("math.add")
    def add(a: int, b: int) -> int:
        ran.append((a, b))
        return a + b

    @scene.guard.guarded("pay", amount="cents")
    def pay(cents: object) -> None:
        ran.append(cents)

    @scene.guard.guarded("rm")
    def remove() -> None:
        ran.append("rm")

    assert add(1, 2) == 3
    pay(100)
    reasons = []
    for call in (lambda: pay(101), lambda: pay("9"), remove):
        with pytest.raises(ActionDenied) as denied:
            call()
        reasons.append(denied.value.reason)
    assert ran == [(1, 2), 100]
    assert reasons == [
        "Amount 101 is above the maximum of 100 for action 'pay'",
        "context.amount must be a non-negative number, not '9', because of the maximum of 100 for action 'pay'",
        "Agent has no permission for action 'rm'",
    ]
    assert scene.guard.check("pay").reason == (
        "context.amount is required because of the maximum of 100 for action 'pay'"
    )


async def test_held_then_approved_once(scene: Scene) -> None:
    """The same call passes once after the person said yes, and is a new request after that."""

    @scene.guard.guarded("mail.send")
    async def send(to: str) -> str:
        return f"sent to {to}"

    with pytest.raises(ApprovalPending) as pending:
        await send("once")
    asked = [one for one in scene.gateway.pending() if one.approval_id == pending.value.approval_id]
    assert [(one.action, one.context) for one in asked] == [("mail.send", {"to": "once"})]
    scene.gateway.approve(pending.value.approval_id, note="fine")
    assert await send("once") == "sent to once"
    with pytest.raises(ApprovalPending) as again:
        await send("once")
    assert again.value.approval_id != pending.value.approval_id


def test_denied_in_words(scene: Scene) -> None:
    """The person's note is the reason, now and for a while."""

    @scene.guard.guarded("mail.send")
    def send(to: str) -> None: ...

    with pytest.raises(ApprovalPending) as pending:
        send("no")
    scene.gateway.deny(pending.value.approval_id, note="not today")
    with pytest.raises(ActionDenied, match="Denied by a person: not today"):
        send("no")


def test_a_thread_waits_for_the_decision(scene: Scene) -> None:
    """A waiting call goes on when somebody decides in another thread, either way."""

    @scene.guard.guarded("mail.send", on_hold="wait", hold_timeout=600)
    def send(to: str) -> str:
        return f"sent to {to}"

    for to, decide in (("yes", scene.gateway.approve), ("no", scene.gateway.deny)):
        ended: list[object] = []

        def call(to: str = f"thread-{to}", ended: list[object] = ended) -> None:
            try:
                ended.append(send(to))
            except GuardError as error:
                ended.append(type(error))

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda to=to: _asked(scene, f"thread-{to}"))
        decide(_asked(scene, f"thread-{to}")[0])
        thread.join(60)
        assert ended == ["sent to thread-yes" if to == "yes" else ApprovalDenied]


async def test_tasks_wait_for_the_decision(scene: Scene) -> None:
    """A waiting task leaves the loop free, follows an edit, and withdraws its request when it is cancelled."""

    @scene.guard.guarded("mail.send", on_hold="wait")
    async def send(to: str, text: str) -> str:
        return f"{text} to {to}"

    edited, dropped = (asyncio.create_task(send(to, "hello")) for to in ("edited", "dropped"))
    await asyncio.to_thread(until, lambda: _asked(scene, "edited") and _asked(scene, "dropped"))
    [approval_id] = _asked(scene, "edited")
    await asyncio.to_thread(
        lambda: scene.gateway.approve(approval_id, context={"to": "edited", "text": "good day"})
    )
    assert await edited == "good day to edited"
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    assert _asked(scene, "dropped") == []


def test_resuming(scene: Scene) -> None:
    """A call goes on where an earlier one stopped; an approval nobody knows is the caller's mistake."""

    @scene.guard.guarded("file.delete")
    def delete(path: str) -> str:
        return path

    with pytest.raises(ApprovalPending) as pending:
        delete("a.txt")
    scene.gateway.approve(pending.value.approval_id)
    with scene.guard.resume(pending.value.approval_id):
        assert delete("a.txt") == "a.txt"
    with pytest.raises(ConfigurationError, match="not known"), scene.guard.resume("nobodys"):
        delete("a.txt")


async def test_logging(scene: Scene) -> None:
    """An entry is told as it was sent, once per key, from threads and tasks."""
    first = scene.guard.log("any.thing", "failed", {"n": 1}, idempotency_key="k")
    again = await scene.guard.alog("any.thing", "failed", {"n": 1}, idempotency_key="k")
    assert first == again
    assert (first["action"], first["status"], first["context"]) == ("any.thing", "failed", {"n": 1})
    assert scene.guard.flush() is await scene.guard.aflush() is True


def test_a_decision_that_cannot_be_taken(scene: Scene) -> None:
    """An unknown request, one that is decided, and an edit that may not happen are refused in words."""
    unknown = "0199a3f2-ffff-7000-8000-00000000000a"
    with pytest.raises(ConfigurationError, match="Approval not found"):
        scene.gateway.approve(unknown)
    with pytest.raises(ApprovalPending) as pending:
        scene.guard.guarded("file.delete")(lambda path: path)("b.txt")
    approval_id = pending.value.approval_id
    with pytest.raises(ConfigurationError, match="deeper than 32 levels"):
        scene.gateway.approve(approval_id, context={"path": _nested(40)})
    scene.gateway.deny(approval_id)
    with pytest.raises(ConfigurationError, match="no longer pending: it is denied"):
        scene.gateway.approve(approval_id)


async def test_blocks(scene: Scene) -> None:
    """Blocks are guarded as functions are, with `with` and with `async with`."""
    with scene.guard.action("math.add", {"a": 1}) as act:
        act.context["sum"] = 2
    async with scene.guard.action("math.add", {"a": 2}):
        pass
    with pytest.raises(ActionDenied), scene.guard.action("rm"):
        raise AssertionError("ran")


def _asked(scene: Scene, to: str) -> list[str]:
    return [one.approval_id for one in scene.gateway.pending() if one.context.get("to") == to]


def _nested(levels: int) -> Any:
    return [_nested(levels - 1)] if levels else 1


def test_another_agent_is_refused_where_only_some_are_known(scene: Scene) -> None:
    """A key of one agent acts as no other; the fake says so where its agents are named."""
    guard = scene.guard
    if isinstance(scene.gateway, FakeGateway):
        guard = FakeGateway(ALLOW, agents=["bot"]).guard()
    with acting_as("somebody-else"):
        decision = guard.check("math.add")
    assert decision.blocked
    assert "agent" in str(decision.reason).lower()
