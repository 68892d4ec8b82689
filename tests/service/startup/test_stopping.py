"""Stopping properly: what is under way is answered, what was acknowledged stays, nothing hangs."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.crowd import meanwhile
from support.gateway import Owner
from support.homes import home, interruptible, kept
from support.serving import Serving, environment
from support.waiting import until
from support.wire import GONE, Wire

SECONDS = 10
CLIENTS = 4


__all__ = ["home", "interruptible", "kept"]


@pytest.fixture
def gateway(home: Path, kept: dict[str, str], interruptible: None) -> Iterator[Serving]:
    """A gateway of its own."""
    with Serving(home, "--plan", "enterprise", extra=kept) as gateway:
        yield gateway.listening()


def test_a_long_poll_under_way_does_not_delay_the_end(gateway: Serving) -> None:
    """On SIGTERM a request that waits for a decision is answered as still pending, and the gateway ends with 0."""
    with Owner(gateway.url) as owner, ThreadPoolExecutor(1) as pool, Wire.of(owner) as wire:
        agent = owner.agent()
        owner.permit(agent, "files.delete", requires_approval=True)
        approval = wire.check(agent, "files.delete").json()["approval_id"]
        with Wire.of(owner) as waiting:
            assert waiting.send("GET", f"/sdk/approvals/{approval}").status == 200
            poll = pool.submit(waiting.send, "GET", f"/sdk/approvals/{approval}?wait=60")
            until(lambda: _used(wire, approval) >= 2)
            assert gateway.ended_by(signal.SIGTERM, SECONDS) == 0
            # A poll that outlives the grace period is cut off without an answer.
            assert poll.result().status == 200
            assert poll.result().json()["status"] == "pending"
    assert gateway.complaint == ""


def _used(wire: Wire, approval: str) -> int:
    """Return how many looks at approvals were counted before this one: the long poll's is the second."""
    headers = wire.send("GET", f"/sdk/approvals/{approval}").headers
    return int(headers["X-RateLimit-Limit"]) - int(headers["X-RateLimit-Remaining"]) - 1


def test_stopping_amid_log_entries_loses_none(gateway: Serving, home: Path, kept: dict[str, str]) -> None:
    """On SIGTERM amid logging every answer given is a 200 whose entry is there at the next start."""
    acknowledged: list[str] = []
    with Owner(gateway.url) as owner:
        agent = owner.agent()

        def log(_: object) -> None:
            with Wire.of(owner) as wire:
                while True:
                    try:
                        answer = wire.log(agent, "amid.all")
                    except GONE:
                        return
                    assert answer.status == 200, answer.raw
                    acknowledged.append(answer.json()["id"])

        works: list[Callable[[object], None]] = [log] * CLIENTS
        with meanwhile(works):
            until(lambda: len(acknowledged) >= 50)
            assert gateway.ended_by(signal.SIGTERM, SECONDS) == 0
    assert gateway.complaint == ""
    with Serving(home, extra=kept) as again, Wire(again.listening().url, owner.key, owner.token) as wire:
        assert {entry["id"] for entry in wire.entries("amid.all")} >= set(acknowledged)


def test_an_interrupt_ends_without_a_traceback(gateway: Serving) -> None:
    """On Ctrl-C the gateway ends with 130, the shell's word for it, and nothing on standard error."""
    assert gateway.ended_by(signal.SIGINT, SECONDS) == 130
    assert gateway.complaint == ""


def test_a_stop_during_the_start_is_a_stop(home: Path, kept: dict[str, str]) -> None:
    """SIGTERM right after the start-up line, before the first request, ends the gateway as well."""
    with Serving(home, extra=kept) as gateway:
        assert gateway.listening().ended_by(signal.SIGTERM, SECONDS) == 0
        assert gateway.complaint == ""


#: a SIGTERM while the database is prepared, in a finalizer: what a handler raises there is swallowed
SWALLOWED = """
import signal, sys, weakref
from toolgate_service.server import run as server

class Thing:
    pass

before = server.prepare_database

async def prepare(settings):
    thing = Thing()
    mourner = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing
    await before(settings)

server.prepare_database = prepare
sys.argv = ["toolgate", "serve", "--port", "0"]
from toolgate_cli import main
main()
"""


@pytest.mark.slow
def test_a_signal_swallowed_while_the_gateway_begins_ends_it(home: Path, kept: dict[str, str]) -> None:
    """It ends with 0 as soon as it hears signals itself, and nobody is told that it serves."""
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED],
        env=environment(home, kept),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
