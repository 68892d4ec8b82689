"""A call that waits outlives the gateway's death, and its request outlives the death of the call's process."""

import asyncio
import http.server
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from support.gateway import LiveGateway, Owner
from support.waiting import until

from toolgate import ActionDenied, Guard

AGENT = """
import asyncio, os, sys
import toolgate
from toolgate import ApprovalPending, guarded, resume

def told(pending: ApprovalPending) -> str:
    print(pending.approval_id, flush=True)
    return "wait"

def note(charge_id: str, amount: int) -> None:
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{charge_id} {amount}\\n")

@guarded("stripe.refund", on_hold="wait" if os.environ.get("QUIET") else told)
def refund(charge_id: str, amount: int) -> None:
    note(charge_id, amount)

@guarded("stripe.refund", on_hold="wait" if os.environ.get("QUIET") else told)
async def arefund(charge_id: str, amount: int) -> None:
    note(charge_id, amount)

def act() -> None:
    if os.environ["KIND"] == "sync":
        refund("ch_1", 5)
    else:
        asyncio.run(arefund("ch_1", 5))

if os.environ.get("RESUME"):
    with resume(os.environ["RESUME"]):
        act()
else:
    act()
"""

both = pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])


class Agent:
    """An agent in a process of its own, in a `with` block."""

    def __init__(self, owner: Owner, agent_id: str, kind: str, done: Path, **more: str) -> None:
        self._env = {
            "TOOLGATE_URL": owner.url,
            "TOOLGATE_API_KEY": owner.key,
            "TOOLGATE_AGENT_ID": agent_id,
            "KIND": kind,
            "DONE": str(done),
            **more,
        }

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def approval_id(self) -> str:
        """What it says it waits for."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ended(self) -> tuple[int, str]:
        """Its exit code and the last line of what ended it, once it has ended by itself."""
        _, said = self.process.communicate(timeout=60)
        # A busy gateway may not have taken the last entries in time, which is told after that.
        lines = [line for line in said.strip().splitlines() if not line.startswith("record_failed")]
        return self.process.returncode, lines[-1] if lines else ""

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=30)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway of this test's own, to be killed."""
    with LiveGateway(tmp_path) as gateway:
        yield gateway


class Unwell:
    """Stands in the gateway's place and answers 503, until it was asked a few times about an approval."""

    def __init__(self, url: str) -> None:
        self.asked = threading.Event()
        asked, seen = self.asked, list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                if sum("/sdk/approvals/" in path for path in seen) >= 2:
                    asked.set()
                self.send_error(503)

            do_POST = do_GET  # noqa: N815 - the library looks for that name

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", urlsplit(url).port or 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def pending(owner: Owner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get("/api/approvals", params={"status": "pending"}).json()
    return found


def approve(owner: Owner, approval_id: str) -> None:
    with owner.login() as person:
        answer = person.post(f"/api/approvals/{approval_id}/approve")
        assert answer.status_code == 200, answer.text


def statuses(owner: Owner) -> list[str]:
    with owner.login() as person:
        return [each["status"] for each in person.get("/api/approvals").json()]


@both
def test_a_waiting_call_survives_a_gateway_that_is_killed(own_gateway, kind):
    """Killed, refusing connections, answering 503, back on its data: the call waits on, and runs exactly once."""
    owner = Owner(own_gateway.url)
    agent_id = owner.agent()
    owner.permit(agent_id, "math.add", requires_approval=True)
    ran: list[int] = []
    with Guard(url=own_gateway.url, api_key=owner.key, agent_id=agent_id) as guard:

        @guard.guarded("math.add", on_hold="wait", hold_timeout=120)
        def add(n: int) -> None:
            ran.append(n)

        @guard.guarded("math.add", on_hold="wait", hold_timeout=120)
        async def aadd(n: int) -> None:
            ran.append(n)

        call = threading.Thread(target=lambda: add(1) if kind == "sync" else asyncio.run(aadd(1)))
        call.start()
        # Recorded as pending: from here on it only waits.
        until(lambda: owner.entries(status="pending"))
        (asked,) = pending(owner)
        own_gateway.kill()
        unwell = Unwell(own_gateway.url)
        assert unwell.asked.wait(60)
        unwell.close()
        own_gateway.start()
        assert ran == []
        approve(owner, asked["id"])
        call.join(60)
        assert not call.is_alive()
    assert ran == [1]
    assert statuses(owner) == ["consumed"]
    owner.close()


@pytest.mark.slow
def test_hold_timeout_counts_through_an_outage(own_gateway):
    """A gateway that stays away does not prolong the wait: both calls end pending, and their requests stay."""
    owner = Owner(own_gateway.url)
    agent_id = owner.agent()
    owner.permit(agent_id, "math.add", requires_approval=True)
    ended: list[str] = []
    with Guard(url=own_gateway.url, api_key=owner.key, agent_id=agent_id) as guard:

        @guard.guarded("math.add", on_hold="wait", hold_timeout=8)
        def add(_n: int) -> None:
            ended.append("ran")

        @guard.guarded("math.add", on_hold="wait", hold_timeout=8)
        async def aadd(_n: int) -> None:
            ended.append("ran")

        def run(work: Callable[[], object]) -> None:
            try:
                work()
            except Exception as error:
                ended.append(type(error).__name__)

        works = (lambda: add(1), lambda: asyncio.run(aadd(2)))
        calls = [threading.Thread(target=run, args=(work,)) for work in works]
        for call in calls:
            call.start()
        until(lambda: len(owner.entries(status="pending")) == len(calls))
        own_gateway.kill()
        for call in calls:
            call.join(60)
            assert not call.is_alive()
        assert ended == ["ApprovalPending"] * 2
        own_gateway.start()
        assert statuses(owner) == ["pending"] * 2
    owner.close()


@both
def test_a_process_that_died_while_it_waited_is_resumed(live_gateway, owner, agent_id, kind, tmp_path):
    """Killed while it waits and approved meanwhile: a new process resumes by the id, and the tool runs exactly once."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    done = tmp_path / "done"
    with Agent(owner, agent_id, kind, done) as first:
        approval_id = first.approval_id()
        first.process.send_signal(signal.SIGKILL)
        assert first.process.wait(timeout=30) == -signal.SIGKILL
    approve(owner, approval_id)
    with Agent(owner, agent_id, kind, done, RESUME=approval_id) as second:
        assert second.ended()[0] == 0
    assert done.read_text() == "ch_1 5\n"
    assert statuses(owner) == ["consumed"]
    with Agent(owner, agent_id, kind, done, RESUME=approval_id) as third:
        code, said = third.ended()
    assert code == 1
    assert ActionDenied.__name__ in said
    assert done.read_text() == "ch_1 5\n"


@both
def test_a_process_that_died_while_it_waited_is_started_again(live_gateway, owner, agent_id, kind, tmp_path):
    """Without resuming, the same call in a new process finds the same request, waits on, and runs exactly once."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    done = tmp_path / "done"
    with Agent(owner, agent_id, kind, done) as first:
        approval_id = first.approval_id()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(timeout=30)
    with Agent(owner, agent_id, kind, done) as second:
        assert second.approval_id() == approval_id
        approve(owner, approval_id)
        assert second.ended()[0] == 0
    assert done.read_text() == "ch_1 5\n"
    assert statuses(owner) == ["consumed"]


@both
def test_a_process_that_is_interrupted_withdraws_its_request(live_gateway, owner, agent_id, kind, tmp_path):
    """Ctrl-C while it waits: the request is cancelled at the gateway, and the interruption ends the process."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    done = tmp_path / "done"
    with Agent(owner, agent_id, kind, done, QUIET="1") as agent:
        until(lambda: owner.entries(status="pending"))
        agent.process.send_signal(signal.SIGINT)
        _, said = agent.ended()
    assert said == "KeyboardInterrupt"
    assert statuses(owner) == ["cancelled"]
    assert not done.exists()


async def test_a_cancelled_task_withdraws_its_request(guard, owner, agent_id):
    """A time-out around the call cancels the request at the gateway: nobody can approve it any more."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)

    @guard.guarded("stripe.refund", on_hold="wait")
    async def refund(charge_id: str) -> None:
        pytest.fail("the tool ran")

    task = asyncio.create_task(refund("ch_1"))
    (asked,) = await asyncio.to_thread(until, lambda: pending(owner))
    # Recorded by the call: by then it knows which request is its own.
    await asyncio.to_thread(until, lambda: owner.entries(status="pending"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert statuses(owner) == ["cancelled"]
    answer = owner.http.post(f"/api/approvals/{asked['id']}/approve")
    assert answer.status_code == 409
