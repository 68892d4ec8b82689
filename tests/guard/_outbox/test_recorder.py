"""What recording means for the call: refused before, never disturbed after."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.outboxes import outbox_file, stored
from support.waiting import eventually, until

from toolgate import ActionDenied, ConfigurationError, Guard, GuardError, OutboxFull
from toolgate._call import new_entry
from toolgate._models import Intent
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.recorder import Handover

KEY = "ak_" + "k3y" * 12 + "z"
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
NAMED = {"X-Toolgate-Organization": "org-1", "X-Toolgate-Environment": "production"}

Call = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["function", "coroutine", "block", "async block"])
def call(request: pytest.FixtureRequest) -> Call:
    """Runs a body guarded in one of four ways."""

    async def run(guard: Guard, body: Callable[[], Any], **options: Any) -> Any:
        if request.param == "function":
            return guard.guarded("a.b", **options)(body)()
        if request.param == "block":
            with guard.action("a.b", **options):
                return body()
        if request.param == "async block":
            async with guard.action("a.b", **options):
                return body()

        @guard.guarded("a.b", **options)
        async def tool() -> Any:
            return body()

        return await tool()

    return run


def test_entries_are_told_apart() -> None:
    """Each entry has its own key of 128 random bits and the time it happened, in UTC."""
    one, other = (new_entry(action="a.b", agent_id="agent-1", status="success", context={}) for _ in range(2))
    assert len(bytes.fromhex(one.key)) == 16
    assert one.key != other.key
    assert str(one.body["occurred_at"]).endswith("Z")


async def test_the_intent_is_on_disk_while_the_tool_runs(
    call: Call, make_guard: Any, own_outbox: Path, gateway: Any
) -> None:
    """When the tool begins the file says that it may have happened; afterwards one entry says what did."""
    seen: list[tuple[int, str]] = []
    guard = make_guard()
    await call(guard, lambda: seen.extend(stored(own_outbox)))
    [(state, body)] = seen
    assert state == 0
    assert '"status":"pending"' in body
    assert '"outcome":"unknown"' in body
    [entry] = gateway.logs
    assert entry["status"] == "success"
    assert "outcome" not in entry["context"]
    assert stored(own_outbox) == []


async def test_a_full_outbox_refuses_before_the_tool(
    call: Call, make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the bound the tool does not run, the gateway is not even asked, and the error says what to do."""
    monkeypatch.setenv("TOOLGATE_OUTBOX_ROWS", "2")
    gateway.log = [httpx.Response(503)] * 1000
    guard, ran = make_guard(), list[int]()
    for _ in range(2):
        await call(guard, lambda: ran.append(1))
    for _ in range(3):
        with pytest.raises(OutboxFull, match="TOOLGATE_OUTBOX_ROWS") as refused:
            await call(guard, lambda: ran.append(1))
        assert refused.value.action == "a.b"
        assert "2 log entries wait" in refused.value.reason
    assert (len(ran), len(gateway.checks)) == (2, 3)
    gateway.log.clear()
    assert guard.flush()
    await call(guard, lambda: ran.append(1))
    assert len(ran) == 3
    assert guard.entries_lost == 0


async def test_what_fails_open_runs_and_is_counted(
    call: Call,
    make_guard: Any,
    gateway: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that fails open runs with a full outbox; each entry it loses is counted, and told ever more seldom."""
    monkeypatch.setenv("TOOLGATE_OUTBOX_ROWS", "2")
    gateway.log = [httpx.Response(503)] * 1000
    guard, ran = make_guard(), list[int]()
    for _ in range(12):
        await call(guard, lambda: ran.append(1), fail_open=True)
    assert (len(ran), guard.entries_lost) == (12, 10)
    told = [each for each in caplog.records if each.__dict__.get("toolgate_event") == "entries_lost"]
    assert [each.__dict__["toolgate_entries"] for each in told] == [1, 2, 4, 8]
    assert {each.levelno for each in told} == {logging.ERROR}


async def test_an_outbox_that_cannot_be_written_refuses(
    call: Call, make_guard: Any, gateway: Any, tmp_path: Path
) -> None:
    """A place of which nothing can be made is found before the gateway is asked."""
    (tmp_path / "file").touch()
    guard = make_guard(outbox=tmp_path / "file" / "outbox")
    with pytest.raises(OutboxFull, match="set TOOLGATE_OUTBOX"):
        await call(guard, lambda: pytest.fail("the tool ran"))
    assert gateway.requests == []


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_once_it_ran_nothing_changes_its_end(
    call: Call, make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """However the outbox breaks while the tool runs, its value or its very exception comes out, and its entry later."""
    guard, error = make_guard(), LookupError("as it happens")
    broken, running = [True], list[bool]()
    opened = Outbox._opened

    def failing(outbox: Outbox) -> sqlite3.Connection:
        if broken[0] and running:
            raise sqlite3.OperationalError("disk I/O error")
        return opened(outbox)

    monkeypatch.setattr(Outbox, "_opened", failing)

    def body() -> int:
        running.append(True)
        if ends == "raises":
            raise error
        return 5

    if ends == "raises":
        with pytest.raises(LookupError) as raised:
            await call(guard, body)
        assert raised.value is error
    else:
        assert await call(guard, body) == 5
    broken[0] = False
    [entry] = gateway.logs
    assert entry["status"] == ("failed" if ends == "raises" else "success")
    assert guard.entries_lost == 0


async def test_another_process_that_writes_is_waited_for(
    call: Call, make_guard: Any, own_outbox: Path, gateway: Any
) -> None:
    """While somebody else holds the file the tool waits its turn, and an event loop goes on meanwhile."""
    guard, ran = make_guard(), list[int]()
    await call(guard, lambda: None)
    with closing(
        sqlite3.connect(outbox_file(own_outbox), isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        checked = len(gateway.checks)

        def let_go() -> None:
            until(lambda: len(gateway.checks) > checked)
            assert ran == []
            other.execute("ROLLBACK")

        thread = threading.Thread(target=let_go)
        thread.start()
        await call(guard, lambda: ran.append(1))
        thread.join()
    assert ran == [1]


async def test_a_file_that_stays_locked_refuses(make_guard: Any, own_outbox: Path) -> None:
    """Within the guard's time-out, and no tool runs."""
    guard = make_guard(timeout=0.2)
    tool = guard.guarded("a.b")(lambda: pytest.fail("the tool ran"))
    guard.guarded("a.b")(lambda: None)()
    with closing(sqlite3.connect(outbox_file(own_outbox), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutboxFull, match="keeps the outbox locked"):
            tool()


async def test_a_blocked_call_is_recorded_in_the_background(
    call: Call, make_guard: Any, gateway: Any
) -> None:
    """A refusal is one entry, written at once."""
    gateway.check = [BLOCKED]
    guard = make_guard()
    with pytest.raises(ActionDenied):
        await call(guard, lambda: pytest.fail("the tool ran"))
    assert [each["status"] for each in gateway.logs] == ["denied"]


@pytest.mark.parametrize(
    "headers", [{}, NAMED], ids=["an older gateway", "a gateway that names whose the key is"]
)
def test_the_next_guard_sends_what_was_left(make_guard: Any, gateway: Any, headers: dict[str, str]) -> None:
    """What a guard could not deliver before it was closed goes out with the next one of the same key."""
    gateway.headers = headers
    gateway.log = [httpx.Response(503)] * 1000
    with make_guard() as first:
        first.guarded("a.b")(lambda: 1)()
    assert gateway.taken == []
    gateway.log.clear()
    assert make_guard().flush()
    assert len(gateway.taken) == 1


def test_a_gateway_of_the_specification_alone(make_guard: Any) -> None:
    """Where `/sdk/logs` is not known entries go out one by one, each with its key."""
    keys: list[str] = []

    def old(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/sdk/log":
            keys.append(request.headers["Idempotency-Key"])
            return httpx.Response(200, json={"id": "log-1"})
        if request.url.path == "/sdk/logs":
            return httpx.Response(404, json={"detail": "Not Found"})
        allowed = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
        return httpx.Response(200, json=allowed)

    guard = make_guard(transport=httpx.MockTransport(old))
    for _ in range(3):
        guard.guarded("a.b")(lambda: 1)()
    assert guard.flush()
    assert len(set(keys)) == len(keys) == 3


def test_loops_come_and_go(make_guard: Any, gateway: Any) -> None:
    """Repeated `asyncio.run` on one guard loses nothing."""
    guard = make_guard()

    @guard.guarded("a.b")
    async def tool() -> int:
        await asyncio.sleep(0)
        return 1

    async def many() -> list[int]:
        return await asyncio.gather(*(tool() for _ in range(10)))

    for _ in range(5):
        assert asyncio.run(many()) == [1] * 10
    assert len(gateway.logs) == 50


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [2_000, 200_000])
def test_memory_is_flat_while_nothing_is_taken(
    make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch, cycles: int
) -> None:
    """With the gateway down and the outbox at its bound, calls that fail open leave nothing behind in memory."""
    import gc
    import tracemalloc

    monkeypatch.setenv("TOOLGATE_OUTBOX_ROWS", "100")
    # The test's own gateway remembers what it was asked.
    down = httpx.MockTransport(lambda request: (_ for _ in ()).throw(httpx.ConnectError("refused")))
    guard = make_guard(transport=down, timeout=0.01)
    open_tool = guard.guarded("a.b", fail_open=True)(lambda n: n)
    closed_tool = guard.guarded("a.b")(lambda n: pytest.fail("the tool ran"))
    logging.getLogger("toolgate").setLevel(logging.CRITICAL)
    try:
        for n in range(500):
            assert open_tool(n) == n
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        for n in range(cycles):
            assert open_tool(n) == n
        gc.collect()
        after = tracemalloc.take_snapshot()
        tracemalloc.stop()
    finally:
        logging.getLogger("toolgate").setLevel(logging.NOTSET)
    grown = sum(each.size_diff for each in after.compare_to(before, "filename"))
    assert grown < 256 * 1024
    assert guard.entries_lost == 500 + cycles - 100
    with pytest.raises(OutboxFull):
        closed_tool(1)


FORKING = """
import os, sys, httpx, json
from toolgate import Guard
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
def answer(request):
    if request.url.path == "/sdk/check":
        return httpx.Response(200, json=ALLOWED)
    many = json.loads(request.content)["entries"]
    for each in many:
        os.write(1, (each["idempotency_key"] + " " + each["status"] + "\\n").encode())
    return httpx.Response(200, json={"results": [{"status": 200} for _ in many]})
guard = Guard("http://127.0.0.1:9", "ak_" + "a" * 37, "agent", transport=httpx.MockTransport(answer))
child = guard.guarded("a.b")(lambda: os.fork())()
assert guard.flush(20)
if child:
    assert os.waitpid(child, 0)[1] == 0
guard.close()
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_tool_that_forks(tmp_path: Path) -> None:
    """Parent and child both come out of the tool, and each has an entry of its own key."""
    command = [sys.executable, "-W", "error", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    sent = [line.split() for line in done.stdout.splitlines()]
    assert [status for _, status in sent] == ["success", "success"]
    assert len({key for key, _ in sent}) == 2


ENDING = """
import os, sys, httpx
from toolgate import Guard, configure, guarded
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
def answer(request):
    if request.url.path == "/sdk/check":
        return httpx.Response(200, json=ALLOWED)
    if sys.argv[2] == "down":
        raise httpx.ConnectError("refused")
    import json
    many = json.loads(request.content)["entries"]
    os.write(1, b"sent\\n" * len(many))
    return httpx.Response(200, json={"results": [{"status": 200} for _ in many]})
transport = httpx.MockTransport(answer)
key = "ak_" + "a" * 37
if sys.argv[1] == "default":
    configure("http://127.0.0.1:9", key, "agent", transport=transport)
    tool = guarded("a.b")(lambda: 1)
else:
    guard = Guard("http://127.0.0.1:9", key, "agent", transport=transport)
    tool = guard.guarded("a.b")(lambda: 1)
for _ in range(3):
    tool()
"""


@pytest.mark.parametrize(
    ("which", "gateway_is"),
    [
        ("default", "up"),
        pytest.param("default", "down", marks=pytest.mark.slow),
        pytest.param("own", "up", marks=pytest.mark.slow),
        ("own", "down"),
    ],
)
def test_the_end_of_the_process(tmp_path: Path, own_outbox: Path, which: str, gateway_is: str) -> None:
    """What waits is sent when the interpreter ends, closed or not; what cannot be stays for the next process."""
    command = [sys.executable, "-W", "error", "-c", ENDING, which, gateway_is]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sent") == (3 if gateway_is == "up" else 0)
    assert [state for state, _ in stored(own_outbox)] == ([] if gateway_is == "up" else [1, 1, 1])


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("SYNC", "sometimes", "'normal', or 'full'"),
        ("ROWS", "0", "whole number above 0"),
        ("ROWS", "many", "whole number above 0"),
        ("BYTES", "-5", "whole number above 0"),
        ("EXIT", "never", "seconds from 0"),
        ("EXIT", "nan", "seconds from 0"),
    ],
)
def test_wrong_settings(
    make_guard: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, cure: str
) -> None:
    """A setting that is wrong is named with the cure when the guard is made."""
    monkeypatch.setenv(f"TOOLGATE_OUTBOX_{name}", value)
    with pytest.raises(ConfigurationError, match=cure) as wrong:
        make_guard()
    assert f"TOOLGATE_OUTBOX_{name} is {value!r}" in str(wrong.value)


@pytest.mark.parametrize("odd", [5, b"x", ["outbox.db"]], ids=repr)
def test_an_outbox_that_is_no_path(make_guard: Any, odd: Any) -> None:
    """What is neither a path nor the word is refused."""
    with pytest.raises(ConfigurationError, match="'memory'"):
        make_guard(outbox=odd)


@pytest.mark.parametrize("sync", ["normal", "full"])
async def test_power_loss_is_a_setting(
    call: Call, make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    """`TOOLGATE_OUTBOX_SYNC=full` has SQLite wait for the disk; calls do the same as ever."""
    monkeypatch.setenv("TOOLGATE_OUTBOX_SYNC", sync)
    guard = make_guard()
    assert await call(guard, lambda: 3) == 3
    outbox = guard._guard_state.recorder.sender().outbox
    [(level,)] = outbox._do(lambda db: db.execute("PRAGMA synchronous").fetchall())
    assert level == {"normal": 1, "full": 2}[sync]
    assert len(gateway.logs) == 1


async def test_cancelled_while_the_disk_is_waited_for(
    make_guard: Any, gateway: Any, own_outbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before its tool began leaves no intent of it."""
    monkeypatch.setenv("TOOLGATE_OUTBOX_SYNC", "full")
    guard = make_guard()

    @guard.guarded("a.b")
    async def tool(run: bool) -> None:
        assert run

    await tool(run=True)
    assert await guard.aflush()
    with closing(sqlite3.connect(outbox_file(own_outbox), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(tool(run=False))
        await eventually(lambda: _is(len(gateway.checks) == 2))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.execute("ROLLBACK")
    # Whatever the thread wrote in the end is struck out when it has.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert await guard.aflush()
    assert stored(own_outbox) == []
    assert [each["status"] for each in gateway.logs] == ["success"]


def test_an_intent_nobody_takes_is_struck_out() -> None:
    """Given up before or after it was written: struck out once; taken: not at all."""
    struck = list[Intent]()
    intent = Intent(1, "key", 1)
    assert Handover(struck.append).hand_over(intent) is intent
    assert struck == []
    for steps in (("hand_over", "cancel"), ("cancel", "hand_over")):
        handover = Handover(struck.append)
        for step in steps:
            handover.cancel() if step == "cancel" else handover.hand_over(intent)
    assert struck == [intent, intent]
    Handover(struck.append).hand_over(None)
    assert len(struck) == 2


def test_striking_out_is_tried_until_it_is_done(make_guard: Any, gateway: Any, own_outbox: Path) -> None:
    """While another process writes, the intent of a call that did not run is remembered, and goes in the end."""
    guard = make_guard()
    guard.guarded("a.b")(lambda: None)()
    assert guard.flush()
    recorder = guard._guard_state.recorder
    entry = new_entry(action="a.b", agent_id="agent-1", status="pending", context={})
    intent = recorder.intend(entry, may_be_lost=False)
    with closing(sqlite3.connect(outbox_file(own_outbox), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.sender().forget(intent)
        assert len(stored(own_outbox)) == 1
        other.execute("ROLLBACK")
    assert guard.flush()
    assert stored(own_outbox) == []


async def _is(value: bool) -> bool:
    return value


async def test_in_memory_nothing_is_left(call: Call, make_guard: Any, gateway: Any, own_outbox: Path) -> None:
    """`outbox="memory"` delivers as ever and makes no file."""
    guard = make_guard(outbox="memory")
    assert await call(guard, lambda: 3) == 3
    assert len(gateway.logs) == 1
    assert not own_outbox.parent.exists()


def test_the_error_is_one_of_ours() -> None:
    """Whoever catches GuardError catches a full outbox too."""
    assert issubclass(OutboxFull, GuardError)
