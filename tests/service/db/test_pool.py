"""The hot path's own connections to PostgreSQL: lent one at a time, replaced when they end, with plans that stay right."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from support.databases import database_url
from support.plans import nodes
from support.waiting import eventually

from toolgate_service.auth_store.postgres import AUTHENTICATE_MANY, AUTHENTICATE_ONE, CONTEXT
from toolgate_service.core.errors import StorageFault
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import Connector, PostgresPool
from toolgate_service.logs.store_postgres import BATCH_STATE

pytestmark = pytest.mark.postgresql_only("an SQLite gateway reads its own file")

#: the columns that say which row
KEYS = {
    "api_keys": {"digest"},
    "organizations": {"id"},
    "agents": {"organization_id", "environment", "id"},
    "permissions": {"organization_id", "environment", "agent_id", "action"},
    "monthly_usage": {"organization_id", "environment", "month"},
    "environments": {"organization_id", "name"},
    "idempotency_keys": {"organization_id", "environment", "surface", "key"},
}
_PID = "SELECT pg_backend_pid()"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[PostgresDatabase]:
    """A database in which nothing has ever been."""
    database = PostgresDatabase(database_url(tmp_path))
    yield database
    await database.close()


@pytest.fixture
async def two(database: PostgresDatabase) -> AsyncIterator[PostgresPool]:
    """At most two connections to it."""
    connections = PostgresPool(database, 2)
    await connections.open()
    yield connections
    await connections.close()


async def pid_of(connections: PostgresPool) -> int:
    async with connections.acquire() as connection:
        pid: int = await connection.fetchval(_PID)
        return pid


@pytest.mark.parametrize(
    "statement",
    [AUTHENTICATE_ONE, AUTHENTICATE_MANY, CONTEXT, BATCH_STATE],
    ids=["one", "many", "context", "entries"],
)
async def test_a_plan_made_for_empty_tables_enters_by_whole_keys(two: PostgresPool, statement: str) -> None:
    """It is kept while the tables grow; an index read by a part of its key would be read ever longer."""
    async with two.acquire() as connection:
        await connection.execute(f"PREPARE asked AS {statement}")
        values = ", ".join(["NULL"] * len(set(re.findall(r"\$\d", statement))))
        told = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked({values})")
    read = [node for node in nodes(json.loads(told)[0]["Plan"]) if node.get("Relation Name") in KEYS]
    assert read
    for node in read:
        entered = set(re.findall(r"\(?(\w+)\)?(?:::\w+)? = ", node.get("Index Cond", "")))
        assert entered >= KEYS[node["Relation Name"]], node


async def test_one_that_ended_is_replaced(two: PostgresPool) -> None:
    """The server ends a connection: who uses it hears of it, and the next one gets another."""
    pid = await pid_of(two)

    async def ending() -> None:
        async with two.acquire() as connection:
            await connection.execute(f"SELECT pg_terminate_backend({pid})")
            await connection.execute("SELECT 1")

    with pytest.raises(StorageFault, match="PostgreSQL"):
        await ending()
    assert await pid_of(two) != pid


async def test_connection_that_the_driver_cannot_use_is_replaced(two: PostgresPool) -> None:
    """The driver raises this if the server has ended the session and the socket is not closed yet."""
    pid = await pid_of(two)

    async def fail() -> None:
        async with two.acquire():
            raise asyncpg.InternalClientError(
                "cannot switch to state 12; another operation (2) is in progress"
            )

    with pytest.raises(StorageFault, match="PostgreSQL: InternalClientError"):
        await fail()
    assert await pid_of(two) != pid


async def test_session_that_the_driver_cannot_use_is_a_fault(database: PostgresDatabase) -> None:
    async def fail() -> None:
        async with database.reading():
            raise asyncpg.InternalClientError(
                "cannot switch to state 12; another operation (2) is in progress"
            )

    with pytest.raises(StorageFault, match="PostgreSQL: InternalClientError"):
        await fail()


async def test_an_idle_one_that_ended_is_not_lent(two: PostgresPool, database: PostgresDatabase) -> None:
    """Ended while nobody used it: nobody finds out."""
    async with two.acquire() as connection:
        pid = await connection.fetchval(_PID)
        lent = connection._con  # type: ignore[attr-defined]  # a proxy of it
    other = await database.connect()
    await other.execute(f"SELECT pg_terminate_backend({pid})")
    await other.close()

    async def has_ended() -> bool:
        return bool(lent.is_closed())

    await eventually(has_ended)
    assert await pid_of(two) != pid


async def test_whoever_waits_gets_the_next(two: PostgresPool) -> None:
    """Two are lent at most; who gives up waiting takes none with him."""
    async with two.acquire(), two.acquire():
        early, late = asyncio.create_task(pid_of(two)), asyncio.create_task(pid_of(two))
        await asyncio.sleep(0)
        early.cancel()
        await asyncio.sleep(0)
        assert not late.done()
    assert await late
    async with asyncio.timeout(10), two.acquire(), two.acquire():
        pass


async def test_given_in_the_moment_of_giving_up(two: PostgresPool) -> None:
    """Cancelled just as a connection was handed over: it goes to the next one."""
    async with two.acquire():
        async with two.acquire():
            waiting = asyncio.create_task(pid_of(two))
            await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(10), two.acquire():
            pass
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_left_in_the_middle_it_is_lent_no_more(two: PostgresPool) -> None:
    """Whoever is cancelled while the server works leaves an answer to come, which is nobody else's."""
    pid = await pid_of(two)

    async def asking() -> None:
        async with two.acquire() as connection:
            await connection.fetchval("SELECT 7 FROM pg_sleep(30)")

    task = asyncio.create_task(asking())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await pid_of(two) != pid


async def test_an_open_transaction_is_not_passed_on(two: PostgresPool) -> None:
    """What somebody forgot to end is undone."""
    async with two.acquire() as connection:
        await connection.execute("BEGIN")
        await connection.execute(
            "INSERT INTO heartbeats (job, beaten_at, steady_since) VALUES ('forgotten', now(), now())"
        )
    async with two.acquire() as connection:
        assert await connection.fetch("SELECT 1 FROM heartbeats WHERE job = 'forgotten'") == []


async def test_a_server_that_is_away_is_a_fault_each_time(database: PostgresDatabase) -> None:
    """No connection can be made: each attempt says so, and leaves the pool its size."""
    connections = PostgresPool(database, 1)
    there, away = connections._connector, Connector("postgresql://postgres@127.0.0.1:1/nowhere")
    connections._connector = away
    with pytest.raises(OSError, match="Connect"):
        await connections.open()
    connections._connector = there
    await connections.open()
    assert connections._pool is not None
    connections._connector = away
    await connections._pool.expire_connections()
    for _ in range(3):
        with pytest.raises(StorageFault):
            await pid_of(connections)
    connections._connector = there
    assert await pid_of(connections)
    await connections.close()


async def test_an_operators_default_is_not_the_gateways(database: PostgresDatabase) -> None:
    """Who has waited for a turn sees what was committed meanwhile: no snapshot from before, and nothing to do anew."""
    operator = await database.connect()
    name = await operator.fetchval("SELECT current_database()")
    await operator.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    await operator.close()
    connections = PostgresPool(database, 1)
    await connections.open()
    assert [tuple(row) for row in await connections.rows("SHOW transaction_isolation")] == [
        ("read committed",)
    ]
    await connections.close()
