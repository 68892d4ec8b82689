"""An outage costs one time-out: which requests are sent during it, and which end it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from toolgate import GatewayProtocolError, GatewayUnavailable
from toolgate._call import new_entry
from toolgate._http.client import AsyncGatewayClient, GatewayClient
from toolgate._http.retry import CircuitBreaker
from toolgate._identity import Identity
from toolgate._models import Check
from toolgate._settings import Settings

KEY = "ak_" + "k3y" * 12 + "z"
CHECK = Check("a.b", Identity("agent-1"), {})
ENTRY = new_entry(action="a.b", agent_id="agent-1", status="success", context={})
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
LOGGED = {"id": "log-1", "agent_id": "agent-1", "action": "a.b", "status": "success"}
APPROVAL = {"id": "appr-1", "status": "pending"}
OURS = {"X-API-Version": "2026-11-20"}


class Net:
    """A gateway that may be silent, on a clock of its own: silence takes each request's whole time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.silent = True
        self.refuses = False
        self.sent: list[str] = []
        self.answer: httpx.Response | None = None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request.url.path)
        if self.refuses:
            raise httpx.ConnectError("connection refused")
        if self.silent:
            self.now += request.extensions["timeout"]["read"]
            raise httpx.ReadTimeout("nothing came")
        if self.answer is not None:
            return httpx.Response(
                self.answer.status_code, headers=self.answer.headers, content=self.answer.content
            )
        body = {"/sdk/check": ALLOWED, "/sdk/log": LOGGED}.get(request.url.path, APPROVAL)
        return httpx.Response(200, json=body)


Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest, net: Net) -> Any:
    """Calls an operation of a client that tries for five seconds."""
    settings = Settings("https://gateway.example", KEY, None, 5.0, "httpx")
    breaker = CircuitBreaker(settings.url, net.clock, lambda _, most: most)
    transport = httpx.MockTransport(net)
    client = GatewayClient(settings, transport=transport, clock=net.clock, sleep=net.sleep, breaker=breaker)
    other = AsyncGatewayClient(
        settings, transport=transport, clock=net.clock, sleep=net.asleep, breaker=breaker
    )

    async def call(operation: str, *given: Any) -> Any:
        if request.param == "sync":
            return getattr(client, operation)(*given)
        return await getattr(other, operation)(*given)

    yield call
    client.close()
    await other.aclose()


async def unavailable(ask: Ask, operation: str, *given: Any) -> GatewayUnavailable:
    with pytest.raises(GatewayUnavailable) as raised:
        await ask(operation, *given)
    return raised.value


async def test_outage_costs_one_time_out_and_not_one_per_call(net: Net, ask: Ask) -> None:
    began = net.now
    await unavailable(ask, "check", CHECK)
    assert net.now - began == 5
    for _ in range(100):
        error = await unavailable(ask, "check", CHECK)
        assert not error.answered
        assert "the SDK tries again in" in str(error)
        error = await unavailable(ask, "log", ENTRY)
    assert net.now - began == 5
    assert len(net.sent) == 1


async def test_response_to_a_probe_ends_the_outage(net: Net, ask: Ask) -> None:
    await unavailable(ask, "check", CHECK)
    net.silent = False
    await unavailable(ask, "check", CHECK)
    net.now += 1
    assert (await ask("check", CHECK)).allowed
    assert (await ask("check", CHECK)).allowed


async def test_call_after_refused_connections_makes_one_attempt(net: Net, ask: Ask) -> None:
    """A gateway that was restarted serves the next call."""
    net.refuses = True
    began = net.now
    await unavailable(ask, "check", CHECK)
    assert len(net.sent) > 3
    spent, sent = net.now - began, len(net.sent)
    await unavailable(ask, "check", CHECK)
    assert (net.now - began, len(net.sent)) == (spent, sent + 1)
    net.now += 1
    net.refuses = net.silent = False
    assert (await ask("check", CHECK)).allowed


def test_restart_within_the_deadline_does_not_open_the_breaker(net: Net) -> None:
    net.refuses, net.silent = True, False

    def sleep(seconds: float) -> None:
        net.sleep(seconds)
        net.refuses = len(net.sent) < 2

    settings = Settings("https://gateway.example", KEY, None, 5.0, "httpx")
    client = GatewayClient(settings, transport=httpx.MockTransport(net), clock=net.clock, sleep=sleep)
    assert client.check(CHECK).allowed
    assert len(net.sent) == 3
    client.close()


@pytest.mark.parametrize("operation", ["poll", "look", "cancel", "deciding check"])
async def test_requests_of_a_waiting_call_are_sent_during_an_outage(
    net: Net, ask: Ask, operation: str
) -> None:
    """The first response ends the outage for all calls."""
    asked = {
        "poll": ("approval", "appr-1", 30),
        "look": ("approval", "appr-1", 0),
        "cancel": ("cancel", "appr-1", 2),
        "deciding check": ("check", Check("a.b", Identity("agent-1"), {}, "appr-1")),
    }[operation]
    await unavailable(ask, "check", CHECK)
    sent = len(net.sent)
    await unavailable(ask, *asked)
    assert len(net.sent) > sent
    net.silent = False
    await ask(*asked)
    assert (await ask("check", CHECK)).allowed


async def test_failed_long_poll_does_not_open_the_breaker(net: Net, ask: Ask) -> None:
    """A proxy may have cut it off."""
    await unavailable(ask, "approval", "appr-1", 30)
    net.silent = False
    assert (await ask("check", CHECK)).allowed


async def test_failure_within_a_very_short_deadline_does_not_open_the_breaker(net: Net, ask: Ask) -> None:
    await unavailable(ask, "log", ENTRY, 0.01)
    net.silent = False
    assert (await ask("check", CHECK)).allowed


@pytest.mark.parametrize("status", [429, 500, 503, 401, 404, 302])
async def test_any_response_of_the_gateway_closes_the_breaker(net: Net, ask: Ask, status: int) -> None:
    """The next calls raise what the gateway reports."""
    await unavailable(ask, "check", CHECK)
    net.silent, net.answer = False, httpx.Response(status, headers=OURS, json={"detail": "no"})
    net.now += 1
    for _ in range(2):
        with pytest.raises(Exception, match=str(status) if status != 401 else "refuses the API key"):
            await ask("check", CHECK)


async def test_error_of_the_gateway_does_not_open_the_breaker(net: Net, ask: Ask) -> None:
    """That of a proxy without a gateway does."""
    net.silent = False
    for status in (503, 429):
        net.answer = httpx.Response(status, headers=OURS)
        await unavailable(ask, "check", CHECK)
        sent = len(net.sent)
        await unavailable(ask, "check", CHECK)
        assert len(net.sent) - sent > 1
    net.answer = httpx.Response(503)
    await unavailable(ask, "check", CHECK)
    sent = len(net.sent)
    error = await unavailable(ask, "check", CHECK)
    assert (len(net.sent) - sent, error.answered, error.status) == (1, False, 503)


async def test_page_of_another_server_does_not_open_the_breaker(net: Net, ask: Ask) -> None:
    net.silent, net.answer = False, httpx.Response(200, html="hello")
    for _ in range(3):
        with pytest.raises(GatewayProtocolError):
            await ask("check", CHECK)


def test_threads_fail_at_once_during_an_outage(peer: Any) -> None:
    server = peer(lambda _: None)
    client = GatewayClient(Settings(server.url, KEY, None, 0.5, "httpx"), sleep=lambda _: None)
    with pytest.raises(GatewayUnavailable):
        client.check(CHECK)
    sent = len(server.requests)

    def call(_: int) -> str:
        with pytest.raises(GatewayUnavailable) as raised:
            client.check(CHECK)
        return str(raised.value)

    with ThreadPoolExecutor(32) as pool:
        told = list(pool.map(call, range(200)))
    assert sum("no response since" in each for each in told) >= 195
    assert len(server.requests) - sent <= 5
    client.close()


async def test_cancelled_probe_leaves_the_next_probe_to_another_call(peer: Any) -> None:
    asked = threading.Event()
    server = peer(lambda _: asked.set())
    settings = Settings(server.url, KEY, None, 0.3, "httpx")
    breaker = CircuitBreaker(server.url, spread=lambda *_: 0.0)
    client = AsyncGatewayClient(settings, breaker=breaker)
    with pytest.raises(GatewayUnavailable):
        await client.check(CHECK)
    asked.clear()
    probe = asyncio.create_task(client.check(CHECK))
    await asyncio.to_thread(asked.wait)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert breaker.admit(1)
    await client.aclose()


def test_password_in_the_message_of_a_transport_is_masked(caplog: pytest.LogCaptureFixture) -> None:

    def refuses(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no way to http://bob:hunter22@proxy.example:3128")

    client = GatewayClient(
        Settings("http://127.0.0.1:9", KEY, "agent-1", 0.05, "httpx"), transport=httpx.MockTransport(refuses)
    )
    with pytest.raises(GatewayUnavailable, match="no way to") as raised:
        client.check(CHECK)
    assert "no way to" in caplog.text
    assert "hunter22" not in caplog.text + str(raised.value)


def test_error_contains_an_invalid_response_of_an_earlier_attempt() -> None:
    """The last attempt may have had too little time to receive it again."""
    said: list[Exception] = [httpx.RemoteProtocolError("illegal status line")]

    def answers(_: httpx.Request) -> httpx.Response:
        raise said.pop() if said else httpx.ReadTimeout("nothing came")

    client = GatewayClient(
        Settings("http://127.0.0.1:9", KEY, "agent-1", 0.3, "httpx"), transport=httpx.MockTransport(answers)
    )
    with pytest.raises(GatewayUnavailable, match="illegal status line") as raised:
        client.check(CHECK)
    assert raised.value.answered
