"""Failing open: only where nobody answers, and never in secret."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from toolgate import (
    ActionDenied,
    ApprovalPending,
    ConfigurationError,
    Decision,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    GuardError,
)
from toolgate._identity import Identity
from toolgate._models import Check
from toolgate._process_state import DeniedActions, denied_actions_at

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
DOWN = httpx.ConnectError("connection refused")
OURS = {"X-API-Version": "2026-11-20"}

Tool = Callable[..., Awaitable[str]]


@pytest.fixture
def guard(make_guard: Any) -> Guard:
    """A guard of an agent nobody knows yet, that soon gives up."""
    guard: Guard = make_guard(agent_id=str(uuid4()), timeout=0.1)
    return guard


@pytest.fixture(params=["function", "coroutine", "block", "async block"])
def tool(request: pytest.FixtureRequest, guard: Guard) -> Tool:
    """A guarded tool of any kind; options are the decoration's."""
    kind = request.param

    async def call(action: str = "a.b", **options: Any) -> str:
        options = {"fail_open": True, **options}
        if kind == "function":
            return guard.guarded(action, **options)(lambda: "ran")()
        if kind == "coroutine":

            @guard.guarded(action, **options)
            async def coroutine() -> str:
                return "ran"

            return await coroutine()
        if kind == "block":
            with guard.action(action, **options):
                return "ran"
        async with guard.action(action, **options):
            return "ran"

    return call


def down(gateway: Any, reply: Any = DOWN) -> None:
    gateway.check = [reply] * 50


@pytest.mark.parametrize(
    "reply",
    [
        DOWN,
        httpx.ConnectTimeout("timed out"),
        httpx.ProxyError("503 Service Unavailable"),
        httpx.Response(502),
        httpx.Response(503, html="<h1>down</h1>"),
    ],
    ids=repr,
)
async def test_nobody_answers(tool: Tool, gateway: Any, caplog: pytest.LogCaptureFixture, reply: Any) -> None:
    """The tool runs, a warning says so, and so does the log entry."""
    down(gateway, reply)
    with caplog.at_level(logging.WARNING, logger="toolgate"):
        assert await tool() == "ran"
    (entry,) = gateway.logs
    assert entry["status"] == "success"
    assert entry["context"]["fail_open"] is True
    assert "127.0.0.1:9" in entry["context"]["no_answer"]
    (told,) = [each for each in caplog.records if getattr(each, "toolgate_event", "") == "fail_open"]
    assert (told.levelno, told.name) == (logging.WARNING, "toolgate")
    assert "'a.b'" in told.getMessage()
    assert repr(entry["agent_id"]) in told.getMessage()


@pytest.mark.parametrize(
    "reply",
    [
        httpx.ReadTimeout("timed out"),
        httpx.ReadError("reset"),
        httpx.WriteTimeout("timed out"),
        httpx.WriteError("broken pipe"),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
    ],
    ids=repr,
)
async def test_request_that_may_have_arrived_does_not_fail_open(tool: Tool, gateway: Any, reply: Any) -> None:
    """A gateway that is overloaded accepts a check and does not answer in time: nothing runs, now or at the next call."""
    down(gateway, reply)
    for _ in range(3):
        with pytest.raises(GatewayUnavailable) as raised:
            await tool()
        assert (raised.value.answered, raised.value.reached) == (False, True)


async def test_open_breaker_fails_open_once_no_connection_is_established(tool: Tool, gateway: Any) -> None:
    """After time-outs calls are refused without being sent; a probe that cannot connect shows that it is an outage."""
    down(gateway, httpx.ReadTimeout("timed out"))
    with pytest.raises(GatewayUnavailable):
        await tool()
    down(gateway)
    assert await tool() == "ran"


async def test_a_tool_that_fails_unasked(guard: Guard, gateway: Any) -> None:
    """Its failure goes on, and is recorded with what it was."""

    @guard.guarded("a.b", fail_open=True)
    def tool(fail_open: str) -> None:
        raise ValueError("broken")

    down(gateway)
    with pytest.raises(ValueError, match="broken"):
        tool("mine")
    (entry,) = gateway.logs
    assert entry["status"] == "failed"
    assert entry["context"]["fail_open"] == "mine"
    assert entry["context"]["fail_open_"] is True


async def test_it_is_counted(guard: Guard, gateway: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Each warning says how many calls ran unasked so far."""
    tool = guard.guarded("a.b", fail_open=True)(lambda: None)
    down(gateway)
    tool()
    tool()
    reasons = [each.toolgate_reason for each in caplog.records if hasattr(each, "toolgate_reason")]
    first, second = (
        int(re.findall(r"\(unchecked call number (\d+) of this process", each)[0]) for each in reasons
    )
    assert second == first + 1


async def test_closed_by_default(tool: Tool, gateway: Any) -> None:
    """Nothing fails open that was not told to."""
    down(gateway)
    with pytest.raises(GatewayUnavailable):
        await tool(fail_open=False)
    assert gateway.logs == []


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(502, headers=OURS),
        httpx.Response(503, headers=OURS),
        httpx.Response(504, headers=OURS),
        # The proxy reached a gateway that did not answer in time.
        httpx.Response(504),
        httpx.Response(500),
        httpx.Response(429),
        httpx.Response(401),
        httpx.Response(404, html="not here"),
        httpx.Response(200, json={"allowed": "yes"}),
        httpx.Response(200, text="welcome"),
        httpx.RemoteProtocolError("illegal status line"),
        httpx.ProxyError("407 Proxy Authentication Required"),
        httpx.UnsupportedProtocol("what"),
    ],
    ids=repr,
)
async def test_any_answer_is_an_answer(tool: Tool, gateway: Any, reply: Any) -> None:
    """What anybody says, however odd, is not an outage."""
    down(gateway, reply)
    with pytest.raises((GatewayUnavailable, GatewayProtocolError, ConfigurationError)):
        await tool()
    assert gateway.logs == []


async def test_one_answer_among_the_attempts(tool: Tool, gateway: Any) -> None:
    """A gateway that answered once during the call and then fell silent has answered."""
    down(gateway)
    gateway.check.insert(0, httpx.Response(503, headers={**OURS, "Retry-After": "0"}))
    with pytest.raises(GatewayUnavailable) as raised:
        await tool()
    assert raised.value.answered


@pytest.mark.parametrize("answer", [BLOCKED, HELD])
async def test_last_seen_refused(tool: Tool, gateway: Any, answer: Any) -> None:
    """What the gateway last refused stays refused while it is away, and no longer."""
    gateway.check = [answer]
    with pytest.raises((ActionDenied, ApprovalPending)):
        await tool()
    down(gateway)
    with pytest.raises(GatewayUnavailable):
        await tool()
    gateway.check = [ALLOWED]
    assert await tool() == "ran"
    down(gateway)
    assert await tool() == "ran"


@pytest.mark.parametrize("status", [401, 403])
async def test_who_may_not_even_ask(tool: Tool, gateway: Any, status: int) -> None:
    """A key that was refused opens nothing in the outage that follows, until the gateway allows again."""
    gateway.check = [httpx.Response(status, headers=OURS, json={"detail": "no"})]
    with pytest.raises((ConfigurationError, GatewayProtocolError)):
        await tool()
    down(gateway)
    with pytest.raises(GatewayUnavailable):
        await tool()
    gateway.check = [ALLOWED]
    assert await tool() == "ran"
    down(gateway)
    assert await tool() == "ran"


async def test_another_action(tool: Tool, gateway: Any) -> None:
    """What was refused is one action of one agent."""
    gateway.check = [BLOCKED]
    with pytest.raises(ActionDenied):
        await tool()
    down(gateway)
    assert await tool("another.action") == "ran"


async def test_a_plain_check_is_seen_too(guard: Guard, make_guard: Any, tool: Tool, gateway: Any) -> None:
    """Whoever of this process asked, and with whichever guard of the gateway."""
    other = make_guard()
    gateway.check = [BLOCKED]
    other.check("a.b", agent_id=repr(guard).partition("agent_id='")[2][:36])
    down(gateway)
    with pytest.raises(GatewayUnavailable):
        await tool()


async def test_let_through_by_an_approval(tool: Tool, gateway: Any) -> None:
    """An action a person was asked about does not fail open because they said yes once."""
    gateway.check = [HELD, ALLOWED]
    assert await tool(on_hold="wait") == "ran"
    down(gateway)
    with pytest.raises(GatewayUnavailable):
        await tool()


async def test_after_a_hold(tool: Tool, gateway: Any) -> None:
    """The deciding check of a held call needs an answer, whatever the arguments have become."""
    gateway.check = [HELD, *[DOWN] * 50]
    with pytest.raises(GatewayUnavailable):
        await tool(on_hold="wait")
    assert [each["status"] for each in gateway.logs] == ["pending"]


async def test_resumed(guard: Guard, tool: Tool, gateway: Any) -> None:
    """A call that continues an approval passes by that approval or not at all."""
    down(gateway)
    with guard.resume("appr-7"), pytest.raises(GatewayUnavailable):
        await tool()
    assert gateway.logs == []


@pytest.mark.parametrize("fail_open", [1, "yes", None])
def test_what_fail_open_may_be(guard: Guard, fail_open: Any) -> None:
    """Yes or no, said where it is decorated."""
    with pytest.raises(ConfigurationError, match="fail_open"):
        guard.guarded("a.b", fail_open=fail_open)
    with pytest.raises(ConfigurationError, match="fail_open"):
        guard.action("a.b", fail_open=fail_open)


def asked(agent: str, *, approval: str | None = None) -> Check:
    return Check("a.b", Identity(agent), {}, approval)


YES = Decision(allowed=True, requires_approval=False)
NO = Decision(allowed=False, requires_approval=False, reason="no")


def test_what_does_not_fit_is_not_forgotten() -> None:
    """More refusals than can be remembered: nothing fails open any more."""
    refusals = DeniedActions(max_pairs=2)
    for agent in ("one", "two"):
        refusals.note(asked(agent), NO)
    assert not refusals.contains("three", asked("three").action)
    refusals.note(asked("three"), NO)
    assert refusals.contains("three", asked("three").action)
    refusals.note(asked("three"), YES)
    assert refusals.contains("four", asked("four").action)


def test_one_memory_for_each_gateway() -> None:
    """By the address's origin: another path or spelling is the same gateway, another port is not."""
    assert denied_actions_at("https://Gateway.example/a") is denied_actions_at("https://gateway.example/b")
    assert denied_actions_at("https://gateway.example:443") is denied_actions_at("https://gateway.example.")
    assert denied_actions_at("https://gateway.example") is not denied_actions_at(
        "https://gateway.example:8443"
    )


def test_many_threads() -> None:
    """Each sees what it noted itself, and every count is given once."""
    refusals, counts = DeniedActions(), list[int]()

    def work(name: str) -> None:
        for _ in range(500):
            refusals.note(asked(name), NO)
            assert refusals.contains(name, asked(name).action)
            refusals.note(asked(name), YES)
            assert not refusals.contains(name, asked(name).action)
            counts.append(refusals.count_unchecked())

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(1, 4001))


def test_a_fork_remembers() -> None:
    """A child knows what its parent was refused, and counts for itself."""
    refusals = DeniedActions()
    refusals.note(asked("one"), NO)
    refusals.count_unchecked()
    child = os.fork()
    if child == 0:
        os._exit(
            0 if refusals.contains("one", asked("one").action) and refusals.count_unchecked() == 1 else 1
        )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_error_says_whether_anybody_answered() -> None:
    """Where nothing is known an answer is assumed, which refuses."""
    assert GatewayUnavailable("down").answered
    assert issubclass(GatewayUnavailable, GuardError)
