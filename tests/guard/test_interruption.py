"""A call that is given up while it asks or waits withdraws its request, and goes down as it would have without."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from toolgate import ApprovalPending, Guard
from toolgate._process_state import PendingApproval

HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


class Waiting:
    """A gateway that holds everything; what happens to a poll or cancellation is a test's to say."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.polled = asyncio.Event()
        self.poll: Callable[[], Any] = dict
        self.cancel: Callable[[], Any] = dict
        self.check: Callable[[], Any] = lambda: HELD
        self.polls = 0
        self.all_polled = asyncio.Event()
        self.stuck = 0
        self.keys: list[str] = []
        self.looks = 0
        self.on_poll: Callable[[], Any] = dict

    def answer(self, request: httpx.Request) -> Any:
        path = request.url.path
        self.paths.append(path)
        if path == "/sdk/check" and "dry_run" not in json.loads(request.content):
            self.keys.append(request.headers["Idempotency-Key"])
            return self.check()
        if path == "/sdk/check":
            self.looks += 1
            return self.check()
        if path == "/sdk/logs":
            return {"results": [{"status": 200} for _ in json.loads(request.content)["entries"]]}
        if path.endswith("/cancel"):
            self.cancel()
            return {"id": "appr-1", "status": "cancelled"}
        self.polls += 1
        return {"id": "appr-1", "status": "pending", **self.poll()}

    @property
    def cancelled(self) -> int:
        return self.paths.count("/sdk/approvals/appr-1/cancel")


class Transport(httpx.MockTransport):
    """A poll of an asynchronous client lasts until it is cancelled, and so do its first checks, if they are stuck."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(lambda request: httpx.Response(200, json=waiting.answer(request)))
        self._waiting = waiting

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        stuck = request.url.path == "/sdk/check" and self._waiting.stuck > len(self._waiting.keys)
        if request.method == "GET" or stuck:
            if stuck:
                self._waiting.keys.append(request.headers["Idempotency-Key"])
            self._waiting.paths.append(request.url.path)
            self._waiting.polls += 1
            self._waiting.polled.set()
            self._waiting.on_poll()
            if self._waiting.polls == 2:
                self._waiting.all_polled.set()
            await asyncio.Event().wait()
        return await super().handle_async_request(request)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def guard(make_guard: Callable[..., Guard], waiting: Waiting) -> Guard:
    return make_guard(transport=Transport(waiting))


@pytest.fixture(params=["decorator", "block"])
def tool(request: pytest.FixtureRequest, guard: Guard) -> Callable[[], Any]:
    @guard.guarded("a.b", on_hold="wait")
    async def decorated() -> None:
        pytest.fail("the tool ran")

    async def block() -> None:
        async with guard.action("a.b", on_hold="wait"):
            pytest.fail("the block ran")

    return decorated if request.param == "decorator" else block


@pytest.fixture(params=["decorator", "block"])
def sync_tool(request: pytest.FixtureRequest, guard: Guard) -> Callable[[], Any]:
    @guard.guarded("a.b", on_hold="wait")
    def decorated() -> None:
        pytest.fail("the tool ran")

    def block() -> None:
        with guard.action("a.b", on_hold="wait"):
            pytest.fail("the block ran")

    return decorated if request.param == "decorator" else block


async def test_cancelled_while_waiting(tool: Any, waiting: Waiting) -> None:
    """A cancelled task withdraws its request before the cancellation goes on."""
    task = asyncio.create_task(tool())
    await waiting.polled.wait()
    task.cancel("mine")
    with pytest.raises(asyncio.CancelledError, match="mine"):
        await task
    assert waiting.cancelled == 1
    assert task.cancelled()


async def test_withdrawal_survives_the_end_of_the_event_loop(tool: Any, waiting: Waiting) -> None:
    """An event loop that ends cancels every task once, also the one that withdraws the request."""
    task = asyncio.create_task(tool())
    await waiting.polled.wait()
    before = asyncio.all_tasks()
    task.cancel()
    await asyncio.sleep(0)
    # As asyncio.run does at its end, here before the withdrawal has begun.
    for each in {task, *(asyncio.all_tasks() - before)}:
        each.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.cancelled == 1


async def test_timeout_while_waiting(tool: Any, waiting: Waiting) -> None:
    """A time-out around the call stays a time-out, and withdraws the request."""

    async def within(limit: asyncio.Timeout) -> None:
        async with limit:
            waiting.on_poll = lambda: limit.reschedule(0)
            await tool()

    with pytest.raises(TimeoutError):
        await within(asyncio.timeout(None))
    assert waiting.cancelled == 1


async def test_cancelled_and_the_gateway_is_gone(
    tool: Any, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    """A withdrawal that fails is logged and changes nothing: the cancellation goes on."""

    def gone() -> Any:
        raise httpx.ConnectError("refused")

    waiting.cancel = gone
    task = asyncio.create_task(tool())
    await waiting.polled.wait()
    task.cancel()
    with caplog.at_level(logging.WARNING, logger="toolgate"), pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.cancelled >= 1
    assert [each.__dict__["toolgate_event"] for each in caplog.records] == ["cancel_failed"]


async def test_cancelled_twice(tool: Any, waiting: Waiting) -> None:
    """Cancelled again while it withdraws, a call ends at once; the withdrawal is sent nevertheless."""
    task = asyncio.create_task(tool())
    cancelled = asyncio.Event()
    waiting.cancel = cancelled.set
    await waiting.polled.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await cancelled.wait()
    assert waiting.cancelled == 1


async def test_closed_while_waiting(tool: Any, waiting: Waiting) -> None:
    """A coroutine closed while it waits ends in peace, and its withdrawal is sent by the loop."""
    cancelled = asyncio.Event()
    waiting.cancel = cancelled.set
    coroutine = tool()

    async def pump() -> None:
        coroutine.send(None)

    await pump()
    assert waiting.polls == 1
    coroutine.close()
    await cancelled.wait()
    assert waiting.cancelled == 1


async def test_equal_calls_share_a_request(tool: Any, waiting: Waiting) -> None:
    """Of two equal calls that wait, the first to be cancelled leaves the request to the other."""
    first, second = asyncio.create_task(tool()), asyncio.create_task(tool())
    await waiting.all_polled.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert waiting.cancelled == 0
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert waiting.cancelled == 1


async def test_interrupted_while_recording_async(
    waiting: Waiting, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request exists as soon as the call is held: interrupted while that is recorded, it is withdrawn too."""

    def interrupted(*_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("toolgate._outbox.recorder.Recorder.record", interrupted)
    with pytest.raises(asyncio.CancelledError):
        await tool()
    assert (waiting.polls, waiting.cancelled) == (0, 1)


async def cancelled_while_it_asks(tool: Any, waiting: Waiting) -> None:
    waiting.stuck = 1
    task = asyncio.create_task(tool())
    await waiting.polled.wait()
    task.cancel("mine")
    with pytest.raises(asyncio.CancelledError, match="mine"):
        await task


async def test_cancelled_while_asking(tool: Any, waiting: Waiting) -> None:
    """The gateway may have made a request of a check whose answer nobody heard: asked again, it is withdrawn."""
    await cancelled_while_it_asks(tool, waiting)
    assert (len(waiting.keys), waiting.looks) == (2, 1)
    assert waiting.keys[0] == waiting.keys[1]
    assert waiting.cancelled == 1


@pytest.mark.parametrize("answer", [ALLOWED, BLOCKED], ids=["allowed", "blocked"])
async def test_cancelled_before_it_was_held(tool: Any, waiting: Waiting, answer: Any) -> None:
    """A call that is not held has nothing to withdraw, and spends no approval: it is only looked at."""
    waiting.check = lambda: answer
    await cancelled_while_it_asks(tool, waiting)
    assert (len(waiting.keys), waiting.looks, waiting.cancelled) == (1, 1, 0)


async def test_cancelled_while_asking_and_the_gateway_is_gone(
    tool: Any, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    """That nobody knows what it left is logged and changes nothing: the cancellation goes on."""

    def gone() -> Any:
        raise httpx.UnsupportedProtocol("no such gateway")

    waiting.check = gone
    with caplog.at_level(logging.WARNING, logger="toolgate"):
        await cancelled_while_it_asks(tool, waiting)
    assert [each.__dict__["toolgate_event"] for each in caplog.records] == ["cancel_failed"]
    assert waiting.cancelled == 0


async def test_cancelled_while_asking_beside_an_equal_call(guard: Guard, tool: Any, waiting: Waiting) -> None:
    """Somebody else who waits for the same request keeps it."""
    other = PendingApproval(guard._guard_state.pending_approvals)
    other.begin("appr-1")
    await cancelled_while_it_asks(tool, waiting)
    assert (len(waiting.keys), waiting.cancelled) == (2, 0)
    assert other.end() is True


async def test_closed_while_asking(tool: Any, waiting: Waiting) -> None:
    """A coroutine closed while it asks ends in peace, and its withdrawal is sent by the loop."""
    cancelled = asyncio.Event()
    waiting.stuck, waiting.cancel = 1, cancelled.set
    coroutine = tool()

    async def pump() -> None:
        coroutine.send(None)

    await pump()
    assert len(waiting.keys) == 1
    coroutine.close()
    await cancelled.wait()
    assert waiting.cancelled == 1


async def test_who_does_not_wait_leaves_the_request(guard: Guard, waiting: Waiting) -> None:
    """The same call that comes again finds it: only who would have waited here takes it back."""

    @guard.guarded("a.b")
    async def tool() -> None:
        pytest.fail("the tool ran")

    await cancelled_while_it_asks(tool, waiting)
    assert waiting.paths == ["/sdk/check"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_interrupted_while_asking(sync_tool: Any, waiting: Waiting, error: BaseException) -> None:
    """As cancelled, and the same interruption goes on."""

    def interrupt() -> Any:
        waiting.check = lambda: HELD
        raise error

    waiting.check = interrupt
    with pytest.raises(type(error)) as raised:
        sync_tool()
    assert raised.value is error
    assert (len(waiting.keys), waiting.looks) == (2, 1)
    assert waiting.keys[0] == waiting.keys[1]
    assert waiting.cancelled == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_interrupted_in_a_poll(sync_tool: Any, waiting: Waiting, error: BaseException) -> None:
    """Interrupted in the middle of a poll the request is withdrawn, and the same interruption goes on."""

    def interrupt() -> Any:
        raise error

    waiting.poll = interrupt
    with pytest.raises(type(error)) as raised:
        sync_tool()
    assert raised.value is error
    assert waiting.cancelled == 1
    assert waiting.paths.count("/sdk/check") == 1


def test_interrupted_and_the_gateway_is_gone(
    sync_tool: Any, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    """A withdrawal that fails is logged and changes nothing: the interruption goes on."""

    def interrupt() -> Any:
        raise KeyboardInterrupt

    def gone() -> Any:
        raise httpx.ConnectError("refused")

    waiting.poll, waiting.cancel = interrupt, gone
    with caplog.at_level(logging.WARNING, logger="toolgate"), pytest.raises(KeyboardInterrupt):
        sync_tool()
    assert [each.__dict__["toolgate_event"] for each in caplog.records] == ["cancel_failed"]


def test_interrupted_while_recording(
    sync_tool: Any, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted while it records that it is held, a call withdraws its request too."""

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolgate._outbox.recorder.Recorder.record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sync_tool()
    assert (waiting.polls, waiting.cancelled) == (0, 1)


def test_an_error_is_no_interruption(sync_tool: Any, waiting: Waiting) -> None:
    """What is not the caller's giving up leaves the request where it is: it can be resumed."""

    def broken() -> Any:
        raise ZeroDivisionError

    waiting.poll = broken
    with pytest.raises(ZeroDivisionError):
        sync_tool()
    assert waiting.cancelled == 0


def test_time_is_up(guard: Guard, waiting: Waiting) -> None:
    """A wait that ends by itself leaves the request to be decided later."""

    @guard.guarded("a.b", on_hold="wait", hold_timeout=0.01)
    def tool() -> None:
        pytest.fail("the tool ran")

    with pytest.raises(ApprovalPending):
        tool()
    assert waiting.cancelled == 0


def test_interrupted_beside_an_equal_call(guard: Guard, waiting: Waiting, sync_tool: Any) -> None:
    """A thread that is interrupted leaves the request to another that waits for the same."""
    other = PendingApproval(guard._guard_state.pending_approvals)
    other.begin("appr-1")

    def interrupt() -> Any:
        raise KeyboardInterrupt

    waiting.poll = interrupt
    with pytest.raises(KeyboardInterrupt):
        sync_tool()
    assert waiting.cancelled == 0
    assert other.end() is True


def test_an_equal_call_of_another_guard(make_guard: Callable[..., Guard], waiting: Waiting) -> None:
    """Who waits through another guard of the same gateway keeps the request alive as well."""
    ours, theirs = (make_guard(transport=Transport(waiting)) for _ in range(2))
    other = PendingApproval(theirs._guard_state.pending_approvals)
    other.begin("appr-1")

    def interrupt() -> Any:
        raise KeyboardInterrupt

    waiting.poll = interrupt
    tool = ours.guarded("a.b", on_hold="wait")(lambda: pytest.fail("the tool ran"))
    with pytest.raises(KeyboardInterrupt):
        tool()
    assert waiting.cancelled == 0
    assert other.end() is True
