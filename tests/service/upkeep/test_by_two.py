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

from toolgate_service.logs.entries import entry_bytes
from toolgate_service.logs.models import IdempotencyKey
from toolgate_service.storage.database import Database, now, open_database
from toolgate_service.upkeep.batches import delete_where
from toolgate_service.upkeep.rehearsals import prune_test_entries

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
