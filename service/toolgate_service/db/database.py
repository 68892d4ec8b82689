"""Interface of the gateway's database, and the function that opens SQLite or PostgreSQL depending on the URL."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast
from urllib.parse import unquote

from sqlalchemy import QueuePool
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.clock import utcnow
from toolgate_service.core.errors import StorageError

if TYPE_CHECKING:
    from toolgate_service.db.postgres import StalledSessions
    from toolgate_service.db.pubsub import Listener

#: key in the dictionary `info` of a session; the value is the time of the database's clock
NOW = "toolgate.now"

#: name of the lock that a transaction must hold to change values that are unique across all organizations: e-mail
#: addresses and slugs
ACCOUNTS = "accounts"

POSTGRES = ("postgresql", "postgres")
WRITE = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

#: maximum number of exports that run at the same time
EXPORTS = 4
#: default time in seconds after which a write transaction stops waiting for its locks
LOCK_TIMEOUT = 10.0


class Usage(NamedTuple):
    """Numbers of used and free connections in a connection pool.

    Attributes:
        busy: Connections in use.
        idle: Open connections that are not in use.
        waiting: Tasks that wait for a connection; None if the pool does not count them.
    """

    busy: int
    idle: int
    waiting: int | None = None


class Database(Protocol):
    """Interface of the gateway's database: sessions that read a snapshot, and write transactions that hold locks.

    Attributes:
        info: Values that each write transaction copies into the dictionary `info` of its session.
    """

    info: dict[str, object]

    async def start(self, *, migrate: bool = True) -> None:
        """Connect to the database and migrate its schema.

        With `migrate=False`, the schema is not changed, and an outdated schema is an error.

        Raises:
            StorageError: The database cannot be used. The message contains the reason and the fix.
        """

    def opened(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a transaction without checking the version of the schema.

        If an SQLite file does not exist, it is created without tables.

        Raises:
            StorageError: The database cannot be used. The message contains the reason and the fix.
        """

    def reading(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a session for reading. All its queries read the same snapshot of the database."""

    def exporting(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a session for a long export. All its queries read the same snapshot of the database.

        Exports use `EXPORTS` separate connections. If all of them are in use, the call waits.
        """

    def writing(
        self, *locks: str, until: float | None = None, patient: bool = False
    ) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a write transaction that holds named locks.

        The transaction is committed and synced to disk when the `with` block ends, and rolled back if the block raises
        an exception.

        Args:
            locks: Names of the locks to hold until the transaction ends, such as the id of an organization, or
                `ACCOUNTS` for values that are unique across organizations. While a transaction holds the lock of an
                organization, no other transaction makes decisions or changes settings of this organization.
            until: Deadline for taking the locks, in the time of the event loop; by default `LOCK_TIMEOUT` seconds from
                now.
            patient: True to allow pauses of several seconds between two statements. If False, PostgreSQL soon ends a
                transaction that pauses, so that a gateway that stopped responding does not block other gateways with
                its locks.

        Raises:
            StorageFault: A lock was not available before the deadline, or the database cannot be used.
        """

    def listener(
        self, on_notify: Callable[[str], None], on_connection_change: Callable[[bool], None]
    ) -> "Listener | None":
        """Return a listener for notifications from other gateways; None for SQLite, which only one gateway uses."""

    def stalled_sessions(self) -> "StalledSessions | None":
        """Return the background task that ends database sessions of unresponsive gateways; None for SQLite."""

    def usage(self) -> Mapping[str, Usage]:
        """Return the numbers of used and free connections of each connection pool, by the name of the pool."""

    async def close(self) -> None:
        """Close all connections."""


def open_database(url: str) -> Database:
    """Return the database for a URL, without connecting to it.

    Raises:
        StorageError: The URL is invalid, or the gateway does not support this kind of database.
    """
    try:
        parsed = parse_url(one_host(url))
    except (ArgumentError, ValueError):
        raise StorageError(f"TOOLGATE_DATABASE_URL is not a database URL; {WRITE}") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        from toolgate_service.db.sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if backend in POSTGRES:
        if parsed.drivername not in {*POSTGRES, "postgresql+asyncpg"}:
            raise StorageError(
                f"TOOLGATE_DATABASE_URL names the driver {parsed.drivername!r}, which the gateway does not support; {WRITE}"
            )
        try:
            from toolgate_service.db.postgres import PostgresDatabase
        except ModuleNotFoundError as error:
            raise StorageError(
                f"PostgreSQL needs the module {error.name!r}; install it with: pip install 'toolgate[postgres]'"
            ) from error
        try:
            return PostgresDatabase(url)
        except ValueError as error:
            raise StorageError(f"TOOLGATE_DATABASE_URL cannot be used: {error}; {WRITE}") from None
    raise StorageError(
        f"TOOLGATE_DATABASE_URL names the database {backend!r}, which the gateway does not support; {WRITE}"
    )


def parse_url(url: str) -> URL:
    """Parse a database URL. A percent-encoded name of the database is decoded.

    Raises:
        ArgumentError, ValueError: The URL cannot be parsed.
    """
    parsed = make_url(url)
    if not _DATABASE_IS_DECODED and parsed.database:
        return parsed.set(database=unquote(parsed.database))
    return parsed


# SQLAlchemy 2.0 returns the name of the database percent-encoded, and 2.1 returns it decoded. Find out which version is
# installed, because the same URL must refer to the same file with both.
_DATABASE_IS_DECODED = make_url("sqlite:///%20").database == " "


def one_host(url: str) -> str:
    """Return a database URL with only the first of its hosts, because SQLAlchemy cannot parse a list of hosts."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    return f"{scheme}{separator}{user}{at}{hosts.partition(',')[0]}{slash}{path}"


def now(session: AsyncSession) -> datetime:
    """Return the current time of the database's clock.

    On PostgreSQL, the result is the time at which the session began or took its last lock. On SQLite, it is the current
    time of this machine.
    """
    read: datetime | None = session.info.get(NOW)
    return read or utcnow()


def pool_usage(**engines: AsyncEngine) -> Mapping[str, Usage]:
    """Return the numbers of used and free connections in the connection pool of each engine, by name."""
    return {name: _usage(engine) for name, engine in engines.items()}


def _usage(engine: AsyncEngine) -> Usage:
    pool = cast("QueuePool", engine.pool)
    return Usage(pool.checkedout(), pool.checkedin())
