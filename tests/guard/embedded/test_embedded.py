"""`Guard.embedded`: its database, permissions, arguments and errors."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from support.wire import Wire

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, GatewayUnavailable, Guard, acting_as
from toolgate import embedded as embedding

pytestmark = pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")

Open = Callable[..., Guard]


@pytest.fixture
def open_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open guards on one file, with folders of its own for the user, and close them after the test."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("TOOLGATE_SECRET", raising=False)
    opened: list[Guard] = []

    def open_guard(path: Any = tmp_path / "data" / "toolgate.db", **options: Any) -> Guard:
        opened.append(Guard.embedded(path, **{"agent": "bot", **options}))
        return opened[-1]

    yield open_guard
    for guard in opened:
        guard.close()


def acting(guard: Guard) -> tuple[str | None, str]:
    settings = guard._guard_state.settings
    return settings.agent_id, settings.api_key


def test_second_start_finds_the_same_agent_and_key(open_guard: Open) -> None:
    with open_guard(allow=["math.add"]) as first:
        who = acting(first)
        entry = first.log("math.add", "success", idempotency_key="k")
    with open_guard(allow=["math.add"]) as again:
        assert acting(again) == who
        assert again.log("math.add", "success", idempotency_key="k") == entry
        other = open_guard(agent="other", allow=["math.sub"])
        assert acting(other)[0] != who[0]
        assert (other.check("math.sub").allowed, other.check("math.add").allowed) == (True, False)
        assert again.check("math.add").allowed


def test_start_changes_the_permissions_to_the_arguments(open_guard: Open) -> None:
    with open_guard(allow={"pay": {"max_amount": 10}, "old": None}, require_approval=["mail.send"]) as guard:
        assert guard.check("old").allowed
        approval_id = guard.check("mail.send", {"n": 1}).approval_id
    with open_guard(
        allow={"pay": {"max_amount": 99.5, "amount_required": False}}, require_approval=["mail.send"]
    ) as guard:
        assert guard.check("pay", {"amount": 99.5}).allowed
        assert guard.check("pay").allowed
        assert guard.check("old").blocked
        assert [one.approval_id for one in guard.gateway.pending()] == [approval_id]
    with open_guard(allow=["mail.send"]) as guard:
        assert guard.check("mail.send", {"n": 1}).allowed
        assert guard.check("pay").blocked
    with open_guard(require_approval=["pay"]) as guard:
        assert guard.gateway.pending() == []


def test_secret_that_opens_no_key_is_refused(open_guard: Open, tmp_path: Path) -> None:
    open_guard(allow=["math.add"]).close()
    (secret,) = (tmp_path / "home").rglob("secret")
    content = secret.read_bytes()
    secret.unlink()
    with pytest.raises(ConfigurationError, match="is missing; restore the former secret in"):
        open_guard(allow=["math.add"])
    assert not secret.exists()
    secret.write_bytes(b"a different secret in the same file")
    with pytest.raises(ConfigurationError, match="contains a different secret; restore the former secret in"):
        open_guard(allow=["math.add"])
    secret.write_bytes(content)
    assert open_guard(allow=["math.add"]).check("math.add").allowed


def test_wildcards_are_refused(open_guard: Open, tmp_path: Path) -> None:
    for limits in ({"allow": ["stripe.*"]}, {"require_approval": ["*"]}):
        with pytest.raises(ConfigurationError, match="match actions exactly"):
            open_guard(**limits)
    assert not (tmp_path / "data").exists()


def test_approval_survives_restarts(open_guard: Open) -> None:

    def send(guard: Guard) -> str:
        return guard.guarded("mail.send", exclude={"text"})(lambda to, text: f"sent to {to}")("ann", "secret")

    with open_guard(require_approval=["mail.send"]) as guard, pytest.raises(ApprovalPending) as pending:
        send(guard)
    with open_guard(require_approval=["mail.send"]) as guard:
        guard.gateway.approve(pending.value.approval_id)
    with open_guard(require_approval=["mail.send"]) as guard:
        assert send(guard) == "sent to ann"


def test_files_are_readable_only_by_their_owner(open_guard: Open, tmp_path: Path) -> None:
    open_guard()
    (secret,) = (tmp_path / "home").rglob("secret")
    database = tmp_path / "data" / "toolgate.db"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (secret, database)} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in (secret, database)} == {0o700}


def test_memory_database_leaves_no_files(
    open_guard: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_guard(":memory:", allow=["math.add"]) as guard:
        assert guard.check("math.add").allowed
        first = acting(guard)
        with open_guard(":memory:") as other:
            assert acting(other) != first
    assert list(tmp_path.iterdir()) == []


def test_entry_of_a_call_that_closes_the_guard(
    open_guard: Open, own_outbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = open_guard(":memory:", allow=["math.add"])
    guard.guarded("math.add")(guard.close)()
    # Counted first and told then, on a thread of its own.
    until(lambda: "1 log entries were lost; the last one is of action 'math.add'" in caplog.text)
    assert guard.entries_lost == 1
    assert not own_outbox.exists()
    first = open_guard(allow=["math.add"])
    first.guarded("math.add")(first.close)()
    again = open_guard(allow=["math.add"])
    until(again.flush)
    page: Any = again.gateway._call_api("GET", "/api/logs")
    assert [(one["action"], one["status"]) for one in page] == [("math.add", "success")]
    assert first.entries_lost == 0


def test_disabled_agent_stays_disabled(open_guard: Open) -> None:
    guard = open_guard(allow=["math.add"])
    guard.gateway._call_api("PUT", f"/api/agents/{acting(guard)[0]}", {"status": "inactive"})
    guard.close()
    assert open_guard(allow=["math.add"]).check("math.add").reason == "Agent is inactive"


def test_served_gateway_shares_the_database(open_guard: Open, tmp_path: Path) -> None:
    from support.gateway import SECRET, LiveGateway

    path = tmp_path / "shared.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLGATE_SECRET", SECRET)
        guard = open_guard(path, allow=["math.add"])
    agent_id, key = acting(guard)
    env = {"TOOLGATE_DATABASE_URL": f"sqlite:///{path}"}
    with LiveGateway(tmp_path, env=env) as served, Wire(served.url, key) as wire:
        assert wire.allowed(str(agent_id), "math.add")
        assert guard.check("math.add").allowed


async def test_running_event_loop_is_not_blocked(open_guard: Open) -> None:
    guard = open_guard(":memory:", allow=["math.add"], require_approval=["mail.send"])
    assert guard.check("math.add").allowed
    decisions = await asyncio.gather(*(guard.acheck("math.add", {"n": n}) for n in range(20)))
    assert all(one.allowed for one in decisions)

    @guard.guarded("mail.send", on_hold="wait")
    async def send(to: str) -> str:
        return to

    waiting = asyncio.create_task(send("ann"))
    while not await asyncio.to_thread(guard.gateway.pending):
        pass
    await asyncio.to_thread(guard.gateway.approve, guard.gateway.pending()[0].approval_id)
    assert await waiting == "ann"
    async with guard:
        pass
    with pytest.raises(ConfigurationError, match="closed"):
        await guard.acheck("math.add")


def test_late_response_is_a_timeout(open_guard: Open) -> None:
    guard = open_guard(":memory:", allow=["math.add"], timeout=0.5)
    embedded = guard.gateway._service
    embedded._loop.call_soon_threadsafe(__import__("time").sleep, 1.5)  # type: ignore[attr-defined]  # the gateway's own thread
    with pytest.raises(GatewayUnavailable, match="no answer within"):
        guard.check("math.add")
    assert guard.gateway.pending() == []
    until(lambda: _allowed(guard))


def test_ended_gateway_is_unavailable(open_guard: Open) -> None:
    guard = open_guard(":memory:", timeout=0.2)
    embedded: Any = guard.gateway._service
    embedded.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(GatewayUnavailable, match="ended"):
            guard.check("math.add")
        gc.collect()


async def test_response_in_time_counts_after_a_blocked_event_loop(open_guard: Open) -> None:
    guard, ran = open_guard(":memory:", timeout=2), list[str]()
    asked, taken = guard.gateway._service.request, list[Any]()  # type: ignore[attr-defined]  # the gateway's own

    def request(*given: Any) -> Any:
        taken.append(asked(*given))
        return taken[-1]

    guard.gateway._service.request = request  # type: ignore[method-assign]  # likewise

    @guard.guarded("mail.send", fail_open=True)
    async def send() -> None:
        ran.append("ran")

    async def hold() -> None:
        while not taken:  # noqa: ASYNC110 - it is set by a thread's own code, between two steps of this loop
            await asyncio.sleep(0)
        began = time.monotonic()
        taken[0].result(30)
        threading.Event().wait(began + 3 - time.monotonic())

    found, _ = await asyncio.gather(send(), hold(), return_exceptions=True)
    assert ran == []
    assert isinstance(found, ActionDenied)


def _allowed(guard: Guard) -> bool:
    try:
        return guard.check("math.add").allowed
    except GatewayUnavailable:
        # The circuit breaker holds back for a moment.
        return False


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"agent": 3}, "Invalid agent 3"),
        ({"agent": "  "}, "agent must be 1-100 printable characters: '  '"),
        ({"path": ""}, "Invalid path ''"),
        ({"path": 3}, "Invalid path 3"),
        ({"path": "/proc/nowhere/toolgate.db"}, "'/proc/nowhere/toolgate.db'"),
        ({"allow": "math.add"}, "allow is 'math.add'"),
        ({"allow": ["a"], "require_approval": ["a"]}, "Duplicate action 'a'"),
        ({"require_approval": {"a": {"max_amount": "9"}}}, "max_amount of action 'a' is '9'"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
def test_invalid_arguments_are_named(open_guard: Open, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        open_guard(**{"path": ":memory:", **options})
    assert named in str(error.value)


def test_hold_is_the_deprecated_name_of_require_approval(open_guard: Open) -> None:
    with pytest.warns(DeprecationWarning, match="require_approval"):
        guard = open_guard(":memory:", hold=["mail.send"])
    assert guard.check("mail.send").held
    with pytest.raises(ConfigurationError, match="Pass only require_approval"):
        open_guard(":memory:", hold=["a"], require_approval=["b"])


def test_key_of_the_agent_does_not_act_as_another(open_guard: Open) -> None:
    guard = open_guard(":memory:", allow=["math.add"])
    with acting_as("somebody-else"):
        decision = guard.check("math.add")
    assert decision.blocked
    assert "agent" in str(decision.reason).lower()


def test_edit_that_is_nested_too_deeply_is_refused(open_guard: Open) -> None:
    guard = open_guard(":memory:", require_approval=["mail.send"])
    approval_id = str(guard.check("mail.send").approval_id)
    nested: Any = 1
    for _ in range(40):
        nested = [nested]
    with pytest.raises(ConfigurationError, match="deeper than 32 levels"):
        guard.gateway.approve(approval_id, context={"text": nested})


def test_file_that_is_not_a_database_is_refused_and_kept(open_guard: Open, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader," * 100)
    with pytest.raises(ConfigurationError, match=r"letter\.txt"):
        open_guard(path)
    assert path.read_text() == "Dear reader," * 100


def test_invalid_setting_of_the_gateway_is_named(open_guard: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_MAINTENANCE_INTERVAL_SECONDS", "never")
    with pytest.raises(ConfigurationError, match="TOOLGATE_MAINTENANCE_INTERVAL_SECONDS"):
        open_guard()


def test_former_name_of_a_gateway_setting_is_logged(
    open_guard: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOOLGATE_UPKEEP_SECONDS", "60")
    open_guard()
    expected = "TOOLGATE_UPKEEP_SECONDS is deprecated and accepted until version 0.2; set TOOLGATE_MAINTENANCE_INTERVAL_SECONDS instead"
    assert caplog.messages.count(expected) == 1


def test_missing_extra_is_named(open_guard: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = EntryPoint("embedded", "module_that_is_absent:open", "toolgate.gateway")
    for found, told in (([absent], "'module_that_is_absent' is missing"), ([], "not installed")):
        monkeypatch.setattr(embedding, "entry_points", lambda found=found, **_: found)
        with pytest.raises(ConfigurationError, match=r"pip install 'toolgate\[service\]'") as error:
            open_guard()
        assert told in str(error.value)


def test_other_guards_have_no_embedded_gateway() -> None:
    with (
        Guard("http://127.0.0.1:9", "ak_" + "k" * 37) as guard,
        pytest.raises(ConfigurationError, match="approvals"),
    ):
        _ = guard.gateway


def test_environment_settings_are_ignored(open_guard: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("URL", "https://elsewhere.example"),
        ("API_KEY", "ak_" + "k" * 37),
        ("AGENT_ID", "x"),
    ):
        monkeypatch.setenv(f"TOOLGATE_{name}", value)
    guard = open_guard(allow=["math.add"])
    with pytest.raises(ActionDenied):
        guard.guarded("math.sub")(lambda: None)()
    assert guard.check("math.add").allowed
    assert os.environ["TOOLGATE_API_KEY"] not in repr(guard)
