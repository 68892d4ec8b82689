"""The gateway's database, whichever it is: read from on one snapshot, written to in turns."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.clock import utcnow
from toolgate_service.errors import StorageError

#: where a session keeps the moment that its database's clock showed
NOW = "toolgate.now"

#: the turn of whoever changes what is unique across organizations: e-mail addresses and slugs
ACCOUNTS = "accounts"

POSTGRES = ("postgresql", "postgres")
WRITE = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

#: long reads that may run at the same time
EXPORTS = 4
#: seconds that a write transaction waits for its turns, unless its caller has a deadline of its own
TURN_TIMEOUT = 10.0


class Usage(NamedTuple):
    """How a pool of connections is used.

    Attributes:
        busy: connections that somebody has.
        idle: those that are open, and unused.
        waiting: who waits for one; None where the pool does not say.
    """

    busy: int
    idle: int
    waiting: int | None = None


class Database(Protocol):
    """What a request may ask of the database.

    Attributes:
        info: what every write transaction carries in its session's `info`.
    """

    info: dict[str, object]

    async def start(self, *, migrate: bool = True) -> None:
        """Connect, and bring the schema up to date.

        Args:
            migrate: otherwise a schema that is older than this version's is refused.

        Raises:
            StorageError: the database cannot be used; the message says why and names the cure.
        """

    def opened(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a transaction on the database as it is: whatever its schema, and nothing is made but the file.

        Raises:
            StorageError: the database cannot be used; the message says why and names the cure.
        """

    def reading(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a session on one consistent snapshot."""

    def exporting(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a session on one consistent snapshot for a long read, beside the connections that requests wait for.

        There are `EXPORTS` of them; whoever asks for one more waits.
        """

    def writing(
        self, *turns: str, until: float | None = None, patient: bool = False
    ) -> AbstractAsyncContextManager[AsyncSession]:
        """Open a write transaction: committed and on disk when the block ends, rolled back when it raises.

        Args:
            turns: whoever names the same one waits until this transaction has ended, so that what was counted or
                looked for in it stays true until it is committed. The organization's id for its own affairs,
                `ACCOUNTS` for what is unique across organizations.
            until: the loop's time at which waiting for the turns ends; after `TURN_TIMEOUT` by default.
            patient: whether the transaction may compute for seconds between two statements. A server ends any other
                after a moment, since a gateway that froze would keep its turns from all others.

        Raises:
            StorageFault: the turns did not come in time, or the database cannot be used.
        """

    def usage(self) -> Mapping[str, Usage]:
        """Return how each pool of connections is used, by its name."""

    async def close(self) -> None:
        """Close every connection."""


def open_database(url: str) -> Database:
    """Return the database that a URL names, not yet connected.

    Raises:
        StorageError: the URL is none, or names a kind of database that the gateway does not serve.
    """
    try:
        parsed = parse_url(one_host(url))
    except (ArgumentError, ValueError):
        raise StorageError(f"TOOLGATE_DATABASE_URL is not a database URL; {WRITE}") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        from toolgate_service.storage.sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if backend in POSTGRES:
        if parsed.drivername not in {*POSTGRES, "postgresql+asyncpg"}:
            raise StorageError(
                f"TOOLGATE_DATABASE_URL names the driver {parsed.drivername!r}, which the gateway does not use; {WRITE}"
            )
        try:
            from toolgate_service.storage.postgres import PostgresDatabase
        except ModuleNotFoundError as error:
            raise StorageError(
                f"PostgreSQL needs the module {error.name!r}; install it with: pip install 'toolgate[postgres]'"
            ) from error
        try:
            return PostgresDatabase(url)
        except ValueError as error:
            raise StorageError(f"TOOLGATE_DATABASE_URL cannot be used: {error}; {WRITE}") from None
    raise StorageError(
        f"TOOLGATE_DATABASE_URL names the database {backend!r}, which the gateway does not serve; {WRITE}"
    )


def parse_url(url: str) -> URL:
    """Parse a database URL, with a percent-encoded database name decoded.

    Raises:
        ArgumentError, ValueError: the URL cannot be parsed.
    """
    parsed = make_url(url)
    if not _DATABASE_IS_DECODED and parsed.database:
        return parsed.set(database=unquote(parsed.database))
    return parsed


# SQLAlchemy 2.0 leaves the name as it is written and 2.1 decodes it: the same URL must name the same file with both.
_DATABASE_IS_DECODED = make_url("sqlite:///%20").database == " "


def one_host(url: str) -> str:
    """Return a database URL with the first of its hosts alone, as SQLAlchemy reads it."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    return f"{scheme}{separator}{user}{at}{hosts.partition(',')[0]}{slash}{path}"


def is_embedded(url: str) -> bool:
    """Say whether a URL names a file of this machine, and not a server."""
    return url.startswith("sqlite")


def now(session: AsyncSession) -> datetime:
    """Return the present moment by the database's clock (decisions §12).

    PostgreSQL's was read when the session got its turn; SQLite has no other clock than this machine's.
    """
    read: datetime | None = session.info.get(NOW)
    return read or utcnow()
