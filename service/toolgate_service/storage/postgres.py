"""The gateway's database on a PostgreSQL server."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import StorageError
from toolgate_service.storage.database import EXPORTS, NOW, TURN_TIMEOUT, Usage
from toolgate_service.storage.faults import faults_told
from toolgate_service.storage.migrate import demand, upgrade_once
from toolgate_service.storage.notices import CHANNEL, announced
from toolgate_service.storage.pooler import refuse_pooling
from toolgate_service.storage.pools import usage_of
from toolgate_service.storage.postgres_connection import (
    EXPORT,
    PATIENT_APPLICATION,
    WRITE_SETTINGS,
    Connector,
)
from toolgate_service.storage.races import committed
from toolgate_service.storage.stalled import IDLE_SESSIONS_IN_MIGRATION, StalledSessions
from toolgate_service.storage.turns import Turns
from toolgate_service.tracing.transactions import traced

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

logger = logging.getLogger("toolgate.gateway")

#: the oldest version that its makers still mend, as the server writes it
OLDEST = 140000
#: seconds until a connection, and until an answer of a server that fell silent, is given up
CONNECT_TIMEOUT = 10
SILENCE = 40
#: connections for each of the two, and seconds until whoever waits for one is told to come again
POOL = 8
POOL_TIMEOUT = 5
#: milliseconds between two statements that a migration, or a command of the operator, may take
PATIENT = 10_000

#: A migration that waits for a table makes every request for that table wait, and can form a deadlock with one that
#: has another table. Each migration is a transaction of its own, gives up before the server looks for deadlocks (after
#: 1 s), and tries again. The time-out is in milliseconds and for each table.
MIGRATION_LOCK_TIMEOUT = 200
MIGRATION_ATTEMPTS = 150
#: Seconds between two looks for stalled sessions that a migration waits for: several in each attempt.
MIGRATION_LOOK = 0.05
LOCK_NOT_AVAILABLE = "55P03"

#: what says that a server, or the URL that names it, cannot be used; a port may be too large a number
REFUSALS = (
    OSError,
    DBAPIError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
    OverflowError,
)

#: The settings of a write transaction, an advisory lock, and the moment after it was given: in one round trip.
TURN = text(
    f"SELECT clock_timestamp() FROM (SELECT {WRITE_SETTINGS} || set_config('lock_timeout', :wait, true) "  # noqa: S608 - constants
    "AS applied OFFSET 0) AS settings, "
    "LATERAL pg_advisory_xact_lock(hashtextextended(:turn || left(settings.applied, 0), 0))"
)
#: The same for a transaction that takes no lock.
WRITE_MOMENT = text(
    f"SELECT clock_timestamp() FROM (SELECT {WRITE_SETTINGS} AS applied OFFSET 0) AS settings"  # noqa: S608 - constants
)
#: Applies the settings of a write transaction that may take long between two statements.
PATIENT_WRITE = text(
    f"SELECT {WRITE_SETTINGS} || set_config('idle_in_transaction_session_timeout', '{PATIENT}', true) "
    f"|| set_config('application_name', '{PATIENT_APPLICATION}', true)"
)
MOMENT = text("SELECT clock_timestamp()")
#: Heard by every gateway once the transaction is committed, by nobody when it is rolled back.
NOTIFY = text(f"SELECT pg_notify('{CHANNEL}', notice) FROM unnest(CAST(:notices AS text[])) AS notice")  # noqa: S608 - our own name
#: The moment of a read that takes as long as its caller takes the rows; a caller that stops reading for an hour is gone.
UNHURRIED = text(
    "SELECT clock_timestamp() FROM set_config('idle_in_transaction_session_timeout', '3600000', true) AS timeout, "  # noqa: S608 - constants
    f"set_config('application_name', '{EXPORT}', true) AS name"
)


class PostgresDatabase:
    """A database on a server, every commit on its disk before it is acknowledged.

    Writers of one turn go one after another by an advisory lock: what is counted or looked for under it stays true
    until the commit.

    Attributes:
        dsn: server, user, password and database, as libpq writes them.
        info: what every write transaction carries in its session's `info`.
    """

    def __init__(self, url: str) -> None:
        self.dsn = url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self.info: dict[str, object] = {}
        self._connector = Connector(self.dsn)
        self._turns = Turns()
        self._readers = self._engine("REPEATABLE READ")
        self._exporters = self._engine("REPEATABLE READ", EXPORTS)
        self._writers = self._engine("READ COMMITTED")

    async def start(self, *, migrate: bool = True) -> None:
        """Connect, and bring the schema up to date.

        Args:
            migrate: otherwise a schema that is older than this version's is refused.

        Raises:
            StorageError: the server cannot be reached, is too old, or its database cannot be used.
        """
        if not migrate:
            async with self.opened() as connection:
                await connection.run_sync(demand)
            return
        stalled = StalledSessions(self, MIGRATION_LOOK, IDLE_SESSIONS_IN_MIGRATION)
        is_pending = True
        try:
            while is_pending:
                async with self.opened() as connection:
                    is_pending = await _migrate_once(connection, stalled)
        finally:
            await stalled.stop()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction on the database as it is; no statement in it is too long.

        Raises:
            StorageError: the server cannot be reached, is too old, or its database cannot be used.
        """
        # Bringing a large table up to date may take longer than any other answer.
        patient = self._engine("READ COMMITTED", 1, silence=None)
        try:
            await refuse_pooling(self._connector)
            async with patient.begin() as connection:
                await _judge(connection)
                await connection.execute(PATIENT_WRITE)
                # A large table may take its time.
                await connection.execute(text("SET LOCAL statement_timeout = 0"))
                await connection.execute(text("SET LOCAL lock_timeout = 0"))
                yield connection
        except REFUSALS as error:
            # Without the chain: a driver's own words may hold the URL, and the URL the password.
            raise StorageError(
                f"cannot use the PostgreSQL database of TOOLGATE_DATABASE_URL: {_why(error)}; write "
                "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            ) from None
        finally:
            await patient.dispose()

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Open a session on one consistent snapshot."""
        async with faults_told(), AsyncSession(self._readers, expire_on_commit=False) as session:
            session.info[NOW] = await _moment(session, MOMENT)
            yield session

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def exporting(self) -> AsyncIterator[AsyncSession]:
        """Open a session on one consistent snapshot for a long read, beside the connections that requests wait for."""
        async with faults_told(), AsyncSession(self._exporters, expire_on_commit=False) as session:
            session.info[NOW] = await _moment(session, UNHURRIED)
            yield session

    @traced("toolgate.gateway.write")
    @asynccontextmanager
    async def writing(
        self, *turns: str, until: float | None = None, patient: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """Open a write transaction that has its turns; the moment is read after the last of them was given.

        Args:
            turns: names of locks, as in `Database.writing`.
            until: the loop's time at which waiting for the turns ends.
            patient: whether the transaction may compute for seconds between two statements.

        Raises:
            StorageFault: the turns did not come in time, or the server cannot be used.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + TURN_TIMEOUT if until is None else until
        async with (
            self._turns.taking(turns, ends),
            faults_told(),
            AsyncSession(self._writers, expire_on_commit=False, info=self.info) as session,
            session.begin(),
        ):
            # In one order, whoever asks: two gateways never wait for each other.
            for turn in sorted(set(turns)):
                wait = max(1, int(1000 * (ends - loop.time())))
                session.info[NOW] = await _moment(session, TURN, turn=turn, wait=str(wait))
            if not turns:
                session.info[NOW] = await _moment(session, WRITE_MOMENT)
            if patient:
                await (await session.connection()).execute(PATIENT_WRITE)
            yield session
            await _announce(session)
        committed()

    def usage(self) -> Mapping[str, Usage]:
        """Return how each pool of connections is used, by its name."""
        return usage_of(readers=self._readers, exporters=self._exporters, writers=self._writers)

    async def close(self) -> None:
        """Close every connection."""
        await self._readers.dispose()
        await self._exporters.dispose()
        await self._writers.dispose()

    async def connect(self, silence: float | None = SILENCE) -> "Connection":
        """Return a new connection of the gateway's kind.

        Args:
            silence: seconds until an answer is given up; None waits for ever.
        """
        return await self._connector.connect(timeout=CONNECT_TIMEOUT, command_timeout=silence)

    @property
    def connector(self) -> Connector:
        """What opens its connections."""
        return self._connector

    def _engine(
        self, isolation: str, pool_size: int = POOL, *, silence: float | None = SILENCE
    ) -> AsyncEngine:
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=partial(self.connect, silence),
            isolation_level=isolation,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT,
            # A server that was restarted has closed the pool's connections: nobody's request should find out.
            pool_pre_ping=True,
            # A failed statement is logged; what it was to write may be a password's hash or a call's context.
            hide_parameters=True,
        )


async def _announce(session: AsyncSession) -> None:
    # What was only added or changed says so now.
    await session.flush()
    if notices := announced(session):
        await (await session.connection()).execute(NOTIFY, {"notices": notices})


async def _moment(session: AsyncSession, statement: TextClause, **values: str) -> datetime:
    connection = await session.connection()
    moment: datetime = (await connection.execute(statement, values)).scalar_one()
    return moment


async def _judge(connection: AsyncConnection) -> None:
    settings = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'server_encoding', 'fsync')"
    rows = await connection.execute(text(settings))
    found: dict[str, str] = {row.name: row.setting for row in rows}
    if int(found["server_version_num"]) < OLDEST:
        raise StorageError(f"the PostgreSQL server is too old; use version {OLDEST // 10000} or newer")
    if found["server_encoding"] != "UTF8":
        raise StorageError(
            f"the PostgreSQL database's encoding is {found['server_encoding']!r}, which cannot hold every text; "
            "create it with ENCODING 'UTF8'"
        )
    if found["fsync"] != "on":
        logger.warning("the PostgreSQL server runs with fsync=off: a power cut may lose acknowledged records")


async def _migrate_once(connection: AsyncConnection, stalled: StalledSessions) -> bool:
    """Run the next migration, all of them on a new database, and return whether more are pending."""
    # Several gateways may start at once: one migrates, the others wait and find nothing to do.
    await connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('toolgate schema', 0))"))
    for _ in range(MIGRATION_ATTEMPTS):
        try:
            async with connection.begin_nested():
                await connection.execute(text(f"SET LOCAL lock_timeout = {MIGRATION_LOCK_TIMEOUT}"))
                return await connection.run_sync(upgrade_once)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
        # A frozen replica may hold a table in a read transaction. No running gateway of the version before ends that one.
        stalled.start()
        # Rolled back to the savepoint, the migration holds no table: the transactions that waited go first.
        await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - spreads load, guards nothing
    raise StorageError(
        f"the schema cannot be migrated: other transactions held its tables in each of {MIGRATION_ATTEMPTS} attempts; "
        "end long transactions of other clients (see pg_stat_activity) and start again"
    )


def _why(error: Exception) -> str:
    match error:
        case DBAPIError(orig=BaseException() as orig):
            return str(orig).rpartition(">: ")[2].splitlines()[0]
        case TimeoutError():
            return f"no answer within {CONNECT_TIMEOUT} seconds"
        case asyncpg.InterfaceError() | ValueError() | OverflowError():
            # Complaints about the URL quote it.
            return "the URL cannot be used"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
