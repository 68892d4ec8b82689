"""Whose a round of the upkeep is: one gateway's at a time, and nobody's for long who has died."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.databases import database_url
from support.waiting import eventually

from toolgate_service.api import metrics
from toolgate_service.api.metrics import read_backlog
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, open_database
from toolgate_service.jobs.scheduler import Rounds, Scheduler, claim, release, renew

NAMES = ALIVE, OTHER, THIRD = new_id(), new_id(), new_id()
SELDOM = Rounds(every=timedelta(hours=1), lease=timedelta(minutes=1))
BRIEFLY = Rounds(every=timedelta(hours=1), lease=timedelta(seconds=0.2))


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[Database]]:
    """A database as three gateways see it."""
    databases = [open_database(database_url(tmp_path)) for _ in range(3)]
    for database in databases:
        await database.start()
    yield databases
    for database in databases:
        await database.close()


async def claims(three: list[Database], rounds: Rounds = SELDOM) -> list[str]:
    """Return who begins a round, of three that try at the same moment."""
    begun = await asyncio.gather(
        *(claim(database, name, rounds) for database, name in zip(three, NAMES, strict=True))
    )
    return [name for name, begins in zip(NAMES, begun, strict=True) if begins]


async def test_of_three_one_begins_a_round_and_the_next_is_not_due_yet(three: list[Database]) -> None:
    """While it lasts nobody else begins one, nor afterwards until its time has come."""
    [holder] = await claims(three)
    others = [database for name, database in zip(NAMES, three, strict=True) if name != holder]
    assert [await claim(database, new_id(), SELDOM) for database in others] == [False, False]
    await release(three[0], holder, done=True)
    assert await claims(three) == []
    soon = Rounds(every=timedelta(0), lease=SELDOM.lease)
    assert len(await claims(three, soon)) == 1


async def test_a_round_that_was_not_done_to_its_end_is_due_at_once(three: list[Database]) -> None:
    """A gateway that stops in the middle leaves it to whoever comes next."""
    [holder] = await claims(three)
    await release(three[0], holder, done=False)
    assert len(await claims(three)) == 1


async def test_interrupted_round_keeps_the_age_of_maintenance(three: list[Database]) -> None:
    [holder] = await claims(three)
    await release(three[0], holder, done=False)
    found = await read_backlog(three[0])
    assert found is not None
    assert found.maintenance < 60


async def test_age_of_maintenance_counts_from_the_start_before_the_first_round(
    three: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_STARTED", time.monotonic() - 90_000)
    found = await read_backlog(three[0])
    assert found is not None
    assert 90_000 <= found.maintenance < 90_060


async def test_a_round_of_a_gateway_that_died_comes_free(three: list[Database]) -> None:
    """It gives no sign of life any more; as long as it does, the round is its own."""
    assert await claim(three[0], ALIVE, BRIEFLY)
    for _ in range(4):
        await renew(three[0], ALIVE, SELDOM)
        assert not await claim(three[1], OTHER, SELDOM)
    # Its last sign of life.
    await renew(three[0], ALIVE, BRIEFLY)

    async def begins() -> bool:
        return await claim(three[1], OTHER, SELDOM)

    await eventually(begins)
    # Should it only have been slow, it goes on, and takes nothing back.
    await renew(three[0], ALIVE, SELDOM)
    await release(three[0], ALIVE, done=True)
    assert not await claim(three[2], THIRD, SELDOM)


async def test_three_gateways_share_the_rounds(three: list[Database]) -> None:
    """However many there are: no two are at it at the same time, and it goes on when one of them is gone."""
    at_it, most, rounds = 0, 0, 0
    enough = asyncio.Event()

    async def step() -> None:
        nonlocal at_it, most, rounds
        at_it += 1
        most = max(most, at_it)
        rounds += 1
        await asyncio.sleep(0)
        if rounds >= 5:
            enough.set()
        at_it -= 1

    async def fine() -> None:
        return None

    # A lease of three seconds: nobody is taken for dead on a busy machine.
    schedulers = [Scheduler(database, 1, (step,), fine) for database in three]
    for scheduler in schedulers:
        scheduler._seconds = 0.01
        scheduler._rounds = Rounds(every=timedelta(0), lease=timedelta(minutes=1))
        scheduler.start()
    await asyncio.wait_for(enough.wait(), 30)
    await schedulers[0].stop()
    rounds = 0
    enough.clear()
    await asyncio.wait_for(enough.wait(), 30)
    for scheduler in schedulers[1:]:
        await scheduler.stop()
    assert most == 1
