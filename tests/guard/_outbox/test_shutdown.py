"""Guarded calls and generators while the interpreter shuts down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.outboxes import stored
from support.slow_gateway import SlowGateway

from toolgate._outbox.store import READY

STAYS = "log entries stay in the outbox"

# `write` does not use `sys.stderr`, whose buffered text may be lost when the interpreter ends.
BEGIN = """
import asyncio, atexit, os, sys
def write(text, write_bytes=os.write): write_bytes(2, text.encode())
from toolgate import GatewayUnavailable, action, guarded
@guarded("a.b")
def call(n=0):
    return n
@guarded("a.b")
def items():
    yield 1
    yield 2
@guarded("a.b")
async def aitems():
    yield 1
    yield 2
"""


def run(program: str, gateway: SlowGateway | None, outbox: str = "", seconds: str = "30") -> str:
    """Run a program to its end; returns what it wrote to standard error."""
    port = 9 if gateway is None else gateway.server_port
    env = {
        **os.environ,
        "TOOLGATE_URL": f"http://127.0.0.1:{port}",
        "TOOLGATE_API_KEY": "ak_" + "a" * 37,
        "TOOLGATE_AGENT_ID": "agent",
        "TOOLGATE_OUTBOX_FLUSH_TIMEOUT": seconds,
    }
    if outbox:
        env["TOOLGATE_OUTBOX"] = outbox
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def ready(outbox: Path) -> int:
    """Return how many entries of an outbox wait to be sent."""
    return [state for state, _ in stored(outbox)].count(READY)


@pytest.mark.parametrize(
    "program",
    [
        "it = items(); next(it)",
        pytest.param("call(); it = items(); next(it)", marks=pytest.mark.slow),
        pytest.param("class C: pass\nc = C(); c.it = items(); next(c.it); c.c = c", marks=pytest.mark.slow),
        pytest.param("it = [items(), items()]; next(it[0])", marks=pytest.mark.slow),
        pytest.param(
            "loop = asyncio.new_event_loop(); it = aitems(); loop.run_until_complete(anext(it)); loop.close()",
            id="asynchronous",
        ),
    ],
)
def test_an_unfinished_generator_does_not_keep_the_process_from_ending(
    slow_gateway: SlowGateway, own_outbox: Path, program: str
) -> None:
    stderr = run(BEGIN + program, slow_gateway)
    assert stderr.count("\n") == 1
    assert stderr.startswith("record_failed: the interpreter is shutting down: " + STAYS)
    assert ready(own_outbox) == 1


@pytest.mark.slow
def test_a_generator_that_outlives_the_modules_does_not_keep_the_process_from_ending(
    slow_gateway: SlowGateway, own_outbox: Path
) -> None:
    """By then there is no standard error to log to."""
    run(BEGIN + "sys.kept = items(); next(sys.kept)", slow_gateway)
    assert run(BEGIN + "call()", slow_gateway) == ""
    assert slow_gateway.taken == ["a.b", "a.b"]


@pytest.mark.slow
def test_two_unfinished_generators_are_logged_by_one_line(
    slow_gateway: SlowGateway, own_outbox: Path
) -> None:
    stderr = run(BEGIN + "one, other = items(), items(); next(one); next(other)", slow_gateway)
    assert stderr.count("\n") == 1
    assert ready(own_outbox) == 2


def test_the_next_process_sends_the_entry_of_an_unfinished_generator(
    slow_gateway: SlowGateway, own_outbox: Path
) -> None:
    run(BEGIN + "it = items(); next(it)", slow_gateway)
    assert slow_gateway.taken == []
    assert run(BEGIN + "call()", slow_gateway) == ""
    assert slow_gateway.taken == ["a.b", "a.b"]
    assert ready(own_outbox) == 0


def test_an_unfinished_generator_with_an_outbox_in_memory_is_logged_as_lost(
    slow_gateway: SlowGateway,
) -> None:
    stderr = run(BEGIN + "it = items(); next(it)", slow_gateway, outbox="memory")
    assert stderr.count("\n") == 1
    assert "log entries were lost" in stderr
    assert "'a.b': the interpreter is shutting down" in stderr


@pytest.mark.parametrize("outbox", ["", "memory"], ids=["file", "memory"])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(BEGIN + "atexit.register(lambda: [call(n) for n in range(5)])", id="first-call"),
        pytest.param(
            BEGIN + "call(); atexit.register(lambda: [call(n) for n in range(4)])",
            id="before-ours",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            BEGIN + "atexit.register(lambda: [call(n) for n in range(4)]); call()",
            id="after-the-recorders",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import atexit\natexit.register(lambda: [call(n) for n in range(5)])\n" + BEGIN,
            id="after-all-of-ours",
        ),
        pytest.param(
            "import atexit\natexit.register(lambda: [call(n) for n in range(4)])\n" + BEGIN + "call()",
            id="after-all-of-ours-again",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            BEGIN
            + "@guarded('a.b')\nasync def acall(): pass\n"
            + "atexit.register(lambda: [asyncio.run(acall()) for n in range(5)])",
            id="coroutine",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_calls_of_exit_handlers_are_sent(
    slow_gateway: SlowGateway, own_outbox: Path, program: str, outbox: str
) -> None:
    assert run(program, slow_gateway, outbox) == ""
    assert slow_gateway.taken == ["a.b"] * 5
    if not outbox:
        assert ready(own_outbox) == 0


def test_calls_of_late_exit_handlers_stay_in_the_outbox_without_time_to_send_them(
    slow_gateway: SlowGateway, own_outbox: Path
) -> None:
    program = "import atexit\natexit.register(lambda: [call(n) for n in range(5)])\n" + BEGIN
    stderr = run(program, slow_gateway, seconds="0")
    assert stderr.count("\n") == 1
    assert STAYS in stderr
    assert ready(own_outbox) + len(slow_gateway.taken) == 5


@pytest.mark.parametrize("decorator", ["guarded('a.b')", "guarded('a.b', fail_open=True)"])
@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param("", id="no-call-before", marks=pytest.mark.slow),
        pytest.param("tool()", id="calls-before"),
    ],
)
def test_a_call_during_finalization_is_refused_and_does_not_run(
    slow_gateway: SlowGateway, decorator: str, earlier: str
) -> None:
    program = f"""{BEGIN}
ran = []
@{decorator}
def tool(): ran.append(1)
{earlier}
class Resource:
    def __init__(self):
        self.tool, self.ran, self.error, self.write = tool, ran, GatewayUnavailable, write
    def __del__(self):
        try:
            self.tool()
        except self.error as error:
            self.write(f"refused: {{error}}, ran {{len(self.ran)}}")
sys.kept = Resource()
"""
    stderr = run(program, slow_gateway)
    assert stderr.startswith(
        "refused: the call cannot be checked, because the Python interpreter is shutting down"
    )
    assert stderr.endswith(f"ran {len(earlier) // 6}")


def test_a_block_during_finalization_is_refused(slow_gateway: SlowGateway) -> None:
    program = f"""{BEGIN}
class Resource:
    def __init__(self):
        self.block, self.error, self.write = action("a.b"), GatewayUnavailable, write
    def __del__(self):
        try:
            with self.block:
                self.write("ran")
        except self.error:
            self.write("refused")
sys.kept = Resource()
"""
    assert run(program, slow_gateway) == "refused"
