"""The gateway's database in one SQLite file."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sqlalchemy import AsyncAdaptedQueuePool
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import StorageError
from toolgate_service.storage.database import EXPORTS, Usage, parse_url
from toolgate_service.storage.migrate import demand, upgrade
from toolgate_service.storage.pools import usage_of
from toolgate_service.storage.sqlite_dialect import DRIVER, Connection
from toolgate_service.storage.sqlite_statements import BUSY_TIMEOUT, PATIENCE, Statements, is_busy
from toolgate_service.tracing.transactions import traced

#: Connections that requests read by.
READERS = 4
#: What a URL of a file may begin with; the gateway uses a driver of its own.
DRIVERS = ("sqlite", "sqlite+aiosqlite", "sqlite+pysqlite")
#: How long a start waits between two attempts, in seconds.
LOOK_AGAIN = 0.05


class SqliteDatabase:
    """An SQLite file in WAL mode, every commit synced to disk before it is acknowledged.

    SQLite has one writer at a time. `write_turn` gives this process's writers their turns in order of arrival;
    SQLite's own lock, which has no queue, is left to settle between processes.

    Attributes:
        path: the file.
        write_turn: held by whoever writes.
        info: what every write transaction carries in its session's `info`.
    """

    def __init__(self, url: str) -> None:
        self.path = sqlite_path(url)
        self.write_turn = asyncio.Lock()
        self.info: dict[str, object] = {}
        self._threads = ThreadPoolExecutor(READERS + EXPORTS + 1, thread_name_prefix="sqlite")
        self._readers = _engine(self.path, self._threads, "BEGIN", READERS)
        # What is read at length would only begin in vain on the event loop's thread.
        self._exporters = _engine(self.path, self._threads, "BEGIN", EXPORTS, patience=0)
        self._writer = _engine(self.path, self._threads, "BEGIN IMMEDIATE", 1)

    async def start(self, *, migrate: bool = True) -> None:
        """Create the file and its folder if they are missing, and bring the schema up to date.

        Args:
            migrate: otherwise a schema that is older than this version's is refused.

        Raises:
            StorageError: the file cannot be created or written, is no database, or is a newer version's.
        """
        if migrate:
            create_private(self.path)
        elif not self.path.exists():
            raise StorageError(f"there is no database {str(self.path)!r}; make it with 'toolgate db upgrade'")
        async with self.opened() as connection:
            await connection.run_sync(upgrade if migrate else demand)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction on the file as it is; others read meanwhile and do not write.

        Raises:
            StorageError: the file cannot be used or is no database.
        """
        try:
            async with self._begun() as connection:
                yield connection
        except DBAPIError as error:
            raise StorageError(
                f"cannot use the database {str(self.path)!r}: {error.orig}; name a file in a folder you may write "
                "with TOOLGATE_DATABASE_URL=sqlite:///PATH"
            ) from error

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Open a session on one consistent snapshot."""
        async with AsyncSession(self._readers, expire_on_commit=False) as session:
            yield session

    @traced("toolgate.gateway.read")
    @asynccontextmanager
    async def exporting(self) -> AsyncIterator[AsyncSession]:
        """Open a session on one consistent snapshot for a long read, beside the connections that requests wait for."""
        async with AsyncSession(self._exporters, expire_on_commit=False) as session:
            yield session

    @traced("toolgate.gateway.write")
    @asynccontextmanager
    async def writing(
        self,
        *_turns: str,
        until: float | None = None,  # noqa: ARG002 - SQLite's own busy timeout bounds the wait
        patient: bool = False,  # noqa: ARG002 - no server could lose this process
    ) -> AsyncIterator[AsyncSession]:
        """Open a write transaction; SQLite has one writer, so that all turns are the same."""
        async with (
            self.write_turn,
            AsyncSession(self._writer, expire_on_commit=False, info=self.info) as session,
            session.begin(),
        ):
            # Now, not at the first statement: what is read from a file before it belongs to this turn as well.
            await session.connection()
            yield session

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
                    # While one process turns a new file to WAL mode, SQLite refuses another without waiting for it.
                    if not is_busy(error.orig) or loop.time() >= deadline:
                        raise
                    await asyncio.sleep(LOOK_AGAIN)
            yield connection

    def usage(self) -> Mapping[str, Usage]:
        """Return how each pool of connections is used, by its name."""
        return usage_of(readers=self._readers, exporters=self._exporters, writers=self._writer)

    async def close(self) -> None:
        """Close every connection."""
        await self._readers.dispose()
        await self._exporters.dispose()
        await self._writer.dispose()
        self._threads.shutdown()


def sqlite_path(url: str) -> Path:
    """Return the file that a database URL names.

    Raises:
        StorageError: the URL is none, names another kind of database, or no file.
    """
    try:
        parsed = parse_url(url)
    except (ArgumentError, ValueError):
        raise StorageError("TOOLGATE_DATABASE_URL is not a database URL; write sqlite:///PATH") from None
    if parsed.get_backend_name() != "sqlite":
        raise StorageError(
            f"TOOLGATE_DATABASE_URL names the database {parsed.get_backend_name()!r}, which this version does not "
            "serve; write sqlite:///PATH"
        )
    if parsed.drivername not in DRIVERS or parsed.host or parsed.username:
        raise StorageError("TOOLGATE_DATABASE_URL is not the URL of a file; write sqlite:///PATH")
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise StorageError("TOOLGATE_DATABASE_URL names no file; write sqlite:///PATH")
    if "\0" in parsed.database:
        raise StorageError("TOOLGATE_DATABASE_URL names a file with a NUL character; write sqlite:///PATH")
    try:
        return Path(parsed.database).expanduser().absolute()
    except RuntimeError as error:
        raise StorageError(f"TOOLGATE_DATABASE_URL: {error}; write sqlite:///PATH") from None


def create_private(path: Path) -> None:
    """Create a file for its owner alone, and the folder if it is missing, likewise (decisions §9).

    Raises:
        StorageError: it cannot be created or opened for writing.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StorageError(
            f"cannot write the database {str(path)!r}: {error.strerror}; name a file in a folder you may write with "
            "TOOLGATE_DATABASE_URL=sqlite:///PATH"
        ) from error


def _engine(
    path: Path, threads: Executor, begin: str, pool_size: int, patience: float = PATIENCE
) -> AsyncEngine:
    def connect() -> Connection:
        # The driver must not open transactions by itself: the dialect does, with the lock we want.
        raw = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            raw.execute(pragma)
        raw.execute("PRAGMA busy_timeout = 0")
        return Connection(raw, Statements(raw, threads, patience), begin)

    return create_async_engine(
        URL.create(DRIVER, database=str(path)),
        creator=connect,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=pool_size,
        max_overflow=0,
        # A failed statement is logged; what it was to write may be a password's hash or a call's context.
        hide_parameters=True,
    )


#: FULL: a commit is on disk when it returns, also in WAL mode. MEMORY: SQLite would put parts of a large transaction
#: into a file of its own in /var/tmp, which may be full, or not ours to write.
PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)
