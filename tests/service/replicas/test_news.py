"""What one gateway changes, another hears of at once, by PostgreSQL's own means; looking beneath catches the rest."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.databases import database_url
from support.inloop import Member, Running, running
from support.losing import FOR_EVER, losing_writes
from support.receiver import Receiver
from support.waiting import eventually

from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals import long_poll
from toolgate_service.console import streams
from toolgate_service.console.inbox import make_pending_event, poll_pending
from toolgate_service.console.streams import EventStreams
from toolgate_service.db import pubsub as listener
from toolgate_service.db.pubsub import CHANNEL
from toolgate_service.webhooks.events import emit_lazy

pytestmark = pytest.mark.postgresql_only("SQLite has nobody who would pass on news")

NEVER = 3600.0
#: what ends every listener's connection: the last thing each of them said
CUT = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'SELECT pg_notify($1, '''')%'
"""


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits looks again in an hour: only news can wake them."""
    for name in ("READ_INTERVAL", "NOTIFIED_READ_INTERVAL"):
        monkeypatch.setattr(long_poll, name, NEVER)
    for name in ("POLL_INTERVAL", "FALLBACK_POLL_INTERVAL", "SESSION_CHECK_INTERVAL"):
        monkeypatch.setattr(streams, name, NEVER)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Running, Running]]:
    """Two gateways on one database, which hear each other."""
    others = {"webhook_poll_seconds": 3600, "webhooks_allow_private": True, "approval_watch_seconds": 3600}
    async with running(tmp_path, **others) as one, running(tmp_path, **others) as other:
        await hearing(one)
        await hearing(other)
        yield one, other


@pytest.fixture
async def overheard(tmp_path: Path, two: tuple[Running, Running]) -> AsyncIterator[asyncpg.Connection]:
    """A connection to their database."""
    connection = await asyncpg.connect(database_url(tmp_path))
    yield connection
    await connection.close()


async def hearing(at: Running, hears: bool = True) -> None:
    """Wait until a gateway hears the others, or has stopped to."""

    async def does() -> bool:
        return at.gateway.notifier.receives_remote is hears

    await eventually(does)


async def waits(at: Running, id_: str) -> None:
    """Wait until somebody at a gateway waits for news of something."""

    async def somebody() -> bool:
        return id_ in at.gateway.notifier._waiting

    await eventually(somebody)


async def decided_elsewhere(member: Member, here: Running, there: Running, number: int = 1) -> str:
    """Return what a long poll at one gateway is answered once the other has decided."""
    approval = await member.hold(here, number)
    polling = asyncio.create_task(member.wait(there, approval))
    await waits(there, approval)
    await member.decide(here, approval)
    async with asyncio.timeout(30):
        return await polling


@pytest.mark.usefixtures("nobody_looks")
async def test_a_decision_at_one_gateway_wakes_whoever_waits_at_another(two: tuple[Running, Running]) -> None:
    """Nobody looks for it: it can only have been heard."""
    one, other = two
    member = await Member.of(one, "news@example.test")
    assert await decided_elsewhere(member, one, other) == "approved"


@pytest.mark.usefixtures("nobody_looks")
async def test_a_listener_that_was_cut_off_listens_again(
    two: tuple[Running, Running], overheard: asyncpg.Connection
) -> None:
    """Whoever waited then is woken, and has missed nothing; whoever waits afterwards hears as before."""
    one, other = two
    member = await Member.of(one, "cut@example.test")
    turns: list[bool] = []
    passed_on = other.gateway.listener._on_connection_change  # type: ignore[union-attr]  # on PostgreSQL there is one

    def turned(hears: bool) -> None:
        turns.append(hears)
        passed_on(hears)

    other.gateway.listener._on_connection_change = turned  # type: ignore[union-attr]  # as above
    approval = await member.hold(one)
    polling = asyncio.create_task(member.wait(other, approval))
    await waits(other, approval)
    # Past the gateways: nobody announces it.
    await overheard.execute("UPDATE approvals SET status = 'denied' WHERE id = $1", approval)
    assert await overheard.fetchval(CUT) == 2
    async with asyncio.timeout(30):
        assert await polling == "denied"

    async def turned_twice() -> bool:
        return turns[:2] == [False, True]

    await eventually(turned_twice)
    await hearing(one)
    assert await decided_elsewhere(member, one, other, 2) == "approved"


async def test_what_nobody_announced_is_found_by_looking(
    two: tuple[Running, Running], overheard: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News is no more than quicker: a decision that was missed is seen by the next look."""
    monkeypatch.setattr(long_poll, "NOTIFIED_READ_INTERVAL", 0.1)
    one, other = two
    member = await Member.of(one, "missed@example.test")
    approval = await member.hold(one)
    polling = asyncio.create_task(member.wait(other, approval))
    await waits(other, approval)
    await overheard.execute("UPDATE approvals SET status = 'denied' WHERE id = $1", approval)
    async with asyncio.timeout(30):
        assert await polling == "denied"


async def test_a_listener_that_hears_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler that gives each transaction another connection: whoever waits goes on looking every second."""

    async def deaf(*_: object) -> None:
        return None

    monkeypatch.setattr(asyncpg.Connection, "add_listener", deaf)
    monkeypatch.setattr(listener, "ECHO", 0.1)
    async with running(tmp_path) as one:

        async def told_so() -> bool:
            return "notifications from other gateways do not arrive (TimeoutError)" in caplog.text

        await eventually(told_so)
        assert not one.gateway.notifier.receives_remote
        # Again and again, but it is said once.
        assert caplog.text.count("do not arrive") == 1


async def test_only_what_is_committed_is_announced_and_nothing_of_its_content(
    two: tuple[Running, Running], overheard: asyncpg.Connection
) -> None:
    """A request that begins to wait, a vote, a decision; no use of an approval, nothing that was rolled back."""
    one, _ = two
    heard: list[str] = []
    ended = asyncio.Event()

    def hear(*notice: Any) -> None:
        if notice[-1] == "the end":
            ended.set()
        else:
            heard.append(notice[-1])

    await overheard.add_listener(CHANNEL, hear)
    member = await Member.of(one, "said@example.test")
    approval = await member.hold(one)
    with losing_writes(one.gateway.settings.database_url, "approval_votes", FOR_EVER, at_commit=True):
        lost = await one.http.post(f"/api/approvals/{approval}/deny", headers=member.headers)
        assert lost.status_code == 503
    await member.decide(one, approval)
    allowed = {"agent_id": member.agent, "action": "held", "context": {"n": 1}}
    assert (await one.http.post("/sdk/check", json=allowed, headers=member.headers)).json()["allowed"]
    await overheard.execute(f"NOTIFY {CHANNEL}, 'the end'")
    async with asyncio.timeout(30):
        await ended.wait()
    # The vote and the decision that it makes are one transaction, and one word.
    assert heard == [f"approval {member.organization} {approval}"] * 2


@pytest.mark.usefixtures("nobody_looks")
async def test_an_open_inbox_hears_of_what_another_gateway_holds(two: tuple[Running, Running]) -> None:
    """A page looks when it is told that something has begun to wait, or waits no more."""
    one, other = two
    member = await Member.of(one, "page@example.test")
    caller = Caller(member.user, member.organization, "", 1, "admin", "full", "enterprise", True, None)
    news = EventStreams(other.gateway).subscribe(
        caller, "production", poll_pending, make_pending_event, announced=True
    )

    async def until(count: int) -> None:
        async with asyncio.timeout(30):
            async for event in news:
                if f'"count":{count},'.encode() in event:
                    return

    await until(0)
    approval = await member.hold(one)
    await until(1)
    await member.decide(one, approval, "deny")
    await until(0)
    await news.aclose()


async def test_an_event_that_nobody_delivers_is_delivered_by_whoever_hears_of_it(
    two: tuple[Running, Running],
) -> None:
    """The gateway that wrote it down may be busy, or gone: no other looks for an hour, and yet it is delivered."""
    one, _ = two
    member = await Member.of(one, "event@example.test")
    with Receiver() as receiver:
        body = {"url": receiver.url, "events": ["agent.created"]}
        assert (await one.http.post("/api/webhooks", json=body, headers=member.headers)).status_code == 201
        # It wakes nobody in its own process.
        one.gateway.database.info["toolgate.wake"] = lambda: None

        async def shown() -> list[dict[str, Any]]:
            return [{"id": "x"}]

        async with one.gateway.database.writing() as session:
            await emit_lazy(session, member.organization, "production", "agent.created", shown)
        [got] = await asyncio.to_thread(receiver.wait, 1, anything)
        assert got.event["data"]["agent"] == {"id": "x"}


def anything(_got: object) -> bool:
    """Take whatever comes."""
    return True
