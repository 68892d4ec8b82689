"""A replica that freezes in the middle of a transaction: every other replica writes again within three seconds."""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest
from sqlalchemy import make_url
from support.crowd import together
from support.databases import database_url
from support.gateway import LiveGateway, Owner
from support.lines import Line, Lines
from support.waiting import until
from support.wire import Heard, Wire

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.postgresql_only("an SQLite gateway shares no server with other replicas")

#: seconds within which every other replica must write again
BAR = 3.0
#: in the statement that takes the locks of a batch of log entries
LOG_LOCK = b"log entries of"
#: what a management transaction begins with; the statement that takes the organization's lock comes next
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
#: No background job comes between: each waits for most of a minute before its first round.
QUIET = {"TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "3600", "TOOLGATE_APPROVAL_WATCH_SECONDS": "3600"}


@dataclass
class Pair:
    """Two replicas, one of which reaches the database over a line that freezes on demand."""

    near: LiveGateway
    far: LiveGateway
    line: Line

    @contextmanager
    def frozen(self, *, is_stopped: bool) -> Iterator[None]:
        """Wait until the line is frozen, stop the process too if asked for, and wake it at the end of the block."""
        assert self.far.process is not None
        until(self.line.frozen)
        try:
            if is_stopped:
                self.far.process.send_signal(signal.SIGSTOP)
            yield
        finally:
            self.far.process.send_signal(signal.SIGCONT)
            self.line.heal()


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    there = make_url(database_url(folder))
    assert there.port is not None
    with Lines() as lines:
        line = lines.to(there.port)
        here = there.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)
        near, far = (
            LiveGateway(folder, env=QUIET),
            LiveGateway(folder, env={"TOOLGATE_DATABASE_URL": here, **QUIET}),
        )
        try:
            together(near.start, far.start)
            yield Pair(near, far, line)
        finally:
            line.heal()
            near.stop()
            far.stop()


@pytest.fixture
def owners(pair: Pair) -> Iterator[tuple[Owner, Owner]]:
    with Owner(pair.near.url) as one, Owner(pair.near.url, organization="Other") as other:
        yield one, other


@contextmanager
def _in_background(work: Callable[[], Heard]) -> Iterator[Future[Heard]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def _seconds(work: Callable[[], Heard]) -> float:
    began = time.monotonic()
    answer = work()
    took = time.monotonic() - began
    assert answer.status == 200, answer.raw
    return took


@pytest.mark.parametrize(
    ("is_stopped", "further"),
    [
        pytest.param(False, 0, id="network_lost-after_lock"),
        pytest.param(False, 1, id="network_lost-after_read", marks=pytest.mark.slow),
        pytest.param(False, 2, id="network_lost-after_write", marks=pytest.mark.slow),
        pytest.param(True, 0, id="process_stopped-after_lock", marks=pytest.mark.slow),
        pytest.param(True, 1, id="process_stopped-after_read", marks=pytest.mark.slow),
        pytest.param(True, 2, id="process_stopped-after_write"),
    ],
)
def test_log_entries_of_others_go_on_while_a_replica_is_frozen(
    pair: Pair, owners: tuple[Owner, Owner], further: int, is_stopped: bool
) -> None:
    """Frozen with the organization's lock; the entry it was writing is there once if it was acknowledged, or after a
    retry."""
    one, other = owners
    agent, others_agent = one.agent(), other.agent()
    with Wire.of(one, pair.far.url) as far, Wire.of(one) as near, Wire.of(other) as others:
        for warm in range(2):
            assert far.log(agent, "warm", n=warm).status == 200
        key = {"Idempotency-Key": "frozen"}
        body = {"agent_id": agent, "action": "frozen", "status": "success"}
        pair.line.freeze(LOG_LOCK, further=further)
        with _in_background(lambda: far.send("POST", "/sdk/log", body, key)) as answer:
            with pair.frozen(is_stopped=is_stopped):
                blocked = lambda: _seconds(lambda: near.log(agent, "near"))  # noqa: E731 - timed in a thread
                free = lambda: _seconds(lambda: others.log(others_agent, "near"))  # noqa: E731 - timed in a thread
                took, of_other = together(blocked, free)
                logger.info("blocked organization %.2f s, other organization %.2f s", took, of_other)
                assert took < BAR
                assert of_other < 1
            heard = answer.result(30)
        assert heard.status in {200, 503}, heard.raw
        assert len(near.entries("frozen")) == (1 if heard.status == 200 else 0)
        assert near.send("POST", "/sdk/log", body, key).status == 200
        assert len(near.entries("frozen")) == 1
        assert far.log(agent, "awake").status == 200


@pytest.mark.parametrize(
    ("is_stopped", "further"),
    [
        pytest.param(False, 1, id="network_lost-after_lock", marks=pytest.mark.slow),
        pytest.param(False, 3, id="network_lost-after_read"),
        pytest.param(True, 1, id="process_stopped-after_lock", marks=pytest.mark.slow),
        pytest.param(True, 3, id="process_stopped-after_read", marks=pytest.mark.slow),
    ],
)
def test_held_checks_of_others_go_on_while_a_replica_is_frozen(
    pair: Pair, owners: tuple[Owner, Owner], further: int, is_stopped: bool
) -> None:
    """Frozen while it uses up an approval; the approval lets exactly one check through."""
    one, _ = owners
    agent = one.agent()
    one.permit(agent, "files.delete", requires_approval=True)
    question = {"agent_id": agent, "action": "files.delete"}
    with Wire.of(one, pair.far.url) as far, Wire.of(one) as near:
        for wire in (far, near):
            asked = wire.send("POST", "/sdk/check", question).json()["approval_id"]
        assert near.send("POST", f"/api/approvals/{asked}/approve", {}).status == 200
        pair.line.freeze(BEGIN, further=further)
        key = {"Idempotency-Key": "attempt"}
        with _in_background(lambda: far.send("POST", "/sdk/check", question, key)) as answer:
            with pair.frozen(is_stopped=is_stopped):
                began = time.monotonic()
                here = near.send("POST", "/sdk/check", question)
                took = time.monotonic() - began
                logger.info("held check %.2f s", took)
                assert here.status == 200, here.raw
                assert took < BAR
                assert _seconds(lambda: near.send("PUT", f"/api/agents/{agent}", {"name": "renamed"})) < 1
            there = answer.result(30)
        assert there.status in {200, 503}, there.raw
        through = [heard for heard in (here, there) if heard.status == 200 and heard.json()["allowed"]]
        assert len(through) == 1


def test_log_entries_of_other_organizations_do_not_wait_for_a_frozen_held_check(
    pair: Pair, owners: tuple[Owner, Owner]
) -> None:
    """The held check froze after it counted its request: it keeps a row that log entries of its organization change."""
    one, other = owners
    agent, others_agent = one.agent(), other.agent()
    one.permit(agent, "files.delete", requires_approval=True)
    with Wire.of(one, pair.far.url) as far:
        pair.line.freeze(b"INSERT INTO log_counts", further=2)
        with _in_background(lambda: far.check(agent, "files.delete")), pair.frozen(is_stopped=True):

            def timed(owner: Owner, whose: str) -> float:
                with Wire.of(owner) as wire:
                    return _seconds(lambda: wire.log(whose, "batch"))

            took = together(*[partial(timed, one, agent), partial(timed, other, others_agent)] * 6)
    assert max(took) < BAR
    assert max(took[1::2]) < 1
    with Wire.of(one) as near, Wire.of(other) as others:
        assert [len(wire.entries("batch")) for wire in (near, others)] == [6, 6]


def test_a_log_entry_waits_only_for_its_own_organization(pair: Pair, owners: tuple[Owner, Owner]) -> None:
    """Entries of a locked organization and of another one, sent in one batch, do not wait for each other."""
    one, other = owners
    agent, others_agent = one.agent(), other.agent()
    with Wire.of(one, pair.far.url) as far:
        assert far.log(agent, "warm").status == 200
        pair.line.freeze(LOG_LOCK)
        with _in_background(lambda: far.log(agent, "frozen")), pair.frozen(is_stopped=True):
            wires = [Wire.of(one) for _ in range(8)] + [Wire.of(other) for _ in range(8)]
            agents = [agent] * 8 + [others_agent] * 8

            def timed(wire: Wire, whose: str) -> float:
                with wire:
                    return _seconds(lambda: wire.log(whose, "batch"))

            took = together(
                *[
                    lambda wire=wire, whose=whose: timed(wire, whose)
                    for wire, whose in zip(wires, agents, strict=True)
                ]
            )
    assert max(took) < BAR
    assert max(took[8:]) < 1
    with Wire.of(one) as near:
        assert len(near.entries("batch")) == 8
