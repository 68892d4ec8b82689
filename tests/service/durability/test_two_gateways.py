"""Two gateways on one database: neither spoils nor outdates what the other does."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import inspect
from support.counted import in_the_counts, in_the_log
from support.crowd import together
from support.databases import drop, empty_database, engine
from support.gateway import LiveGateway, Owner
from support.wire import Heard, Wire

from toolgate_service.logs.models import STATUSES

ROUNDS = [2, pytest.param(200, marks=pytest.mark.slow)]
CLIENTS = 4


@pytest.fixture
def owner(pair: tuple[LiveGateway, LiveGateway]) -> Iterator[Owner]:
    """The admin of a fresh organization, registered at the first gateway."""
    with Owner(pair[0].url) as owner:
        yield owner


def test_both_serve_one_organization(pair: tuple[LiveGateway, LiveGateway], owner: Owner) -> None:
    """Started at once, both come up, and what one writes the other shows."""
    agent = owner.agent()
    with Wire.of(owner) as first, Wire.of(owner, pair[1].url) as second:
        assert second.log(agent, "seen.by.both").status == 200
        assert [entry["agent_id"] for entry in first.entries("seen.by.both")] == [agent]
        assert second.send("GET", "/api/agents").json() == first.send("GET", "/api/agents").json()


#: opens the databases that it is told, one by one, and says how that went
RACER = """
import asyncio, sys
from toolgate_service.db.database import open_database

async def start(url):
    database = open_database(url)
    try:
        await database.start()
    finally:
        await database.close()

print("ready", flush=True)
for url in sys.stdin:
    try:
        asyncio.run(start(url.strip()))
        print("started", flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


@pytest.mark.one_process("what starts here are databases, no gateways")
@pytest.mark.parametrize("rounds", ROUNDS)
def test_first_starts_at_the_same_moment_agree_on_the_schema(rounds: int, tmp_path: Path) -> None:
    """Three processes that create one database at the same moment all succeed, round after round."""
    with ExitStack() as stack:
        racers = [stack.enter_context(_racer()) for _ in range(3)]
        assert [_line(racer) for racer in racers] == ["ready"] * 3
        for number in range(rounds):
            url = empty_database(tmp_path / str(number))
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{url}\n")
                racer.stdin.flush()
            assert [_line(racer) for racer in racers] == ["started"] * 3
            assert "organizations" in asyncio.run(_tables(url))
            drop(url)


async def _tables(url: str) -> list[str]:
    async with engine(url).connect() as connection:
        return await connection.run_sync(lambda sync: inspect(sync).get_table_names())


def _racer() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RACER]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_what_one_revokes_the_other_refuses(
    times: int, pair: tuple[LiveGateway, LiveGateway], owner: Owner
) -> None:
    """A permission deleted through either gateway is refused by the very next check at the other."""
    agent = owner.agent()
    with Wire.of(owner) as first, Wire.of(owner, pair[1].url) as second:
        for turn in range(times):
            here, there = (first, second) if turn % 2 else (second, first)
            granted = here.send("POST", f"/api/agents/{agent}/permissions", {"action": "files.delete"})
            assert granted.status == 201
            assert there.allowed(agent, "files.delete")
            assert here.send("DELETE", f"/api/permissions/{granted.json()['id']}").status == 204
            assert not there.allowed(agent, "files.delete")


def _through(
    owner: Owner, pair: tuple[LiveGateway, LiveGateway], work: Callable[[Wire], list[Heard]]
) -> list[list[Heard]]:
    """Do the same with several clients of each gateway at once."""

    def one(url: str) -> list[Heard]:
        with Wire.of(owner, url) as wire:
            return work(wire)

    urls = [gateway.url for gateway in pair] * CLIENTS
    return together(*[(lambda url=url: one(url)) for url in urls])


@pytest.mark.parametrize("many", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_one_key_sent_to_both_leaves_one_entry(
    many: int, pair: tuple[LiveGateway, LiveGateway], owner: Owner
) -> None:
    """Logs with equal keys, sent to both at once, are one entry each, and every answer is that entry's."""
    agent = owner.agent()
    heard = _through(
        owner, pair, lambda wire: [wire.log(agent, "sent.twice", key=f"key-{n}", n=n) for n in range(many)]
    )
    for number, answers in enumerate(zip(*heard, strict=True)):
        assert {answer.status for answer in answers} == {200}
        assert len({answer.raw for answer in answers}) == 1, f"key-{number} has several answers"
        replayed = [answer.headers.get("Idempotency-Replayed") for answer in answers]
        assert Counter(replayed) == {None: 1, "true": len(answers) - 1}
    with Wire.of(owner) as wire:
        counted = Counter(entry["context"]["n"] for entry in wire.entries("sent.twice"))
    assert counted == dict.fromkeys(range(many), 1)


@pytest.mark.parametrize("many", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_counts_are_those_of_the_log_whoever_wrote(
    many: int, pair: tuple[LiveGateway, LiveGateway], owner: Owner
) -> None:
    """Entries of several agents, sent to both at once, one by one and many together, some twice, some refused: the
    counts say of each agent, action and outcome what the log says."""
    agents = [owner.agent(), owner.agent()]

    def send(wire: Wire) -> list[Heard]:
        heard = []
        for n in range(many):
            agent, action = agents[n % 2], f"a.{n % 3}"
            status = STATUSES[n % len(STATUSES)]
            body = {"agent_id": agent, "action": action, "status": status}
            nobody = body | {"agent_id": "01890000-0000-7000-8000-000000000000"}
            heard += [
                wire.log(agent, action, key=f"counted-{n}"),
                wire.send_raw("POST", "/sdk/log", json.dumps(nobody).encode()),
                wire.send_raw("POST", "/sdk/logs", json.dumps({"entries": [body, nobody, body]}).encode()),
            ]
        return heard

    heard = _through(owner, pair, send)
    assert Counter(answer.status for one in heard for answer in one) == {
        200: 4 * CLIENTS * many,
        404: 2 * CLIENTS * many,
    }
    counted = in_the_counts(pair[0], owner)
    assert counted == in_the_log(pair[0], owner)
    everything = sum(count for (_, subject, _, _), count in counted.items() if subject == "all")
    # Each entry with a key was stored once, of each batch the two of a known agent; pending entries are not counted.
    counted_in_batches = sum(STATUSES[n % len(STATUSES)] != "pending" for n in range(many))
    assert everything == many + 2 * 2 * CLIENTS * counted_in_batches


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_one_approval_is_used_once_by_both(
    rounds: int, pair: tuple[LiveGateway, LiveGateway], owner: Owner
) -> None:
    """Of equal checks at both at once, one request is made; once approved, exactly one check passes."""
    for _ in range(rounds):
        # A new one each time: only so many requests of one agent may wait.
        agent = owner.agent()
        owner.permit(agent, "files.delete", requires_approval=True)

        def ask(wire: Wire, agent: str = agent) -> list[Heard]:
            return [wire.check(agent, "files.delete", n=n) for n in range(10)]

        held = _through(owner, pair, ask)
        with Wire.of(owner, pair[1].url) as admin:
            for answers in zip(*held, strict=True):
                assert [answer.status for answer in answers] == [200] * len(answers)
                approvals = {answer.json()["approval_id"] for answer in answers}
                assert len(approvals) == 1
                assert admin.send("POST", f"/api/approvals/{approvals.pop()}/approve", {}).status == 200
        for answers in zip(*_through(owner, pair, ask), strict=True):
            allowed = [answer.json()["allowed"] for answer in answers]
            assert Counter(allowed) == {True: 1, False: len(answers) - 1}
