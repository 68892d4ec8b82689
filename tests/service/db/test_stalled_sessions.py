"""Sessions of a frozen replica that others wait for are ended, also while the replica only read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from alembic import command
from sqlalchemy import Connection, text
from sqlmodel.ext.asyncio.session import AsyncSession
from support.databases import database_url, empty_database, engine

from toolgate_service.core.errors import StorageError
from toolgate_service.db import postgres
from toolgate_service.db.migrate import configuration
from toolgate_service.db.postgres import PostgresDatabase, StalledSessions
from toolgate_service.db.postgres_connection import DRIVER_FAULTS

pytestmark = pytest.mark.postgresql_only("SQLite has no sessions")

#: the last migration before one that changes the table of approval requests
FORMER = "0015"
#: seconds within which a start that migrates is through
BAR = 20


def dsn_of(url: str) -> str:
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)


@asynccontextmanager
async def reader(url: str, name: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that has read approval requests and sends nothing further."""
    connection = await asyncpg.connect(dsn_of(url), server_settings={"application_name": name})
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT id FROM approvals")
        yield connection
    finally:
        connection.terminate()


async def is_open(connection: asyncpg.Connection) -> bool:
    try:
        await connection.fetchval("SELECT 1")
    except DRIVER_FAULTS:
        return False
    return True


@pytest.fixture
async def former(tmp_path: Path) -> str:
    """A database of an earlier revision."""
    url = empty_database(tmp_path)
    made = engine(url)
    async with made.begin() as connection:
        await connection.run_sync(_upgrade)
    await made.dispose()
    return url


def _upgrade(connection: Connection) -> None:
    command.upgrade(configuration(connection), FORMER)


async def revision_of(url: str) -> str:
    made = engine(url)
    async with made.connect() as connection:
        found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    await made.dispose()
    return str(found)


@pytest.mark.parametrize("name", ["toolgate", "toolgate export"])
async def test_start_migrates_while_a_replica_is_frozen_in_a_read_transaction(former: str, name: str) -> None:
    database = PostgresDatabase(former)
    async with reader(former, name) as connection:
        await asyncio.wait_for(database.start(), BAR)
        assert not await is_open(connection)
    await database.close()
    assert await revision_of(former) > FORMER


@pytest.mark.parametrize("name", ["psql", "toolgate patient"])
async def test_migration_ends_no_session_of_others(
    former: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "MIGRATION_ATTEMPTS", 8)
    database = PostgresDatabase(former)
    async with reader(former, name) as connection:
        with pytest.raises(StorageError, match="other transactions locked its tables"):
            await asyncio.wait_for(database.start(), BAR)
        assert await is_open(connection)
    await database.close()


async def _locks(url: str, seconds: float) -> bool:
    """Return whether a session gets the whole table of approval requests within some seconds."""
    connection = await asyncpg.connect(dsn_of(url))
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{seconds}s'")
            await connection.execute("LOCK TABLE approvals IN ACCESS EXCLUSIVE MODE")
    except asyncpg.LockNotAvailableError:
        return False
    finally:
        await connection.close()
    return True


@pytest.mark.parametrize(("name", "is_ended"), [("toolgate", True), ("toolgate export", False)])
async def test_idle_reader_that_others_wait_for_is_ended_unless_it_exports(
    tmp_path: Path, name: str, is_ended: bool
) -> None:
    url = database_url(tmp_path)
    database = PostgresDatabase(url)
    await database.start()
    stalled = StalledSessions(database)
    stalled.start()
    async with reader(url, name) as connection:
        assert await _locks(url, 10 if is_ended else 3) is is_ended
        assert await is_open(connection) is not is_ended
    await stalled.stop()
    await database.close()


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda database: database.reading(), "toolgate"),
        (lambda database: database.exporting(), "toolgate export"),
        (lambda database: database.writing(), "toolgate"),
        (lambda database: database.writing(patient=True), "toolgate patient"),
    ],
    ids=["read", "export", "write", "patient"],
)
async def test_application_name_tells_transactions_that_may_be_idle(
    tmp_path: Path, work: Callable[[PostgresDatabase], AbstractAsyncContextManager[AsyncSession]], name: str
) -> None:
    database = PostgresDatabase(database_url(tmp_path))
    await database.start()
    async with work(database) as session:
        query = text("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        assert (await (await session.connection()).execute(query)).scalar_one() == name
    await database.close()
