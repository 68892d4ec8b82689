"""Being alone with the months of the log, and making one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from toolgate_service.errors import StorageFault
from toolgate_service.logs.months.catalogue import bound
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.postgres_connection import DRIVER_FAULTS, WRITE_SETTINGS

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

#: Whoever makes or drops months is alone with them through several transactions: as long as this one lasts, which does
#: nothing else. A lock of the session's own would stay behind in a pool of connections between here and the server.
_TURN = "SELECT pg_try_advisory_xact_lock(hashtextextended('months of the log', 0))"
#: Seconds after which the server ends the turn of a gateway that froze, and between two statements that keep it.
TURN_IDLE = 60.0
TURN_KEEP = 15.0
#: How long anything is waited for that others hold, which all who come after have to wait for too. Shorter than the
#: second after which the server calls two that wait for each other a deadlock. And a gateway that freezes with the whole
#: log locked keeps it from every writer only for the moment that any write transaction may be idle.
_HURRY = f"SELECT {WRITE_SETTINGS} || set_config('lock_timeout', '500ms', true)"


@asynccontextmanager
async def alone(database: PostgresDatabase) -> AsyncIterator["Connection | None"]:
    """Lend a connection, and the months to nobody else meanwhile; None while another gateway has them.

    Raises:
        StorageFault: the server cannot be used just now, or others have what is needed.
    """
    try:
        async with AsyncExitStack() as stack:
            guard, connection = await _opened(stack, database), await _opened(stack, database)
            async with guard.transaction():
                await guard.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{TURN_IDLE:.0f}s'")
                has_turn = await guard.fetchval(_TURN)
                async with _kept(guard, connection):
                    yield connection if has_turn else None
    except DRIVER_FAULTS as error:
        # Not the driver's own words: they quote rows, and rows hold contexts.
        code = getattr(error, "sqlstate", None)
        raise StorageFault(f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else "")) from None


@asynccontextmanager
async def _kept(guard: "Connection", connection: "Connection") -> AsyncIterator[None]:
    """Keep the turn of a guard for as long as the block lasts; if it is lost, end the connection that works in it."""

    async def keep() -> None:
        try:
            while True:
                await asyncio.sleep(TURN_KEEP)
                await guard.execute("SELECT 1")
        except DRIVER_FAULTS:
            connection.terminate()

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _opened(stack: AsyncExitStack, database: PostgresDatabase) -> "Connection":
    connection = await database.connect()
    stack.callback(connection.terminate)
    return connection


@asynccontextmanager
async def hurried(connection: "Connection") -> AsyncIterator[None]:
    """Begin a transaction that waits for nobody's lock for long."""
    async with connection.transaction():
        await connection.execute(_HURRY)
        yield


async def make_part(connection: "Connection", begins: datetime, ends: datetime) -> str:
    """Make the part of a stretch of time, in a transaction, and return its name.

    Made and then attached: made as a part, it would shut everybody out of the whole log meanwhile. So writers go on, and
    who reads waits for a moment at the entries that have no month.
    """
    name = name_of(begins)
    await connection.execute(
        f"CREATE TABLE {name} (LIKE log_entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    await connection.execute(attaching(name, begins, ends))
    return name


def name_of(begins: datetime) -> str:
    """Return the name of the part that begins with a month."""
    return f"log_entries_{begins:%Y_%m}"


def attaching(name: str, begins: datetime | None, ends: datetime) -> str:
    """Return what makes a table the part of a stretch of time; None for all that is past."""
    first = "MINVALUE" if begins is None else bound(begins)
    return f"ALTER TABLE log_entries ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({bound(ends)})"
