from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.waiting import until

import toolgate
from toolgate import ConfigurationError, Guard, GuardError, _default, action, configure, guarded

KEY = "ak_" + "k3y" * 12 + "z"
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}


@pytest.fixture
def no_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_default, "_default", None)
    for name in ("URL", "API_KEY", "AGENT_ID", "TIMEOUT", "HTTP"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    yield
    monkeypatch.undo()


def test_public_names() -> None:
    """The package offers exactly the promised names, sorted, and each can be had."""
    assert toolgate.__all__ == sorted(toolgate.__all__)
    assert len(toolgate.__all__) == 24
    for name in toolgate.__all__:
        assert getattr(toolgate, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        toolgate.nothing  # noqa: B018 - the access is what is tested


def test_check(guard: Guard, gateway: Any) -> None:
    """check() asks with a JSON-safe context and runs and records nothing."""
    gateway.check = [HELD]
    decision = guard.check(
        "a.b", {"amount": 12.5, "password": "hunter22"}, agent_id="x", approval_id="appr-0"
    )
    assert (decision.held, decision.blocked, decision.approval_id) == (True, False, "appr-1")
    assert gateway.checks[0]["agent_id"] == "x"
    assert gateway.checks[0]["approval_id"] == "appr-0"
    assert gateway.context["amount"] == 12.5
    assert "$digest" in gateway.context["password"]
    assert gateway.logs == []


async def test_check_async(guard: Guard, gateway: Any) -> None:
    """As the synchronous test."""
    gateway.check = [BLOCKED]
    decision = await guard.acheck("a.b", {"amount": 12.5})
    assert (decision.blocked, decision.reason) == (True, "no permission")
    assert gateway.context == {"amount": 12.5}
    await guard.aclose()


def test_log(guard: Guard, gateway: Any) -> None:
    """log() records with every detail and returns the entry."""
    entry = guard.log(
        "a.b",
        "failed",
        {"n": 1},
        approval_id="x",
        decision_id="d",
        ip_address="10.0.0.1",
        idempotency_key="once",
    )
    assert (entry["id"], entry["context"]) == ("log-1", {"n": 1})
    sent = gateway.logs[0]
    assert (sent["approval_id"], sent["decision_id"], sent["ip_address"]) == ("x", "d", "10.0.0.1")
    assert gateway.requests[0].headers["Idempotency-Key"] == "once"


async def test_log_async(guard: Guard, gateway: Any) -> None:
    """As the synchronous test."""
    entry = await guard.alog("a.b", "failed", {"n": 1}, approval_id="x")
    assert (entry["id"], gateway.logs[0]["approval_id"]) == ("log-1", "x")
    await guard.aclose()


def test_log_failure_is_told(guard: Guard, gateway: Any) -> None:
    """An explicit log() that fails says so, and nothing is sent behind the caller's back later."""
    gateway.log = [httpx.Response(404, json={"detail": "Agent not found"})]
    with pytest.raises(GuardError, match="Agent not found"):
        guard.log("a.b", "success")
    assert guard.flush()
    assert len(gateway.logs) == 1


@pytest.mark.parametrize("status", ["done", "", None])
def test_wrong_status(guard: Guard, status: Any) -> None:
    """A status that is none of the four is refused before anything is sent."""
    with pytest.raises(ConfigurationError, match="success, failed, pending, denied"):
        guard.log("a.b", status)


@pytest.mark.parametrize("odd", ["text", 0, [], 5], ids=repr)
async def test_context_must_be_a_mapping(guard: Guard, gateway: Any, odd: Any) -> None:
    """A context that is no mapping is refused by the name of its class, before anything is sent."""
    wanted = f"context.*{type(odd)!r}"
    with pytest.raises(ConfigurationError, match=wanted):
        guard.check("a.b", odd)
    with pytest.raises(ConfigurationError, match=wanted):
        guard.log("a.b", "success", odd)
    with pytest.raises(ConfigurationError, match=wanted):
        await guard.acheck("a.b", odd)
    with pytest.raises(ConfigurationError, match=wanted):
        await guard.alog("a.b", "success", odd)
    assert gateway.requests == []


async def test_odd_names_become_text(guard: Guard, gateway: Any) -> None:
    """Names that are no strings are sent as text."""
    odd: Any = {1: "x", None: "y"}
    guard.check("a.b", odd)
    await guard.acheck("a.b", odd)
    guard.log("a.b", "success", odd)
    await guard.alog("a.b", "success", odd)
    assert [each["context"] for each in gateway.checks + gateway.logs] == [{"1": "x", "null": "y"}] * 4
    await guard.aclose()


def test_closed(make_guard: Callable[..., Guard]) -> None:
    """A closed guard refuses every call clearly, and closing twice does nothing."""
    with make_guard() as guard:
        tool = guard.guarded("a.b")(lambda: 1)
        assert tool() == 1
    guard.close()
    for call in (tool, lambda: guard.check("a.b"), lambda: guard.log("a.b", "success")):
        with pytest.raises(ConfigurationError, match="closed"):
            call()
    with pytest.raises(ConfigurationError, match="closed"), guard.action("a.b"):
        pass


async def test_closed_async(make_guard: Callable[..., Guard]) -> None:
    """As the synchronous test."""
    async with make_guard() as guard:
        assert (await guard.acheck("a.b")).allowed
    await guard.aclose()
    with pytest.raises(ConfigurationError, match="closed"):
        await guard.acheck("a.b")


@pytest.mark.parametrize("closing", ["flush", "close"])
def test_what_waits_goes_out(make_guard: Callable[..., Guard], gateway: Any, closing: str) -> None:
    """Entries the gateway did not take go out when flushed, and when closed, under the same key."""
    guard = make_guard()
    gateway.log = [httpx.Response(403)] * 100
    guard.guarded("a.b")(lambda: 1)()
    assert not guard.flush(5)
    assert gateway.taken == []
    gateway.log.clear()
    getattr(guard, closing)()
    assert len(gateway.taken) == 1
    sent = [each["entries"] for each in gateway.bodies("/sdk/logs")]
    assert len(sent) > 1
    assert all(each == gateway.taken for each in sent)


async def test_what_waits_goes_out_async(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """As the synchronous test."""
    async with make_guard() as guard:
        gateway.log = [httpx.Response(403)] * 100
        guard.guarded("a.b")(lambda: 1)()
        assert not await guard.aflush(5)
        gateway.log.clear()
    assert len(gateway.taken) == 1


def test_what_nobody_takes_is_kept(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """Closing with entries nobody takes loses none of them: the next guard of the same key sends them."""
    guard = make_guard()
    gateway.log = [httpx.Response(403)] * 100
    guard.guarded("a.b")(lambda: 1)()
    guard.close()
    assert gateway.taken == []
    gateway.log.clear()
    assert make_guard().flush(5)
    assert [each["status"] for each in gateway.taken] == ["success"]


def test_events(guard: Guard, gateway: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Every decision, wait and record is a log record with stable extra fields and no argument."""
    caplog.set_level(logging.INFO, "toolgate")
    gateway.check = [HELD]
    guard.guarded("a.b", on_hold="wait")(lambda password="hunter22": 1)()
    guard.flush()
    fields = ("event", "action", "agent_id", "outcome", "reason", "approval_id")
    assert [tuple(each.__dict__[f"toolgate_{name}"] for name in fields) for each in caplog.records] == [
        ("decision", "a.b", "agent-1", "held", "needs a person", "appr-1"),
        ("record", "a.b", "agent-1", "pending", "needs a person", "appr-1"),
        ("waiting", "a.b", "agent-1", "held", None, "appr-1"),
        ("approved", "a.b", "agent-1", "approved", None, "appr-1"),
        ("decision", "a.b", "agent-1", "allowed", None, "appr-1"),
        ("record", "a.b", "agent-1", "success", None, "appr-1"),
    ]
    assert "hunter22" not in caplog.text


def test_decorating_needs_no_settings(no_default: None) -> None:
    """Decorating reads nothing; the first call without settings names the variable."""
    tool = guarded("a.b")(lambda: 1)
    with pytest.raises(ConfigurationError, match="TOOLGATE_URL"):
        tool()


def test_settings_are_read_at_the_first_call(no_default: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the first call counts, not that of the import."""
    tool = guarded("a.b")(lambda: 1)
    monkeypatch.setenv("TOOLGATE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TOOLGATE_API_KEY", KEY)
    monkeypatch.setenv("TOOLGATE_TIMEOUT", "0.05")
    with pytest.raises(ConfigurationError, match="no agent id is set"):
        tool()


def test_configure(no_default: None, gateway: Any) -> None:
    """configure() sets the guard of functions decorated before and after, and replaces it."""
    before = guarded("a.b")(lambda: 1)
    transport = httpx.MockTransport(gateway)
    configure("http://127.0.0.1:9", KEY, "first", transport=transport)
    after = guarded("a.b")(lambda: 2)
    assert (before(), after()) == (1, 2)
    configure("http://127.0.0.1:9", KEY, "second", transport=transport)
    before()
    with action("c.d"):
        pass
    assert [each["agent_id"] for each in gateway.checks] == ["first", "first", "second", "second"]


def test_wrong_configure_changes_nothing(no_default: None, gateway: Any) -> None:
    """A configure() that fails leaves the guard in place."""
    configure("http://127.0.0.1:9", KEY, "first", transport=httpx.MockTransport(gateway))
    with pytest.raises(ConfigurationError):
        configure("ftp://x", KEY)
    assert guarded("a.b")(lambda: 1)() == 1


def test_configure_while_calling(no_default: None, gateway: Any) -> None:
    """Replacing the guard while other threads call disturbs none of them."""
    transport = httpx.MockTransport(gateway)
    configure("http://127.0.0.1:9", KEY, "agent", transport=transport)
    tool = guarded("a.b")(lambda: 1)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.extend(tool() for _ in range(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        configure("http://127.0.0.1:9", KEY, "agent", transport=transport)
    for thread in threads:
        thread.join()
    assert results == [1] * 20
    until(lambda: len(gateway.taken) == 20, seconds=8)
