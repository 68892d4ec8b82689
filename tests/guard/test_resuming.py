"""`resume`: the next call goes on where an earlier one stopped, and is let through by that approval alone."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

import toolgate
from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    _default,
)

HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "used up", "approval_id": None}


def approval(status: str, **members: Any) -> dict[str, Any]:
    return {"id": "appr-9", "status": status, "note": None, **members}


@pytest.fixture(params=["sync", "async", "block", "async-block"])
def call(request: pytest.FixtureRequest, guard: Guard) -> Callable[..., Any]:
    """Call a tool, or enter a block, that notes with what it ran."""
    kind: str = request.param
    ran: list[int] = []

    async def run(n: int = 1, *, of: Guard = guard, **options: Any) -> None:
        async def aset(n: int) -> None:
            ran.append(n)

        if kind == "sync":
            of.guarded("a.b", **options)(lambda n: ran.append(n))(n)  # noqa: PLW0108 - a signature to bind to
        elif kind == "async":
            await of.guarded("a.b", **options)(aset)(n)
        elif kind == "block":
            with of.action("a.b", {"n": n}, edits=True, **options) as act:
                ran.append(act.context["n"])
        else:
            async with of.action("a.b", {"n": n}, edits=True, **options) as act:
                ran.append(act.context["n"])

    run.ran = ran  # type: ignore[attr-defined]  # looked at after an exception
    return run


async def test_approved(call: Any, guard: Guard, gateway: Any) -> None:
    """An approved request is looked up, and the call checked with it alone."""
    gateway.approval = [approval("approved", context={"n": 1}, action="a.b", agent_id="agent-1")]
    with guard.resume("appr-9"):
        await call()
    assert call.ran == [1]
    assert [each.url.path for each in gateway.requests][:2] == ["/sdk/approvals/appr-9", "/sdk/check"]
    assert [each["approval_id"] for each in gateway.checks] == ["appr-9"]
    assert len(gateway.logs) == 1
    assert (gateway.logs[0]["status"], gateway.logs[0]["approval_id"]) == ("success", "appr-9")


async def test_used_by_one_call(call: Any, guard: Guard, gateway: Any) -> None:
    """The first call inside uses it; the second, and one after the block, ask as they always do."""
    async with guard.resume("appr-9"):
        await call(1)
        await call(2)
    await call(3)
    assert call.ran == [1, 2, 3]
    assert [each.get("approval_id") for each in gateway.checks] == ["appr-9", None, None]


async def test_used_by_no_call(call: Any, guard: Guard, gateway: Any) -> None:
    """A block in which nothing is called is no error, and nothing of it stays."""
    with guard.resume("appr-9"):
        pass
    await call()
    assert [each.get("approval_id") for each in gateway.checks] == [None]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("denied", ApprovalDenied),
        ("expired", ApprovalExpired),
        ("cancelled", ActionDenied),
        ("consumed", ActionDenied),
    ],
)
@pytest.mark.parametrize("on_hold", ["raise", "wait"])
async def test_over(
    call: Any, guard: Guard, gateway: Any, status: str, kind: type[Exception], on_hold: str
) -> None:
    """A request that came to nothing is the error it always is; nothing is asked or run."""
    gateway.approval = [approval(status, note="because")]
    with pytest.raises(kind) as raised, guard.resume("appr-9"):
        await call(on_hold=on_hold)
    assert type(raised.value) is kind
    assert (call.ran, gateway.checks) == ([], [])
    assert [each["status"] for each in gateway.logs] == ["denied"]


async def test_pending(call: Any, guard: Guard, gateway: Any) -> None:
    """A request nobody decided is still pending: raised with its id, and nothing is asked anew."""
    gateway.approval = [approval("pending")]
    with pytest.raises(ApprovalPending) as raised, guard.resume("appr-9"):
        await call()
    assert raised.value.approval_id == "appr-9"
    assert (call.ran, gateway.checks) == ([], [])


async def test_pending_and_waiting(call: Any, guard: Guard, gateway: Any) -> None:
    """With on_hold="wait" the call goes on waiting where the other stopped, also past a gateway that is away."""
    gateway.approval = [
        httpx.Response(503),
        httpx.ConnectError("refused"),
        approval("pending"),
        approval("pending"),
        approval("approved"),
    ]
    with guard.resume("appr-9"):
        await call(on_hold="wait", hold_timeout=30)
    assert call.ran == [1]
    assert [each["approval_id"] for each in gateway.checks] == ["appr-9"]


async def test_pending_and_asked(call: Any, guard: Guard, gateway: Any) -> None:
    """A function as on_hold is asked about the request that is resumed."""
    gateway.approval = [approval("pending"), approval("pending")]
    seen: list[str] = []

    def holder(pending: ApprovalPending) -> Any:
        seen.append(pending.approval_id)
        return "check"

    with guard.resume("appr-9"):
        await call(on_hold=holder)
    assert (seen, call.ran) == (["appr-9", "appr-9"], [1])


async def test_replaced(call: Any, guard: Guard, gateway: Any) -> None:
    """A request that was edited brings the edit into the call."""
    gateway.approval = [
        approval("replaced", replaced_by="appr-10", context={"n": 1}),
        {"id": "appr-10", "status": "approved", "approved_context": {"n": 7}},
    ]
    with guard.resume("appr-9"):
        await call()
    assert call.ran == [7]
    assert [(each["approval_id"], each["context"]) for each in gateway.checks] == [("appr-10", {"n": 7})]


@pytest.mark.parametrize("status", ["approved", "pending", "replaced"])
async def test_another_calls_request(call: Any, guard: Guard, gateway: Any, status: str) -> None:
    """A call with other arguments than the request was made with is refused before anything is asked."""
    gateway.approval = [approval(status, context={"n": 2}, replaced_by="appr-10")]
    with pytest.raises(ActionDenied, match="'n'"), guard.resume("appr-9"):
        await call(on_hold="wait")
    assert (call.ran, gateway.checks) == ([], [])


async def test_blocked(call: Any, guard: Guard, gateway: Any) -> None:
    """What the deciding check refuses is refused: a resumed call never asks for itself."""
    gateway.check = [BLOCKED]
    with pytest.raises(ActionDenied, match="used up"), guard.resume("appr-9"):
        await call(on_hold="wait")
    assert (call.ran, len(gateway.checks)) == ([], 1)


async def test_unknown(call: Any, guard: Guard, gateway: Any) -> None:
    """An id the gateway does not know is the caller's mistake; no gateway at all is not."""
    gateway.approval = [httpx.Response(404, json={"detail": "Approval not found"})]
    with pytest.raises(ConfigurationError, match="'appr-9'"), guard.resume("appr-9"):
        await call(on_hold="wait")
    gateway.approval = [httpx.Response(403, json={"detail": "no"})]
    with pytest.raises(GatewayProtocolError), guard.resume("appr-9"):
        await call()
    gateway.approval = [httpx.ConnectError("refused")] * 99
    with pytest.raises(GatewayUnavailable), guard.resume("appr-9"):
        await call()
    assert (call.ran, gateway.checks) == ([], [])


@pytest.mark.parametrize("wrong", ["", " ", "x" * 256, "a\nb", None, 5, ".", ".."])
def test_bad_ids(guard: Guard, wrong: Any) -> None:
    """What can be no id is refused where it is written."""
    with pytest.raises(ConfigurationError, match="approval_id"):
        guard.resume(wrong)
    with pytest.raises(ConfigurationError, match="approval_id"):
        toolgate.resume(wrong)


def test_entered_once(guard: Guard) -> None:
    """A resume object is entered once."""
    resume = guard.resume("appr-9")
    with resume:
        pass
    with pytest.raises(ConfigurationError, match="already entered"), resume:
        pytest.fail("it was entered again")


async def test_of_one_guard(call: Any, guard: Guard, make_guard: Any, gateway: Any) -> None:
    """Another guard's calls are none of it: they may talk to another gateway."""
    other = make_guard(agent_id="agent-2")
    with other.resume("appr-8"), guard.resume("appr-9"):
        await call()
        await call(of=other)
    assert [(each["agent_id"], each["approval_id"]) for each in gateway.checks] == [
        ("agent-1", "appr-9"),
        ("agent-2", "appr-8"),
    ]


async def test_nested(call: Any, guard: Guard, gateway: Any) -> None:
    """The innermost is used first."""
    with guard.resume("appr-8"):
        with guard.resume("appr-9"):
            await call()
        await call()
    assert [each["approval_id"] for each in gateway.checks] == ["appr-9", "appr-8"]


def test_a_tool_within_a_tool(guard: Guard, gateway: Any) -> None:
    """The call that begins first uses it, and not a tool it calls."""
    inner = guard.guarded("inner")(lambda: None)
    outer = guard.guarded("outer")(lambda: inner())  # noqa: PLW0108 - its class is what is guarded
    with guard.resume("appr-9"):
        outer()
    assert [(each["action"], each.get("approval_id")) for each in gateway.checks] == [
        ("outer", "appr-9"),
        ("inner", None),
    ]


async def test_among_tasks(guard: Guard, gateway: Any) -> None:
    """Of tasks begun inside, exactly one uses it; one that begins its call after the block does not."""

    @guard.guarded("a.b")
    async def tool(n: int) -> None: ...

    left = asyncio.Event()

    async def later() -> None:
        await left.wait()
        await tool(3)

    async with guard.resume("appr-9"):
        await asyncio.gather(tool(1), tool(2))
    with guard.resume("appr-8"):
        task = asyncio.create_task(later())
    left.set()
    await task
    used = {each["context"]["n"]: each.get("approval_id") for each in gateway.checks}
    assert used == {1: "appr-9", 2: None, 3: None}


async def test_called_inside_and_awaited_outside(guard: Guard, gateway: Any) -> None:
    """The caller resumes, as the caller acts: not whoever awaits."""

    @guard.guarded("a.b")
    async def tool() -> None: ...

    with guard.resume("appr-9"):
        coroutine = tool()
    assert inspect.iscoroutine(coroutine)
    await coroutine
    assert [each.get("approval_id") for each in gateway.checks] == ["appr-9"]


def test_another_thread(guard: Guard, gateway: Any) -> None:
    """It holds in this thread only."""
    tool = guard.guarded("a.b")(lambda: None)
    with guard.resume("appr-9"):
        thread = threading.Thread(target=tool)
        thread.start()
        thread.join()
    assert [each.get("approval_id") for each in gateway.checks] == [None]


@pytest.fixture
def of_the_module(gateway: Any, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_default, "_default", None)
    toolgate.configure(
        "http://127.0.0.1:9", "ak_" + "z" * 37, "agent-1", transport=httpx.MockTransport(gateway)
    )
    yield
    assert _default._default is not None
    _default._default.close()


@pytest.mark.usefixtures("of_the_module")
def test_the_modules_own(guard: Guard, gateway: Any) -> None:
    """`toolgate.resume` is for the calls of the module's own guard."""
    tool = toolgate.guarded("a.b")(lambda: None)
    other = guard.guarded("a.c")(lambda: None)
    with toolgate.resume("appr-9"):
        other()
        tool()
    assert [(each["action"], each.get("approval_id")) for each in gateway.checks] == [
        ("a.c", None),
        ("a.b", "appr-9"),
    ]


def test_no_guard_is_made(gateway: Any, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of the module's own `resume` does not need settings that nothing inside needs."""
    monkeypatch.setattr(_default, "_default", None)
    with toolgate.resume("appr-9"):
        guard.guarded("a.b")(lambda: None)()
    assert _default._default is None
    assert [each.get("approval_id") for each in gateway.checks] == [None]


async def test_left_in_another_context(guard: Guard) -> None:
    """A generator closed by another task than began it is left with its own exception, and resumes nothing more."""

    async def steps() -> AsyncIterator[None]:
        with guard.resume("appr-9"):
            yield

    begun = steps()
    await asyncio.create_task(anext(begun))  # type: ignore[arg-type]  # an async generator's is a coroutine
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        await begun.athrow(mine)  # type: ignore[attr-defined]  # it is a generator
    assert caught.value is mine
