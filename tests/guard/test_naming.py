"""`calling`: a call that is carried out again asks about the same call, and is recorded once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from toolgate import (
    ActionDenied,
    ApprovalPending,
    ConfigurationError,
    Guard,
    acting_as,
    bind_context,
    default_guard,
    guarded_action,
    is_guarded,
    tool_call,
)
from toolgate._default import replace_default
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway


class Pause(BaseException):
    """A framework's way to leave a tool."""


@pytest.fixture(params=["fake", "embedded"])
def held(request: pytest.FixtureRequest) -> Iterator[tuple[Guard, FakeGateway | EmbeddedGateway]]:
    """A guard that must ask a person about mails, with whoever decides: the fake, and the real one in this process."""
    if request.param == "fake":
        fake = FakeGateway({"math.add": None}, ["mail.send"])
        yield fake.guard(), fake
        return
    with Guard.embedded(":memory:", agent="bot", allow=["math.add"], require_approval=["mail.send"]) as guard:
        yield guard, guard.gateway


def test_one_request_and_one_entry(held: tuple[Guard, Any]) -> None:
    """Asked for three times the call is one request; approved it passes once, and never again."""
    guard, gateway = held
    ran: list[str] = []

    @guard.guarded("mail.send")
    def send(to: str) -> None:
        ran.append(to)

    asked = set()
    for _ in range(3):
        with pytest.raises(ApprovalPending) as pending, tool_call("call-1", run_id="thread-1"):
            send("once")
        asked.add(pending.value.approval_id)
    assert len(asked) == 1
    gateway.approve(asked.pop())
    with pytest.raises(ApprovalPending), tool_call("call-2", run_id="thread-1"):
        send("once")
    with tool_call("call-1", run_id="thread-1"):
        send("once")
    with (
        pytest.raises(ActionDenied, match="has already been allowed once"),
        tool_call("call-1", run_id="thread-1"),
    ):
        send("once")
    assert ran == ["once"]


async def test_one_request_and_one_entry_async(held: tuple[Guard, Any]) -> None:
    """As the synchronous test."""
    guard, gateway = held
    ran: list[str] = []

    @guard.guarded("mail.send")
    async def send(to: str) -> None:
        ran.append(to)

    asked = set()
    for _ in range(3):
        with pytest.raises(ApprovalPending) as pending, tool_call("call-1", run_id="thread-1"):
            await send("once")
        asked.add(pending.value.approval_id)
    assert len(asked) == 1
    gateway.approve(asked.pop())
    with tool_call("call-1", run_id="thread-1"):
        await send("once")
    assert ran == ["once"]


def test_a_hold_is_recorded_once(guard: Guard, gateway: Any) -> None:
    """What is asked again says the same under the same key: of a hold, and of a refusal; another call's differs."""
    held = {"allowed": False, "requires_approval": True, "reason": "a person", "approval_id": "appr-1"}
    blocked = {"allowed": False, "requires_approval": False, "reason": "no", "approval_id": None}
    gateway.check = [held, held, held, blocked, blocked]
    gateway.approval = [{"id": "appr-1", "status": "pending", "note": None}] * 3
    for call_id in ("c1", "c1", "c2"):
        with pytest.raises(ApprovalPending), tool_call(call_id, run_id="r"), guard.action("a.b", {"n": 1}):
            pytest.fail("it is held")
    for _ in range(2):
        with pytest.raises(ActionDenied), tool_call("c3", run_id="r"), guard.action("a.b", {"n": 1}):
            pytest.fail("it is blocked")
    assert guard.flush()
    entries = gateway.taken
    assert [each["status"] for each in entries] == ["pending"] * 3 + ["denied"] * 2
    assert entries[0] == entries[1]
    assert entries[3] == entries[4]
    assert len({each["idempotency_key"] for each in entries}) == 3
    assert {len(each["idempotency_key"]) for each in entries} == {32}
    assert [each["call_id"] for each in entries] == ["c1", "c1", "c2", "c3", "c3"]
    assert [each["call_id"] for each in gateway.checks] == ["c1", "c1", "c2", "c3", "c3"]


def test_what_ran_is_recorded_each_time(guard: Guard, gateway: Any) -> None:
    """A call that really runs twice is two entries: nothing that happened is hidden behind its name."""
    for _ in range(2):
        with tool_call("c1", run_id="r"), guard.action("a.b"):
            pass
    assert [each["status"] for each in gateway.logs] == ["success", "success"]
    assert len({each["idempotency_key"] for each in gateway.taken}) == 2


def test_the_first_call_bears_the_name(guard: Guard, gateway: Any) -> None:
    """What is guarded inside the tool, or comes after it, is other calls of the same run."""

    @guard.guarded("inner.tool")
    def inner() -> None: ...

    @guard.guarded("outer.tool")
    def outer() -> None:
        inner()

    with tool_call("c1", run_id="r"):
        outer()
        inner()
    inner()
    assert [(each["action"], each.get("call_id"), each.get("run_id")) for each in gateway.checks] == [
        ("outer.tool", "c1", "r"),
        ("inner.tool", None, "r"),
        ("inner.tool", None, "r"),
        ("inner.tool", None, None),
    ]


def test_the_run_of_acting_as_goes_first(guard: Guard, gateway: Any) -> None:
    """Whoever acts in a run of their own stays in it; `calling` fills in what nobody named."""
    with tool_call("c1", run_id="theirs"), acting_as("bot", run_id="ours"), guard.action("a.b"):
        pass
    with acting_as("bot"), tool_call("c2", run_id="theirs"), guard.action("a.b"):
        pass
    assert [(each["agent_id"], each["run_id"], each["call_id"]) for each in gateway.checks] == [
        ("bot", "ours", "c1"),
        ("bot", "theirs", "c2"),
    ]


@pytest.mark.parametrize("kind", ["sync", "async", "block", "async-block"])
async def test_a_pause_is_no_failure(kind: str, guard: Guard, gateway: Any) -> None:
    """A tool that stops to be called again is logged pending, and what it raised goes through untouched."""
    pause = Pause()

    def tool() -> None:
        raise pause

    async def atool() -> None:
        raise pause

    async def run() -> None:
        if kind == "sync":
            guard.guarded("a.b")(tool)()
        elif kind == "async":
            await guard.guarded("a.b")(atool)()
        elif kind == "block":
            with guard.action("a.b"):
                tool()
        else:
            async with guard.action("a.b"):
                await atool()

    with pytest.raises(Pause) as raised, tool_call("c1", pauses=[Pause]):
        await run()
    assert raised.value is pause
    (entry,) = gateway.logs
    assert (entry["status"], entry["context"]["reason"]) == (
        "pending",
        "the tool paused and will be called again",
    )
    assert "error" not in entry["context"]


def test_another_error_is_a_failure(guard: Guard, gateway: Any) -> None:
    """Only what was named is a pause."""
    with pytest.raises(ValueError, match="no"), tool_call("c1", pauses=[Pause]), guard.action("a.b"):
        raise ValueError("no")
    assert [each["status"] for each in gateway.logs] == ["failed"]


async def test_names_stay_in_their_task(guard: Guard, gateway: Any) -> None:
    """Tasks that name their calls do not name each other's; a carried function takes the name along."""

    async def named(number: int) -> None:
        with tool_call(f"c{number}", run_id=f"r{number}"):
            await asyncio.sleep(0)
            async with guard.action("a.b", {"n": number}):
                pass

    await asyncio.gather(*(named(number) for number in range(5)))
    told = {each["context"]["n"]: (each["call_id"], each["run_id"]) for each in gateway.checks}
    assert told == {number: (f"c{number}", f"r{number}") for number in range(5)}
    gateway.forget()

    def block() -> None:
        with guard.action("a.b"):
            pass

    with tool_call("carried"):
        work = bind_context(block)
        await asyncio.to_thread(work)
    assert [each["call_id"] for each in gateway.checks] == ["carried"]


def test_a_call_after_the_block_is_unnamed(guard: Guard, gateway: Any) -> None:
    """Whoever was started inside and acts later does not bear a name that has ended."""
    with tool_call("c1"):
        late = bind_context(lambda: guard.action("a.b").__enter__())
    late()
    assert "call_id" not in gateway.checks[0]


@pytest.mark.parametrize(
    ("call_id", "run_id"), [("", None), (" ", None), (7, None), ("c" * 256, None), ("c", ""), ("c\n", None)]
)
def test_names_that_cannot_be(call_id: Any, run_id: Any) -> None:
    """A name that the gateway would refuse is refused where it is given."""
    with pytest.raises(ConfigurationError, match=r"call_id|run_id"):
        tool_call(call_id, run_id=run_id)


def test_a_run_without_a_call(guard: Guard, gateway: Any) -> None:
    """A run can be named alone: its calls bear no name of their own."""
    with tool_call(None, run_id="r"), guard.action("a.b"):
        pass
    assert [(each["run_id"], "call_id" in each) for each in gateway.checks] == [("r", False)]


def test_entered_once() -> None:
    """One object names one call."""
    name = tool_call("c1")
    with name, pytest.raises(ConfigurationError, match="already entered"), name:
        pytest.fail("it was entered")


def test_guarded_action(guard: Guard) -> None:
    """A guarded function says which action it is, also from inside a partial or a method; others say none."""

    class Bank:
        @guard.guarded("bank.pay")
        def pay(self, amount: int) -> None: ...

    @guard.guarded("a.b")
    async def tool(n: int) -> None: ...

    assert guarded_action(tool) == "a.b"
    assert guarded_action(functools.partial(tool, 1)) == "a.b"
    assert guarded_action(Bank().pay) == "bank.pay"
    assert guarded_action(Bank.pay) == "bank.pay"
    assert guarded_action(print) is None
    assert guarded_action(object()) is None


def test_only_the_guarded_function_itself_is_guarded(guard: Guard) -> None:
    @guard.guarded("a.b")
    def tool(n: int) -> int:
        return n

    class Bank:
        @guard.guarded("bank.pay")
        def pay(self) -> None: ...

        @guard.guarded("bank.find")
        @classmethod
        def find(cls) -> None: ...

        @guard.guarded("bank.call")
        def __call__(self) -> None: ...

    for guarded in (tool, Bank().pay, Bank.pay, Bank.find, Bank().find, Bank()):
        assert is_guarded(guarded)

    @functools.wraps(tool)
    def retried(n: int) -> int:
        return tool(n)

    for wrapper in (
        functools.cache(tool),
        functools.partial(tool, 1),
        retried,
        Bank().pay.__wrapped__,
        Bank,
        print,
    ):
        assert not is_guarded(wrapper)


def test_default_guard(guard: Guard) -> None:
    """The guard behind the module's own `guarded` can be had."""
    with replace_default(guard):
        assert default_guard() is guard


async def test_an_edit_is_followed(held: tuple[Guard, Any]) -> None:
    """A named call that a person changed is asked again under its name, and runs as they changed it, once."""
    guard, gateway = held
    ran: list[str] = []

    @guard.guarded("mail.send")
    async def send(to: str) -> None:
        ran.append(to)

    with pytest.raises(ApprovalPending) as pending, tool_call("call-1"):
        await send("eve")
    gateway.approve(pending.value.approval_id, context={"to": "ann"})
    with tool_call("call-1"):
        await send("eve")
    assert ran == ["ann"]
    with pytest.raises(ActionDenied, match="has already been allowed once"), tool_call("call-1"):
        await send("eve")
    assert ran == ["ann"]


@pytest.mark.parametrize("answer", ["raise", lambda _: "raise"])
def test_a_gateway_that_leaves_after_the_hold(answer: Any, guard: Guard, gateway: Any) -> None:
    """A hold stays a hold where nobody answers any more what became of it, and the caller is asked once."""
    asked: list[object] = []

    def on_hold(pending: object) -> str:
        asked.append(pending)
        return "raise"

    gateway.check = [
        {"allowed": False, "requires_approval": True, "reason": "a person", "approval_id": "appr-1"}
    ]
    gateway.approval = [httpx.ConnectError("gone")] * 20
    with pytest.raises(ApprovalPending) as pending, tool_call("call-1"):
        guard.guarded("a.b", on_hold="raise" if answer == "raise" else on_hold)(lambda: None)()
    assert pending.value.approval_id == "appr-1"
    assert len(asked) == (answer != "raise")
