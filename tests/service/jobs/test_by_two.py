"""Upkeep beside others: another gateway's or an operator's, and requests that write what is about to be removed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from sqlmodel import col, select
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import ago

from toolgate_service.core.errors import StorageFault
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import Database, now, open_database
from toolgate_service.jobs.batches import delete_where
from toolgate_service.logs.models import IdempotencyKey, LogEntry
from toolgate_service.logs.schemas import entry_bytes
from toolgate_service.logs.service import prune_test_entries
from toolgate_service.maintenance import prune

TEST = {"environment": "test"}


@pytest.fixture
async def databases(attic: LiveGateway) -> AsyncIterator[list[Database]]:
    """The attic's database, as several processes that remove from it see it."""
    opened = [open_database(attic.database_url) for _ in range(3)]
    for database in opened:
        await database.start()
    yield opened
    for database in opened:
        await database.close()


def used_twice(keeper: Owner, moment: datetime) -> IdempotencyKey:
    return IdempotencyKey(
        organization_id=keeper.user["organization_id"],
        environment="production",
        surface="log",
        key="used twice",
        fingerprint="",
        answer=b"the first",
        created_at=moment,
        expires_at=moment,
    )


@pytest.mark.postgresql_only("SQLite has one writer at a time")
async def test_what_is_kept_again_meanwhile_stays(databases: list[Database], keeper: Owner) -> None:
    """A key that expired and is used anew while it is removed is remembered, and nobody waits for that."""
    using, removing, _ = databases
    async with using.writing() as session:
        moment = now(session)
        session.add(used_twice(keeper, moment - timedelta(seconds=1)))
    expired = col(IdempotencyKey.expires_at) <= moment
    async with using.writing() as session:
        key = (await session.exec(select(IdempotencyKey).where(IdempotencyKey.key == "used twice"))).one()
        key.answer, key.expires_at = b"the second", moment + timedelta(days=1)
        await session.flush()
        async with asyncio.timeout(8):
            assert await delete_where(removing, 100, IdempotencyKey, expired) == 0
    async with using.reading() as session:
        answers = select(IdempotencyKey.answer).where(IdempotencyKey.key == "used twice")
        assert (await session.exec(answers)).all() == [b"the second"]


async def test_bytes_of_test_entries_are_taken_off_once(
    attic: LiveGateway, databases: list[Database], keeper: Owner
) -> None:
    """Three that remove the same old test entries at once leave the bytes of those that stay, and no fewer."""
    made = keeper.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
    write_entries(attic, keeper, [made], 100, newest=ago(days=8), environment="test")
    write_entries(attic, keeper, [made], 100, environment="test")
    organization = keeper.user["organization_id"]
    of = "FROM log_entries WHERE organization_id = ? AND environment = 'test'"
    sizes = "UPDATE environments SET log_bytes = ? WHERE organization_id = ? AND name = 'test'"

    def bytes_of_entries() -> int:
        return sum(entry_bytes(*row) for row in rows(attic, f"SELECT action, context {of}", organization))

    execute(attic, sizes, bytes_of_entries(), organization)
    removals = (prune_test_entries(database, 5, organization, ago(days=7)) for database in databases)
    assert sum(await asyncio.gather(*removals)) == 100
    held = "SELECT log_bytes FROM environments WHERE organization_id = ? AND name = 'test'"
    assert rows(attic, held, organization) == [(bytes_of_entries(),)]


def old_entries(attic: LiveGateway, keeper: Owner, count: int) -> str:
    """Have so many entries to be removed, and return the one that is not."""
    agent = keeper.agent()
    write_entries(attic, keeper, [agent], count, newest=ago(days=8))
    kept: str = keeper.log(agent, "kept").json()["id"]
    return kept


def left(attic: LiveGateway, keeper: Owner) -> list[str]:
    organization = keeper.user["organization_id"]
    found = rows(attic, "SELECT id FROM log_entries WHERE organization_id = ?", organization)
    return [id_ for (id_,) in found]


async def test_three_that_prune_at_once_remove_everything_once(
    attic: LiveGateway, databases: list[Database], keeper: Owner
) -> None:
    """Together they remove what one would have, row by row claimed by one of them, and nothing else."""
    kept = old_entries(attic, keeper, 120)
    removed = await asyncio.gather(*(prune(database, BUILT_IN, 5) for database in databases))
    assert sum(counts["log_entries"] for counts in removed) == 120
    assert left(attic, keeper) == [kept]


@pytest.mark.postgresql_only("SQLite has one writer at a time, whose lock ends with its process")
async def test_who_dies_in_the_middle_holds_nothing(
    attic: LiveGateway, databases: list[Database], keeper: Owner
) -> None:
    """What one is removing the others pass over, without waiting; when it is gone they remove that too."""
    kept = old_entries(attic, keeper, 60)
    dying, going_on, _ = databases
    mine = col(LogEntry.organization_id) == keeper.user["organization_id"]
    begun, gone = asyncio.Event(), asyncio.Event()

    async def die() -> None:
        async with dying.writing() as session:
            chosen = select(LogEntry.id).where(mine, col(LogEntry.action) != "kept").limit(20)
            assert len((await session.exec(chosen.with_for_update())).all()) == 20
            begun.set()
            await gone.wait()
            # As a process that ends: its connection with it.
            await (await (await session.connection()).get_raw_connection()).driver_connection.close()  # type: ignore[union-attr]  # asyncpg's

    async with asyncio.timeout(30):
        death = asyncio.create_task(die())
        await begun.wait()
        assert (await prune(going_on, BUILT_IN, 100))["log_entries"] == 40
        gone.set()
        with pytest.raises(StorageFault):
            await death
        assert (await prune(going_on, BUILT_IN, 100))["log_entries"] == 20
    assert left(attic, keeper) == [kept]
