"""Several workers act as one gateway, and a worker that dies is replaced."""

import os
import re
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from support.crowd import meanwhile, together
from support.gateway import LiveGateway, Owner
from support.serving import Serving, run_serve
from support.waiting import until
from support.wire import GONE, Heard, Wire
from support.workers import held, one_to_each, workers_of

SECONDS = 20
MANY = [10, pytest.param(200, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with two workers."""
    env = {"TOOLGATE_WORKERS": "2", "TOOLGATE_PENDING_PER_AGENT": "1000"}
    with LiveGateway(tmp_path_factory.mktemp("workers"), env=env) as gateway:
        yield gateway


@pytest.fixture
def owner(gateway: LiveGateway) -> Iterator[Owner]:
    """The admin of a fresh organization."""
    with Owner(gateway.url) as owner:
        yield owner


@pytest.fixture
def each(gateway: LiveGateway, owner: Owner) -> Iterator[list[Wire]]:
    """Eight clients, four of each worker."""
    assert gateway.process is not None
    with ExitStack() as stack:
        pid = gateway.process.pid
        yield [
            stack.enter_context(wire) for _ in range(4) for wire in one_to_each(pid, lambda: Wire.of(owner))
        ]


@pytest.mark.parametrize("times", MANY)
def test_what_one_worker_revokes_the_other_refuses(owner: Owner, each: list[Wire], times: int) -> None:
    """A permission deleted at either worker is refused by the very next check at the other."""
    agent = owner.agent()
    for turn in range(times):
        here, there = (each[0], each[1]) if turn % 2 else (each[1], each[0])
        granted = here.send("POST", f"/api/agents/{agent}/permissions", {"action": "files.delete"})
        assert granted.status == 201
        assert there.allowed(agent, "files.delete")
        assert here.send("DELETE", f"/api/permissions/{granted.json()['id']}").status == 204
        assert not there.allowed(agent, "files.delete")


@pytest.mark.parametrize("many", MANY)
def test_one_key_at_both_workers_leaves_one_entry(owner: Owner, each: list[Wire], many: int) -> None:
    """Logs with equal keys, sent to both workers at once, are one entry each, and every answer is that entry's."""
    agent = owner.agent()
    heard = _through(
        each, lambda wire: [wire.log(agent, "sent.twice", key=f"key-{n}", n=n) for n in range(many)]
    )
    for answers in zip(*heard, strict=True):
        assert {answer.status for answer in answers} == {200}
        assert len({answer.raw for answer in answers}) == 1
    counted = Counter(entry["context"]["n"] for entry in each[0].entries("sent.twice"))
    assert counted == dict.fromkeys(range(many), 1)


@pytest.mark.parametrize("many", MANY)
def test_an_approval_is_used_once_by_both_workers(owner: Owner, each: list[Wire], many: int) -> None:
    """Of equal checks at both workers one request is made; once approved, exactly one check passes."""
    agent = owner.agent()
    owner.permit(agent, "files.delete", requires_approval=True)

    def ask(wire: Wire) -> list[Heard]:
        return [wire.check(agent, "files.delete", n=n) for n in range(many)]

    for answers in zip(*_through(each, ask), strict=True):
        approvals = {answer.json()["approval_id"] for answer in answers}
        assert len(approvals) == 1
        assert each[0].send("POST", f"/api/approvals/{approvals.pop()}/approve", {}).status == 200
    for answers in zip(*_through(each, ask), strict=True):
        allowed = [answer.json()["allowed"] for answer in answers]
        assert Counter(allowed) == {True: 1, False: len(answers) - 1}


def _through(wires: list[Wire], work: Callable[[Wire], list[Heard]]) -> list[list[Heard]]:
    return together(*[(lambda wire=wire: work(wire)) for wire in wires])


def test_a_decision_at_one_worker_wakes_who_waits_at_the_other(owner: Owner, each: list[Wire]) -> None:
    """A long poll ends with the decision, whichever worker took it."""
    agent = owner.agent()
    owner.permit(agent, "files.delete", requires_approval=True)
    approval = each[0].check(agent, "files.delete").json()["approval_id"]
    decided, polled = together(
        lambda: each[0].send("POST", f"/api/approvals/{approval}/approve", {}),
        lambda: each[1].send("GET", f"/sdk/approvals/{approval}?wait={SECONDS}"),
    )
    assert (decided.status, polled.status) == (200, 200)
    assert polled.json()["status"] == "approved"


@pytest.mark.slow
def test_a_minute_is_counted_by_both_workers_together(tmp_path: Path) -> None:
    """On the free plan a hundred requests pass, however they are spread."""
    env = {"TOOLGATE_WORKERS": "2"}
    with LiveGateway(tmp_path, plan="free", env=env) as gateway:
        assert gateway.process is not None
        for _ in range(3):
            with Owner(gateway.url) as owner, ExitStack() as stack:
                wires = [
                    stack.enter_context(wire)
                    for wire in one_to_each(gateway.process.pid, lambda owner=owner: Wire.of(owner))
                ]
                heard = _through(wires, lambda wire: [wire.check("x", "a") for _ in range(100)])
            answers = [answer for one in heard for answer in one]
            if len({answer.headers["X-RateLimit-Reset"] for answer in answers}) == 1:
                break
        else:
            raise AssertionError("a minute turned during every attempt")
        assert Counter(answer.status for answer in answers) == {200: 100, 429: 100}


@pytest.fixture
def serving(home: Path, kept: dict[str, str]) -> Iterator[Serving]:
    """A gateway with two workers that a test may end."""
    extra = kept | {"TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0"}
    with Serving(home, "--workers", "2", "--plan", "enterprise", extra=extra) as serving:
        yield serving.listening()


def test_killed_worker_is_replaced(serving: Serving) -> None:
    """The log names both workers, the other one responds meanwhile, and no acknowledged entry is lost."""
    assert re.search(r"^  workers +2$", serving.summary, re.MULTILINE)
    metrics = re.findall(r"http://[^\s,]+/metrics", serving.summary)
    before = workers_of(serving.process.pid)
    acknowledged: list[str] = []
    with Owner(serving.url) as owner:
        agent = owner.agent()

        def log(enough: object) -> None:
            while not enough.is_set():  # type: ignore[attr-defined]  # an event
                try:
                    with Wire.of(owner) as wire:
                        answer = wire.log(agent, "amid.all")
                except GONE:
                    # The connection was the killed worker's; the next one is the other's.
                    continue
                assert answer.status == 200, answer.raw
                acknowledged.append(answer.json()["id"])

        with meanwhile([log] * 4):
            until(lambda: len(acknowledged) > 20)
            os.kill(before[0], signal.SIGKILL)
            until(lambda: f"worker {before[0]} ended with exit code -9; " in serving.complaint)
            until(lambda: _serves(metrics) == 2)
        assert before[0] not in workers_of(serving.process.pid)
        # Only the new worker is left to respond.
        os.kill(before[1], signal.SIGKILL)
        with Wire.of(owner) as wire:
            assert wire.log(agent, "amid.all").status == 200
            assert {entry["id"] for entry in wire.entries("amid.all")} >= set(acknowledged)
    until(lambda: _serves(metrics) == 2)
    assert serving.ended_by(signal.SIGTERM, SECONDS) == 0


@pytest.mark.slow
def test_metrics_port_of_a_killed_worker_stays_taken(serving: Serving) -> None:
    """No other process can take the port before the new worker listens on it."""
    metrics = re.findall(r"http://[^\s,]+/metrics", serving.summary)
    assert len(set(metrics)) == 2
    (killed, _) = workers_of(serving.process.pid)
    # While the supervisor stands still, nothing replaces the worker.
    with held(serving.process.pid):
        os.kill(killed, signal.SIGKILL)
        until(lambda: not _lives(killed))
        for url in metrics:
            with socket.socket() as other:
                # Without this option the port would also be in use by connections that have ended.
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="Address already in use"):
                    other.bind(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])))
    until(lambda: _serves(metrics) == 2)


def _serves(metrics: list[str]) -> int:
    """Return how many of the workers serve their metrics."""
    statuses = []
    for url in metrics:
        with suppress(httpx.TransportError):
            statuses.append(httpx.get(url, timeout=30).status_code)
    return statuses.count(200)


@pytest.mark.slow
def test_worker_that_cannot_be_started_is_tried_again(serving: Serving) -> None:
    """When the machine has no resources for a new worker, the log says so, and the other one still responds."""
    parent = serving.process.pid
    before = workers_of(parent)
    former = resource.prlimit(parent, resource.RLIMIT_NOFILE)
    resource.prlimit(parent, resource.RLIMIT_NOFILE, (3, former[1]))
    os.kill(before[0], signal.SIGKILL)
    until(lambda: "cannot start a worker: Too many open files; the gateway tries again" in serving.complaint)
    assert workers_of(parent) == [before[1]]
    assert httpx.get(f"{serving.url}/health", timeout=30).status_code == 200
    resource.prlimit(parent, resource.RLIMIT_NOFILE, former)
    until(lambda: len(workers_of(parent)) == 2)


@pytest.mark.slow
def test_worker_that_cannot_start_ends_the_start(home: Path, kept: dict[str, str]) -> None:
    """The worker logs the reason in one line, and the gateway ends."""
    address = f"sqlite:///{home}/gateway.db"
    (home / "gateway.db.rates").mkdir()
    ended = run_serve(home, "--workers", "2", extra=kept | {"TOOLGATE_DATABASE_URL": address})
    assert (ended.returncode, ended.stdout) == (1, "")
    lines = ended.stderr.splitlines()
    assert lines[-1] == "toolgate: a worker could not start; the reason is in the log lines above"
    assert any("a worker cannot start: " in line and "gateway.db.rates" in line for line in lines)
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("how", "code", "to_all"),
    [
        (signal.SIGTERM, 0, False),
        pytest.param(signal.SIGTERM, 0, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, True, marks=pytest.mark.slow),
    ],
)
def test_signal_ends_all_workers(
    home: Path, kept: dict[str, str], how: signal.Signals, code: int, to_all: bool
) -> None:
    """Also if all processes get it, as from a terminal or a service manager."""
    with Serving(home, "--workers", "2", extra=kept) as serving:
        workers = workers_of(serving.listening().process.pid)
        assert len(workers) == 2
        if to_all:
            for worker in workers:
                os.kill(worker, how)
        assert serving.ended_by(how, SECONDS) == code
        assert serving.complaint == ""
        assert not [worker for worker in workers if _lives(worker)]


@pytest.mark.slow
def test_service_manager_does_not_cut_the_drain_of_a_worker(home: Path, kept: dict[str, str]) -> None:
    """SIGTERM from the service manager and from the supervisor is one SIGTERM."""
    extra = kept | {"TOOLGATE_DRAIN_SECONDS": "3"}
    with Serving(home, "--workers", "2", extra=extra) as serving:
        workers = workers_of(serving.listening().process.pid)
        for process in (*workers, serving.process.pid):
            os.kill(process, signal.SIGTERM)
        begin = time.monotonic()
        assert serving.process.wait(SECONDS) == 0
        assert time.monotonic() - begin > 2
        assert serving.complaint == ""


def test_workers_end_with_their_parent(serving: Serving) -> None:
    """When the parent is killed -9 the port is free again."""
    workers = workers_of(serving.process.pid)
    assert len(workers) == 2
    serving.process.kill()
    until(lambda: not [worker for worker in workers if _lives(worker)])


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
