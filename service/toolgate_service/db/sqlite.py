"""SQLite implementation of the gateway's database."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sqlalchemy import AsyncAdaptedQueuePool
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.errors import StorageError, StorageFault
from toolgate_service.core.telemetry import traced
from toolgate_service.db.database import EXPORTS, LOCK_TIMEOUT, Usage, parse_url, pool_usage
from toolgate_service.db.migrate import require_current, upgrade
from toolgate_service.db.sqlite_driver import BUSY_TIMEOUT, DRIVER, PATIENCE, Connection, Statements, is_busy

#: maximum number of connections for reading
READERS = 4
#: accepted schemes of the database URL; all of them have the same effect, because the gateway always uses its own
#: driver
DRIVERS = ("sqlite", "sqlite+aiosqlite", "sqlite+pysqlite")
#: seconds between two attempts to open a file that another process initializes
OPEN_RETRY = 0.05


class SqliteDatabase:
    """SQLite implementation of `Database`, with a file in WAL mode. Each commit is synced to disk before it returns.

    SQLite allows one writer at a time. Writers in this process wait for `write_lock` in the order of arrival. Writers
    in different processes compete for the file lock of SQLite, which has no queue.

    Attributes:
        path: Path of the database file.
        write_lock: Lock that each write transaction of this process holds.
        info: Values that each write transaction copies into the dictionary `info` of its session.
    """

    def __init__(self, url: str) -> None:
        self.path = sqlite_path(url)
        self.write_lock = asyncio.Lock()
        self.info: dict[str, object] = {}
        self._threads = ThreadPoolExecutor(READERS + EXPORTS + 1, thread_name_prefix="sqlite")
        self._readers = _engine(self.path, self._threads, "BEGIN", READERS)
        # Move the slow reads of an export to a thread without delay (`patience=0`).
        self._exporters = _engine(self.path, self._threads, "BEGIN", EXPORTS, patience=0)
        self._writer = _engine(
            self.path, self._threads, "BEGIN IMMEDIATE", 1, busy_timeout=self._remaining_time
        )
        #: deadline, in the time of the event loop, of the write transaction that waits for the file lock; None if none
        #: waits
        self._lock_deadline: float | None = None

    async def start(self, *, migrate: bool = True) -> None:
        """Create the file and its folder if they are missing, and migrate the schema.

        With `migrate=False`, nothing is created or changed, and a missing file or an outdated schema is an error.

        Raises:
            StorageError: The file cannot be written or is not a database, or this version of the gateway cannot use its
                schema.
        """
        if migrate:
            create_private(self.path)
        elif not self.path.exists():
            raise StorageError(
                f"there is no database {str(self.path)!r}; create it with 'toolgate db upgrade'"
            )
        async with self.opened() as connection:
            await connection.run_sync(upgrade if migrate else require_current)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncConnection]:
        """Open a write transaction without checking the version of the schema.

        Raises:
            StorageError: The file cannot be used or is not a database.
        """
        try:
            async with self._begun() as connection:
                yield connection
        except DBAPIError as error:
            raise StorageError(
                f"cannot use the database {str(self.path)!r}: {error.orig}; name a file in a writable "
                "folder with TOOLGATE_DATABASE_URL=sqlite:///PATH"
            ) from error

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Open a session for reading. All its queries read the same snapshot of the database."""
        async with AsyncSession(self._readers, expire_on_commit=False) as session:
            yield session

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def exporting(self) -> AsyncIterator[AsyncSession]:
        """Open a session for a long export on a separate connection. All its queries read the same snapshot."""
        async with AsyncSession(self._exporters, expire_on_commit=False) as session:
            yield session

    @traced("toolgate.gateway.write")
    @asynccontextmanager
    async def writing(
        self,
        *_locks: str,
        until: float | None = None,
        patient: bool = False,  # noqa: ARG002 - SQLite has no server that ends idle transactions
    ) -> AsyncIterator[AsyncSession]:
        """Open a write transaction. The names of the locks are ignored, because SQLite allows only one writer.

        Raises:
            StorageFault: The write lock was not available before the deadline.
        """
        ends = asyncio.get_running_loop().time() + LOCK_TIMEOUT if until is None else until
        async with (
            self._locked(ends),
            AsyncSession(self._writer, expire_on_commit=False, info=self.info) as session,
            session.begin(),
        ):
            # Begin the transaction now and not at the first statement: the `with` block of the caller may read the file
            # with the gateway's secret, which other processes change only while they hold the write lock.
            self._lock_deadline = ends
            try:
                await session.connection()
            except DBAPIError as error:
                if not is_busy(error.orig):
                    raise
                raise StorageFault("the write transaction of another process took too long") from error
            finally:
                self._lock_deadline = None
            yield session

    @asynccontextmanager
    async def _locked(self, ends: float) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(ends):
                    await stack.enter_async_context(self.write_lock)
            except TimeoutError:
                raise StorageFault(
                    "the change could not begin, because other changes to the database took too long"
                ) from None
            yield

    def _remaining_time(self) -> float:
        if self._lock_deadline is None:
            return BUSY_TIMEOUT
        return min(BUSY_TIMEOUT, max(0, self._lock_deadline - asyncio.get_running_loop().time()))

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[AsyncConnection]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BUSY_TIMEOUT
        async with AsyncExitStack() as stack:
            connection: AsyncConnection | None = None
            while connection is None:
                try:
                    connection = await stack.enter_async_context(self._writer.begin())
                except DBAPIError as error:
                    # Try again: SQLite returns "busy" without waiting while another process switches a new file to WAL
                    # mode.
                    if not is_busy(error.orig) or loop.time() >= deadline:
                        raise
                    await asyncio.sleep(OPEN_RETRY)
            yield connection

    def listener(
        self,
        on_notify: Callable[[str], None],
        on_connection_change: Callable[[bool], None],
    ) -> None:
        """Return None, because no other gateway uses the database."""

    def stalled_sessions(self) -> None:
        """Return None, because no other gateway has sessions in the database."""

    def usage(self) -> Mapping[str, Usage]:
        """Return the numbers of used and free connections of each connection pool, by the name of the pool."""
        return pool_usage(readers=self._readers, exporters=self._exporters, writers=self._writer)

    async def close(self) -> None:
        """Close all connections."""
        await self._readers.dispose()
        await self._exporters.dispose()
        await self._writer.dispose()
        self._threads.shutdown()


def sqlite_path(url: str) -> Path:
    """Return the path of the SQLite file in a database URL.

    Raises:
        StorageError: The URL is invalid, or it is not the URL of an SQLite file.
    """
    try:
        parsed = parse_url(url)
    except (ArgumentError, ValueError):
        raise StorageError("TOOLGATE_DATABASE_URL is not a database URL; write sqlite:///PATH") from None
    if parsed.get_backend_name() != "sqlite":
        raise StorageError(
            f"TOOLGATE_DATABASE_URL names the database {parsed.get_backend_name()!r}, which is not SQLite; "
            "write sqlite:///PATH"
        )
    if parsed.drivername not in DRIVERS or parsed.host or parsed.username:
        raise StorageError("TOOLGATE_DATABASE_URL is not the URL of a file; write sqlite:///PATH")
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise StorageError(
            "TOOLGATE_DATABASE_URL does not contain the path of a file; write sqlite:///PATH, for example sqlite:///toolgate.db"
        )
    if "\0" in parsed.database:
        raise StorageError(
            "TOOLGATE_DATABASE_URL contains a NUL character in the path of the file; write sqlite:///PATH without it"
        )
    try:
        return Path(parsed.database).expanduser().absolute()
    except RuntimeError as error:
        raise StorageError(f"TOOLGATE_DATABASE_URL: {error}; write sqlite:///PATH") from None


def create_private(path: Path) -> None:
    """Create a file and its folder unless they exist. Only the user who runs the process can access new ones.

    Raises:
        StorageError: The file cannot be created or opened for writing.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StorageError(
            f"cannot write the database {str(path)!r}: {error.strerror}; set TOOLGATE_DATABASE_URL to "
            "sqlite:///PATH with a file in a writable folder"
        ) from error


def _engine(
    path: Path,
    threads: Executor,
    begin: str,
    pool_size: int,
    patience: float = PATIENCE,
    busy_timeout: Callable[[], float] = lambda: BUSY_TIMEOUT,
) -> AsyncEngine:
    def connect() -> Connection:
        # Use the driver in autocommit mode, because the SQLAlchemy dialect begins each transaction itself, with the
        # statement that the parameter `begin` contains.
        raw = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            raw.execute(pragma)
        raw.execute("PRAGMA busy_timeout = 0")
        return Connection(raw, Statements(raw, threads, patience, busy_timeout), begin)

    return create_async_engine(
        URL.create(DRIVER, database=str(path)),
        creator=connect,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=pool_size,
        max_overflow=0,
        # Keep the values of statements out of SQLAlchemy's error messages, because they may be password hashes or tool
        # arguments.
        hide_parameters=True,
    )


#: Settings of each connection. `synchronous = FULL` syncs each commit to disk, also in WAL mode. `temp_store = MEMORY`
#: keeps temporary data in memory; otherwise, SQLite would write it to /var/tmp, which may be full or read-only.
PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)
