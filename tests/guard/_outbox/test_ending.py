"""What becomes of entries when a guard is closed: sent, left in the file, or lost and told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.slow_gateway import SlowGateway
from support.waiting import until

from toolgate import Guard
from toolgate.testing import FakeGateway

Make = Callable[..., Guard]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int, str]]:
    """Level, number of entries and action of what was said of lost entries."""
    return [
        (one.levelno, one.__dict__["toolgate_entries"], one.__dict__["toolgate_action"])
        for one in caplog.records
        if one.__dict__.get("toolgate_event") == "entries_lost"
    ]


@pytest.mark.parametrize("outbox", [None, "memory"], ids=["file", "memory"])
def test_closed_while_a_tool_runs(make_guard: Make, gateway: Any, outbox: str | None) -> None:
    """The call still ends, and its entry is sent in the background."""
    guard = make_guard(outbox=outbox)
    guard.guarded("a.b")(guard.close)()
    until(lambda: gateway.taken)
    assert [entry["status"] for entry in gateway.taken] == ["success"]
    assert guard.entries_lost == 0


async def test_closed_while_a_coroutine_runs(make_guard: Make, gateway: Any) -> None:
    """As for a tool that is no coroutine."""
    guard = make_guard(outbox="memory")
    await guard.guarded("a.b")(guard.aclose)()
    until(lambda: gateway.taken)
    assert [entry["status"] for entry in gateway.taken] == ["success"]
    assert guard.entries_lost == 0


def test_closed_while_a_tool_runs_and_nobody_takes_its_entry(
    make_guard: Make, gateway: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Kept in memory it is lost, which is counted and told; the thread ends."""
    guard = make_guard(outbox="memory")
    gateway.log = [httpx.Response(503)] * 1000
    guard.guarded("a.b")(guard.close)()
    until(lambda: told(caplog))
    assert guard.entries_lost == 1
    assert told(caplog) == [(logging.ERROR, 1, "a.b")]
    until(lambda: guard._guard_state.recorder.sender()._thread is None)


def test_closed_while_a_tool_runs_it_is_left_to_the_next(make_guard: Make, gateway: Any) -> None:
    """Kept in a file it waits there, and the next guard sends it although this process lives."""
    guard = make_guard()
    gateway.log = [httpx.Response(503)] * 1000
    guard.guarded("a.b")(guard.close)()
    until(lambda: guard._guard_state.recorder.sender()._thread is None)
    assert (gateway.taken, guard.entries_lost) == ([], 0)
    gateway.log.clear()
    assert make_guard().flush()
    assert [entry["status"] for entry in gateway.taken] == ["success"]


def test_closed_with_entries_in_memory_alone(
    make_guard: Make, gateway: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be sent by then is lost: counted, and told with its number."""
    guard = make_guard(outbox="memory")
    gateway.log = [httpx.Response(503)] * 1000
    for name in ("a.b", "c.d", "e.f"):
        guard.guarded(name)(lambda: 1)()
    guard.close()
    assert guard.entries_lost == 3
    assert told(caplog) == [(logging.ERROR, 3, "e.f")]
    guard.close()
    assert guard.entries_lost == 3


def test_a_fake_gateway_leaves_no_file(own_outbox: Path) -> None:
    """Guards of tests keep their entries in memory, and none is lost."""
    gateway = FakeGateway(allow=["a.b"])
    with gateway.guard() as guard:
        guard.guarded("a.b")(lambda: 1)()
    assert [entry.action for entry in gateway.entries] == ["a.b"]
    assert guard.entries_lost == 0
    assert not own_outbox.exists()


def test_flush_knows_no_open_circuit(make_guard: Make, gateway: Any) -> None:
    """While calls are refused at once because no gateway answered, a flush tries, and finds one that does."""
    guard = make_guard(timeout=0.2)
    gateway.log = [httpx.Response(503)] * 1000
    tool = guard.guarded("a.b", fail_open=True)(lambda: 1)
    tool()
    assert not guard.flush()
    gateway.check = [httpx.ConnectError("refused")] * 1000
    tool()
    breaker = guard._guard_state._shared_breaker()
    assert breaker.is_open
    gateway.log.clear()
    assert guard.flush()
    assert breaker.is_open
    assert len(gateway.taken) == 2


def test_what_cannot_be_written_is_sent_from_memory(make_guard: Make, gateway: Any, tmp_path: Path) -> None:
    """A call that fails open runs without a file, and its entry is sent all the same: nothing is lost."""
    (tmp_path / "file").touch()
    guard = make_guard(outbox=tmp_path / "file" / "outbox")
    assert guard.guarded("a.b", fail_open=True)(lambda: 5)() == 5
    guard.flush()
    until(lambda: gateway.taken)
    assert guard.entries_lost == 0


FILLING = """
import httpx
from toolgate import Guard, OutboxFull
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
def answer(request):
    return httpx.Response(200, json=ALLOWED) if request.url.path == "/sdk/check" else httpx.Response(503)
guard = Guard("http://127.0.0.1:9", "ak_" + "a" * 37, "agent", transport=httpx.MockTransport(answer))
tool = guard.guarded("a.b")(lambda: 1)
for n in range(10):
    tool()
    print(n + 1, flush=True)
try:
    tool()
except OutboxFull as error:
    print("refused")
"""


def test_whoever_sets_up_no_logging_reads_that_it_fills(tmp_path: Path, own_outbox: Path) -> None:
    """At half and at nine tenths a line stands on standard error, long before the first call is refused."""
    env = {**os.environ, "TOOLGATE_OUTBOX_ROWS": "10", "TOOLGATE_OUTBOX_FLUSH_TIMEOUT": "0"}
    command = [sys.executable, "-W", "error", "-c", FILLING]
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.startswith("record_failed")]
    assert lines[-1] == "refused"
    half, most = (next(n for n, line in enumerate(lines) if f"{part} % full" in line) for part in (50, 90))
    assert (lines[half + 1], lines[most + 1]) == ("5", "9")
    assert f"the outbox {str(own_outbox)!r} is 50 % full: 5 log entries wait for the gateway" in lines[half]


SHORT = {
    "a function": "guarded('a.b')(lambda: 1)()",
    "a coroutine": """
@guarded("a.b")
async def tool():
    return 1
asyncio.run(tool())""",
    "a closed guard": """
with Guard() as guard:
    guard.guarded("a.b")(lambda: 1)()""",
    "two guards": """
one, other = Guard(), Guard()
one.guarded("a.b")(lambda: 1)()
other.guarded("a.b")(lambda: 1)()""",
    "a thread": """
thread = threading.Thread(target=guarded("a.b")(lambda: 1))
thread.start()
thread.join()""",
    "an exception": """
@guarded("a.b")
def tool():
    sys.exit(0)
tool()""",
}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=name, marks=() if name == "an exception" else pytest.mark.slow)
        for name, program in SHORT.items()
    ],
)
def test_a_short_process_sends_its_entries_before_it_closes_its_connections(
    slow_gateway: SlowGateway, own_outbox: Path, program: str
) -> None:
    begins = "import asyncio, logging, sys, threading\nfrom toolgate import Guard, guarded\n"
    begins += "logging.basicConfig(level=logging.DEBUG)\n"
    env = {
        **os.environ,
        "TOOLGATE_URL": f"http://127.0.0.1:{slow_gateway.server_port}",
        "TOOLGATE_API_KEY": "ak_" + "a" * 37,
        "TOOLGATE_AGENT_ID": "agent",
        "TOOLGATE_OUTBOX_FLUSH_TIMEOUT": "30",
    }
    for _ in range(4):
        slow_gateway.taken.clear()
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", begins + program],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for fault in ("ReadError", "descriptor", "record_failed", "Traceback", "ResourceWarning"):
            assert fault not in done.stderr
        assert slow_gateway.taken == ["a.b"] * (2 if "other" in program else 1)
    assert slow_gateway.broken == 0
