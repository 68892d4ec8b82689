"""PostgreSQL implementation of the gateway's database, migration of its schema, and termination of stalled sessions."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.errors import StorageError, StorageFault
from toolgate_service.core.telemetry import traced
from toolgate_service.db.database import EXPORTS, LOCK_TIMEOUT, NOW, Usage, pool_usage
from toolgate_service.db.migrate import require_current, upgrade_once
from toolgate_service.db.postgres_connection import (
    APPLICATION,
    DRIVER_FAULTS,
    EXPORT,
    IDLE_IN_WRITE,
    PATIENT_APPLICATION,
    WRITE_SETTINGS,
    Connector,
    refuse_pooling,
    translate_errors,
)
from toolgate_service.db.pubsub import CHANNEL, Listener, pending_notifications
from toolgate_service.db.retry import mark_committed

if TYPE_CHECKING:
    from toolgate_service.db.postgres_connection import Connection


class KeyedLocks:
    """Named locks for the tasks of this process. Tasks that wait for the same lock get it in order of arrival."""

    def __init__(self) -> None:
        #: for each name, the lock and the number of tasks that hold it or wait for it
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def acquire(self, names: Iterable[str], until: float | None = None) -> AsyncIterator[None]:
        """Hold the locks with the given names during the `with` block.

        The locks are taken in sorted order, so that two tasks never wait for each other. `until` is the deadline for
        taking the locks, in the time of the event loop; None waits without limit.

        Raises:
            StorageFault: A lock was not available before the deadline.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    for name in sorted(set(names)):
                        await stack.enter_async_context(self._acquire_one(name))
            except TimeoutError:
                raise StorageFault(
                    "other transactions held the lock of the organization for too long"
                ) from None
            yield

    @asynccontextmanager
    async def _acquire_one(self, name: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)


logger = logging.getLogger("toolgate.gateway")

#: oldest supported version of PostgreSQL (14.0), in the form of the server setting `server_version_num`
OLDEST = 140000
#: timeout in seconds for opening a connection
CONNECT_TIMEOUT = 10
#: seconds without a response from the server after which a statement fails
SILENCE = 40
#: maximum number of connections in a pool
POOL = 8
#: maximum time in seconds for which a task waits for a free connection in a pool
POOL_TIMEOUT = 5
#: maximum time in milliseconds for which the transaction of a migration or of an operator's command may be idle between
#: two statements
PATIENT = 10_000

#: Time in milliseconds for which a migration waits for the lock of each table. While the migration waits, it blocks all
#: other statements on the table and may cause a deadlock. The wait therefore ends before the server looks for deadlocks
#: (after 1 s), and the migration is repeated.
MIGRATION_LOCK_TIMEOUT = 200
MIGRATION_ATTEMPTS = 150
#: seconds between two checks for stalled sessions during a migration: the interval is so short that several checks run
#: while the migration waits for a lock
MIGRATION_CHECK_INTERVAL = 0.05
LOCK_NOT_AVAILABLE = "55P03"

#: exceptions that are raised if the server or the URL cannot be used; `OverflowError` is raised for a port number that
#: is too large
CONNECT_ERRORS = (
    OSError,
    DBAPIError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
    OverflowError,
)

#: statement that applies the settings of a write transaction, takes an advisory lock and then reads the clock of the
#: server, all in one round trip
ACQUIRE_LOCK = text(
    f"SELECT clock_timestamp() FROM (SELECT {WRITE_SETTINGS} || set_config('lock_timeout', :wait, true) "  # noqa: S608 - the inserted texts are constants
    "AS applied OFFSET 0) AS settings, "
    "LATERAL pg_advisory_xact_lock(hashtextextended(:lock || left(settings.applied, 0), 0))"
)
#: statement for a write transaction without locks: applies its settings and reads the clock of the server
WRITE_TIME = text(
    f"SELECT clock_timestamp() FROM (SELECT {WRITE_SETTINGS} AS applied OFFSET 0) AS settings"  # noqa: S608 - the inserted texts are constants
)
#: statement that applies the settings of a write transaction that may pause between two statements
PATIENT_WRITE = text(
    f"SELECT {WRITE_SETTINGS} || set_config('idle_in_transaction_session_timeout', '{PATIENT}', true) "
    f"|| set_config('application_name', '{PATIENT_APPLICATION}', true)"
)
READ_TIME = text("SELECT clock_timestamp()")
#: statement that sends notifications to all gateways when the transaction is committed
NOTIFY = text(f"SELECT pg_notify('{CHANNEL}', notice) FROM unnest(CAST(:notices AS text[])) AS notice")  # noqa: S608 - the inserted text is a constant
#: statement that applies the settings of an export and reads the clock of the server; with these settings, the server
#: ends an export whose client reads no rows for an hour
EXPORT_TIME = text(
    "SELECT clock_timestamp() FROM set_config('idle_in_transaction_session_timeout', '3600000', true) AS timeout, "  # noqa: S608 - the inserted texts are constants
    f"set_config('application_name', '{EXPORT}', true) AS name"
)


#: seconds between two checks for stalled sessions
STALLED_CHECK_INTERVAL = 0.5
#: timeout in seconds for one check for stalled sessions
STALLED_CHECK_TIMEOUT = 5.0
#: seconds between a failed check for stalled sessions and the next attempt to connect
RECONNECT_PAUSE = 2.0

#: Application names of the sessions that the gateway ends if they are idle in a transaction and hold a lock for which
#: another session waits. Usually, exports are not ended, because an export may be idle while a slow client reads its
#: rows. A migration also ends exports.
IDLE_SESSIONS: Sequence[str] = (APPLICATION,)
IDLE_SESSIONS_IN_MIGRATION: Sequence[str] = (APPLICATION, EXPORT)

# The query first evaluates the state of the sessions, which is cheap, and reads the locks only if a session may be
# stalled.
_END_STALLED = f"""
WITH stalled AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name LIKE '{APPLICATION}%'
      AND pid <> pg_backend_pid() AND wait_event_type = 'Client' AND xact_start IS NOT NULL
      AND (state = 'active' OR state = 'idle in transaction' AND application_name = ANY($1::text[]))
      AND state_change < clock_timestamp() - interval '{IDLE_IN_WRITE} ms'
)
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM stalled
WHERE EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND stalled.pid = ANY(pg_blocking_pids(pg_locks.pid)))
"""  # noqa: S608 - the inserted texts are constants


class PostgresDatabase:
    """PostgreSQL implementation of `Database`. The server acknowledges a commit only after it is synced to disk.

    The named locks of write transactions are PostgreSQL advisory locks.

    Attributes:
        dsn: URL of the database in the form that libpq expects.
        info: Values that each write transaction copies into the dictionary `info` of its session.
    """

    def __init__(self, url: str) -> None:
        self.dsn = url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self.info: dict[str, object] = {}
        self._connector = Connector(self.dsn)
        self._locks = KeyedLocks()
        self._readers = self._engine("REPEATABLE READ")
        self._exporters = self._engine("REPEATABLE READ", EXPORTS)
        self._writers = self._engine("READ COMMITTED")

    async def start(self, *, migrate: bool = True) -> None:
        """Connect to the database and migrate its schema.

        With `migrate=False`, the schema is not changed, and an outdated schema is an error.

        Raises:
            StorageError: The server cannot be reached or is too old, or its database cannot be used.
        """
        if not migrate:
            async with self.opened() as connection:
                await connection.run_sync(require_current)
            return
        stalled = StalledSessions(self, MIGRATION_CHECK_INTERVAL, IDLE_SESSIONS_IN_MIGRATION)
        is_pending = True
        try:
            while is_pending:
                async with self.opened() as connection:
                    is_pending = await _migrate_once(connection, stalled)
        finally:
            await stalled.stop()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction without timeouts of statements and locks. The version of the schema is not checked.

        Raises:
            StorageError: The server cannot be reached or is too old, or its database cannot be used.
        """
        # Set no timeout for statements, because the migration of a large table may take longer than any other one.
        patient = self._engine("READ COMMITTED", 1, silence=None)
        try:
            await refuse_pooling(self._connector)
            async with patient.begin() as connection:
                await _check_server(connection)
                await connection.execute(PATIENT_WRITE)
                await connection.execute(text("SET LOCAL statement_timeout = 0"))
                await connection.execute(text("SET LOCAL lock_timeout = 0"))
                yield connection
        except CONNECT_ERRORS as error:
            # `from None` omits the message of the driver, which may contain the URL with its password.
            raise StorageError(
                f"cannot use the PostgreSQL database of TOOLGATE_DATABASE_URL: {_describe_error(error)}; write "
                "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            ) from None
        finally:
            await patient.dispose()

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Open a session for reading. All its queries read the same snapshot of the database."""
        async with translate_errors(), AsyncSession(self._readers, expire_on_commit=False) as session:
            session.info[NOW] = await _read_time(session, READ_TIME)
            yield session

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def exporting(self) -> AsyncIterator[AsyncSession]:
        """Open a session for a long export on a separate connection. All its queries read the same snapshot."""
        async with translate_errors(), AsyncSession(self._exporters, expire_on_commit=False) as session:
            session.info[NOW] = await _read_time(session, EXPORT_TIME)
            yield session

    @traced("toolgate.gateway.write")
    @asynccontextmanager
    async def writing(
        self, *locks: str, until: float | None = None, patient: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """Open a write transaction that holds named locks, as `Database.writing` describes.

        The clock of the server is read after the last lock was taken.

        Raises:
            StorageFault: A lock was not available before the deadline, or the server cannot be used.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + LOCK_TIMEOUT if until is None else until
        async with (
            self._locks.acquire(locks, ends),
            translate_errors(),
            AsyncSession(self._writers, expire_on_commit=False, info=self.info) as session,
            session.begin(),
        ):
            # Take the locks in sorted order, so that two gateways never wait for each other.
            for lock in sorted(set(locks)):
                wait = max(1, int(1000 * (ends - loop.time())))
                session.info[NOW] = await _read_time(session, ACQUIRE_LOCK, lock=lock, wait=str(wait))
            if not locks:
                session.info[NOW] = await _read_time(session, WRITE_TIME)
            if patient:
                await (await session.connection()).execute(PATIENT_WRITE)
            yield session
            await _send_notifications(session)
        mark_committed()

    def listener(
        self, on_notify: Callable[[str], None], on_connection_change: Callable[[bool], None]
    ) -> Listener:
        """Return a listener for notifications from other gateways."""
        return Listener(self, on_notify, on_connection_change)

    def stalled_sessions(self) -> "StalledSessions":
        """Return the background task that ends database sessions of gateways that stopped responding."""
        return StalledSessions(self)

    def usage(self) -> Mapping[str, Usage]:
        """Return the numbers of used and free connections of each connection pool, by the name of the pool."""
        return pool_usage(readers=self._readers, exporters=self._exporters, writers=self._writers)

    async def close(self) -> None:
        """Close all connections."""
        await self._readers.dispose()
        await self._exporters.dispose()
        await self._writers.dispose()

    async def connect(self, silence: float | None = SILENCE) -> "Connection":
        """Open a connection with the session settings of the gateway.

        A statement fails after `silence` seconds without a response. With None, it waits without limit.
        """
        return await self._connector.connect(timeout=CONNECT_TIMEOUT, command_timeout=silence)

    @property
    def connector(self) -> Connector:
        """Object that opens connections to the database."""
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
            # Test each connection before its use, because a restart of the server closes all connections and no request
            # should fail because of this.
            pool_pre_ping=True,
            # Keep the values of statements out of SQLAlchemy's error messages, because they may be password hashes or
            # tool arguments.
            hide_parameters=True,
        )


async def _send_notifications(session: AsyncSession) -> None:
    # Flush first, because event handlers of the models may add notifications when SQLAlchemy writes changed rows.
    await session.flush()
    if notices := pending_notifications(session):
        await (await session.connection()).execute(NOTIFY, {"notices": notices})


async def _read_time(session: AsyncSession, statement: TextClause, **values: str) -> datetime:
    connection = await session.connection()
    moment: datetime = (await connection.execute(statement, values)).scalar_one()
    return moment


async def _check_server(connection: AsyncConnection) -> None:
    settings = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'server_encoding', 'fsync')"
    rows = await connection.execute(text(settings))
    found: dict[str, str] = {row.name: row.setting for row in rows}
    if int(found["server_version_num"]) < OLDEST:
        raise StorageError(f"the PostgreSQL server is too old; use version {OLDEST // 10000} or newer")
    if found["server_encoding"] != "UTF8":
        raise StorageError(
            f"the PostgreSQL database's encoding is {found['server_encoding']!r}, which cannot store every text; "
            "create it with ENCODING 'UTF8'"
        )
    if found["fsync"] != "on":
        logger.warning("the PostgreSQL server runs with fsync=off: a power failure may lose committed data")


async def _migrate_once(connection: AsyncConnection, stalled: "StalledSessions") -> bool:
    """Run the next migration, or all migrations if the database is empty. Return True if more are pending."""
    # If several gateways start at the same time, only the holder of this lock runs the migrations. The other gateways
    # wait for the lock and then find no pending migrations.
    await connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('toolgate schema', 0))"))
    for _ in range(MIGRATION_ATTEMPTS):
        try:
            async with connection.begin_nested():
                await connection.execute(text(f"SET LOCAL lock_timeout = {MIGRATION_LOCK_TIMEOUT}"))
                return await connection.run_sync(upgrade_once)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
        # End sessions of gateways that stopped responding, because their read transactions may hold the lock of a
        # table. The migration does this itself, because running gateways of the previous version may lack this task.
        stalled.start()
        # Pause after the rollback to the savepoint. The migration now holds no locks of tables, so waiting transactions
        # can continue.
        await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - random jitter, not cryptography
    raise StorageError(
        f"the schema cannot be migrated: other transactions locked its tables in each of {MIGRATION_ATTEMPTS} attempts; "
        "end long transactions of other clients (see pg_stat_activity) and start again"
    )


def _describe_error(error: Exception) -> str:
    match error:
        case DBAPIError(orig=BaseException() as orig):
            return str(orig).rpartition(">: ")[2].splitlines()[0]
        case TimeoutError():
            return f"no response within {CONNECT_TIMEOUT} seconds"
        case asyncpg.InterfaceError() | ValueError() | OverflowError():
            # Omit the messages of these exceptions, because they contain the URL of the database with its password.
            return "the URL cannot be used"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class StalledSessions:
    """Background task that ends database sessions of unresponsive gateways if other sessions wait for their locks.

    The server's own timeouts miss such a session in three cases. First, the gateway stopped between the two steps in
    which the driver sends a new statement: the session then counts as active, and before PostgreSQL 17 no timeout
    applies. Second, the gateway does not read a response: the session then counts as active too. Third, the session is
    in a read transaction, which may be idle much longer than a write transaction.

    Every gateway therefore looks twice per second for stalled sessions of its database role. A migration does the same
    more often while it waits for the lock of a table.

    Args:
        database: Database whose sessions are checked.
        interval: Seconds between two checks.
        idle: Application names of the sessions that are ended if they are idle in a transaction.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        interval: float = STALLED_CHECK_INTERVAL,
        idle: Sequence[str] = IDLE_SESSIONS,
    ) -> None:
        self._database = database
        self._interval = interval
        self._idle = idle
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task, unless it is already running."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the background task and close its connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            # Do not log errors of the connection here, because the code that needs the database logs that it is
            # unavailable.
            with contextlib.suppress(*DRIVER_FAULTS):
                await self._watch()
            await asyncio.sleep(RECONNECT_PAUSE)

    async def _watch(self) -> None:
        connection = await self._database.connect(STALLED_CHECK_TIMEOUT)
        try:
            while True:
                ended = await connection.fetchval(_END_STALLED, self._idle)
                if ended:
                    logger.warning(
                        "ended %d database sessions of a gateway that stopped responding, because other sessions "
                        "waited for the locks of these sessions",
                        ended,
                    )
                await asyncio.sleep(self._interval)
        finally:
            connection.terminate()


async def prevent_drops(session: AsyncSession, table: str) -> None:
    """Prevent other transactions from dropping a table or its partitions until the session ends.

    A long export calls this function first. Otherwise, the rows of a partition that is dropped during the export would
    be missing, although the snapshot of the export is older.
    """
    await (await session.connection()).execute(text(f"LOCK TABLE {table} IN ACCESS SHARE MODE"))
