"""`on_hold` as a function: it may wait, raise or have the gateway asked, and never let a tool run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from toolgate import ApprovalDenied, ApprovalPending, ConfigurationError, Guard

HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


class Equal(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("not now")


def approval(status: str, **members: Any) -> dict[str, Any]:
    return {"id": "appr-1", "status": status, "note": None, **members}


@pytest.fixture(params=["sync", "async", "async-holder", "block", "async-block"])
def call(request: pytest.FixtureRequest, guard: Guard) -> Callable[..., Any]:
    """Call a tool, or enter a block, with what `on_hold` answers; returns how often the body ran."""
    kind: str = request.param
    ran: list[int] = []

    def holder(answers: Callable[[ApprovalPending], Any]) -> Any:
        async def asked(pending: ApprovalPending) -> Any:
            return answers(pending)

        return asked if kind.startswith("async-") else answers

    async def run(answers: Callable[[ApprovalPending], Any], **options: Any) -> int:
        if kind == "sync":
            guard.guarded("a.b", on_hold=holder(answers), **options)(lambda: ran.append(1))()
        elif kind == "block":
            with guard.action("a.b", on_hold=holder(answers), **options):
                ran.append(1)
        elif kind == "async-block":
            async with guard.action("a.b", on_hold=holder(answers), **options):
                ran.append(1)
        else:

            async def tool() -> None:
                ran.append(1)

            await guard.guarded("a.b", on_hold=holder(answers), **options)(tool)()
        return len(ran)

    run.ran = ran  # type: ignore[attr-defined]  # looked at after an exception
    return run


@pytest.mark.parametrize(
    "answer",
    [
        True,
        1,
        "approve",
        "approved",
        "allow",
        "CHECK",
        "",
        ["wait"],
        object(),
        EqualToAll(),
        Equal("yes"),
        Unreadable(),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_an_answer_that_means_nothing(call: Any, gateway: Any, answer: Any) -> None:
    """Whatever a framework takes for a yes does not let the tool run: it is a mistake, and named."""
    gateway.check = [HELD]
    with pytest.raises(ConfigurationError, match="on_hold"):
        await call(lambda pending: answer)
    assert call.ran == []
    assert len(gateway.checks) == 1
    assert [each["status"] for each in gateway.logs] == ["pending"]


@pytest.mark.parametrize("answer", ["raise", None])
async def test_raise(call: Any, gateway: Any, answer: Any) -> None:
    """`raise`, and no answer at all, raise what the function was given."""
    gateway.check = [HELD]
    seen: list[ApprovalPending] = []

    def answers(pending: ApprovalPending) -> Any:
        seen.append(pending)
        return answer

    with pytest.raises(ApprovalPending) as raised:
        await call(answers)
    assert call.ran == []
    assert (seen[0].approval_id, seen[0].action, seen[0].agent_id, seen[0].reason) == (
        "appr-1",
        "a.b",
        "agent-1",
        "needs a person",
    )
    assert str(raised.value) == str(seen[0])


async def test_wait(call: Any, gateway: Any) -> None:
    """`wait` waits as on_hold="wait" does, within hold_timeout."""
    gateway.check = [HELD]
    assert await call(lambda pending: "wait", hold_timeout=30) == 1
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-1"]


async def test_check(call: Any, gateway: Any) -> None:
    """`check` has the gateway asked at once; only its own yes lets the tool run."""
    gateway.check = [HELD]
    assert await call(lambda pending: "check") == 1
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-1"]
    looked = [each.url.query for each in gateway.requests if "approvals" in each.url.path]
    assert looked == [b"wait=0"]


async def test_check_and_still_held(call: Any, gateway: Any) -> None:
    """While the gateway says held the function is asked again, and decides each time."""
    gateway.check = [HELD]
    gateway.approval = [approval("pending"), approval("pending")]
    answers = ["check", "check", "raise"]
    with pytest.raises(ApprovalPending):
        await call(lambda pending: answers.pop(0))
    assert (call.ran, answers) == ([], [])
    assert len(gateway.checks) == 1


async def test_check_and_declined(call: Any, gateway: Any) -> None:
    """A person's no is one, however the function wakes."""
    gateway.check = [HELD]
    gateway.approval = [approval("denied", note="too much")]
    with pytest.raises(ApprovalDenied, match="too much"):
        await call(lambda pending: "check")
    assert call.ran == []


async def test_check_and_blocked(call: Any, gateway: Any) -> None:
    """An approval that the deciding check does not accept lets nothing run."""
    gateway.check = [HELD, BLOCKED, HELD]
    answers = ["check", "raise"]
    with pytest.raises(ApprovalPending):
        await call(lambda pending: answers.pop(0))
    assert call.ran == []
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-1", None]


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("mine"), Interrupt("mine"), KeyboardInterrupt()], ids=repr)
async def test_what_the_function_raises(call: Any, gateway: Any, error: BaseException) -> None:
    """What the function raises goes through as the very same object; the request stays, as a paused run wants it."""
    gateway.check = [HELD]

    def answers(pending: ApprovalPending) -> Any:
        raise error

    with pytest.raises(type(error)) as raised:
        await call(answers)
    assert raised.value is error
    assert call.ran == []
    assert not any(each.url.path.endswith("/cancel") for each in gateway.requests)


async def test_allowed_asks_nobody(call: Any, gateway: Any) -> None:
    """A call that is allowed never meets the function."""

    def answers(pending: ApprovalPending) -> Any:
        pytest.fail("nothing was held")

    assert await call(answers) == 1


async def _asked(pending: ApprovalPending) -> None: ...


class AsyncHolder:
    async def __call__(self, pending: ApprovalPending) -> None: ...


@pytest.mark.parametrize(
    "holder", [_asked, AsyncHolder(), functools.partial(_asked)], ids=lambda holder: type(holder).__name__
)
def test_an_asynchronous_function_for_a_synchronous_tool(guard: Guard, gateway: Any, holder: Any) -> None:
    """Nothing could await it: that is said at decoration, and for a block when it is entered."""
    assert inspect.iscoroutinefunction(holder) or isinstance(holder, AsyncHolder)
    with pytest.raises(ConfigurationError, match="synchronous"):
        guard.guarded("a.b", on_hold=holder)(lambda: None)
    block = guard.action("a.b", on_hold=holder)
    with pytest.raises(ConfigurationError, match="synchronous"), block:
        pytest.fail("the block ran")
    assert gateway.requests == []


def test_a_function_that_gives_a_coroutine_to_a_synchronous_tool(guard: Guard, gateway: Any) -> None:
    """What nobody can await is no answer, and is not left behind unawaited."""
    gateway.check = [HELD]

    @guard.guarded("a.b", on_hold=lambda pending: _asked(pending))  # noqa: PLW0108 - its class is what is tested
    def tool() -> None:
        pytest.fail("the tool ran")

    with pytest.raises(ConfigurationError, match="await"):
        tool()
