"""The background loop, its steps and its batches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlmodel.ext.asyncio.session import AsyncSession
from support.databases import database_url

from toolgate_service.db.database import Database, open_database
from toolgate_service.db.health import OutageLog
from toolgate_service.jobs import scheduler as scheduler_module
from toolgate_service.jobs.batches import in_batches
from toolgate_service.jobs.scheduler import Scheduler


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = open_database(database_url(tmp_path))
    await database.start()
    yield database
    await database.close()


async def fine() -> None:
    """Report no problem."""


async def test_a_step_that_fails_keeps_neither_the_others_nor_the_next_round(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged, the steps after it run, and all of them again a round later."""
    rounds, enough = 0, asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("no luck")

    async def works() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            enough.set()

    scheduler = Scheduler(database, 0.01, (fails, works), fine)
    scheduler.start()
    await asyncio.wait_for(enough.wait(), 30)
    await scheduler.stop()
    assert caplog.text.count("a maintenance job failed") >= 3
    assert "no luck" in caplog.text


async def test_a_database_that_cannot_be_used_ends_nothing(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upkeep is taken as soon as it can be."""
    done, tried = asyncio.Event(), asyncio.Event()

    async def step() -> None:
        done.set()

    def broken(*_turns: str) -> object:
        tried.set()
        raise OSError("the disk is gone")

    monkeypatch.setattr(scheduler_module, "OUTAGE", OutageLog())
    scheduler = Scheduler(database, 0.01, (step,), fine)
    with monkeypatch.context() as patch:
        patch.setattr(database, "writing", broken)
        scheduler.start()
        await asyncio.wait_for(tried.wait(), 30)
    await asyncio.wait_for(done.wait(), 30)
    await scheduler.stop()
    assert "the disk is gone" in caplog.text


async def test_a_gateway_that_is_not_ready_does_no_upkeep(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A skewed clock, for instance: it says why, and begins when the problem is gone (decisions §12)."""
    done, problems = asyncio.Event(), ["The clocks differ"] * 3

    async def problem() -> str | None:
        assert not done.is_set() or not problems
        return problems.pop() if problems else None

    async def step() -> None:
        done.set()

    scheduler = Scheduler(database, 0.01, (step,), problem)
    scheduler.start()
    await asyncio.wait_for(done.wait(), 30)
    await scheduler.stop()
    assert caplog.text.count("maintenance is paused: The clocks differ") == 1
    assert caplog.text.count("maintenance runs again") <= 1


async def test_stopping_ends_a_round_at_once(database: Database) -> None:
    """A gateway that stops does not wait for the end of a long round."""
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    scheduler = Scheduler(database, 0.01, (endless,), fine)
    scheduler.start()
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.wait_for(scheduler.stop(), 10)


async def test_between_two_batches_everybody_else_has_a_turn(database: Database) -> None:
    """Whoever waits to write, waits for one batch and not for all of them."""
    order: list[str] = []
    writers: list[asyncio.Task[None]] = []

    async def write(number: int) -> None:
        async with database.writing("turn"):
            order.append(f"writer {number}")

    async def work(_session: AsyncSession) -> int:
        number = len(writers)
        writers.append(asyncio.create_task(write(number)))
        # From here on the writer waits.
        await asyncio.sleep(0)
        order.append(f"batch {number}")
        return 10 if number < 3 else 0

    assert await in_batches(database, 10, work, "turn") == 30
    await asyncio.gather(*writers)
    assert order == [f"{kind} {number}" for number in range(4) for kind in ("batch", "writer")]
