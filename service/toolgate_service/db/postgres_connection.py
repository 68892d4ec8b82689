"""Connections to PostgreSQL: choice of the host, session settings, detection of poolers, errors, connection pool.

The session settings are sent after connecting, because PgBouncer rejects them in the startup packet. The settings for
durability and locks are applied in each transaction, because behind a pooler another client may have changed the
settings of the session.

The connection pool in this module serves statements that do not use SQLAlchemy: authentication, rate limits and log
entries.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from sqlalchemy.exc import DBAPIError

from toolgate_service.core.concurrency import DEADLINE
from toolgate_service.core.errors import LostRace, StorageError
from toolgate_service.db.database import Usage
from toolgate_service.db.retry import storage_fault, with_retry

if TYPE_CHECKING:
    from toolgate_service.db.postgres import PostgresDatabase

    #: defined only for type checkers, because the classes of asyncpg are not generic at run time
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

#: Exceptions for failures of the server or the network. After the server has closed a connection, the driver raises
#: `InternalClientError` ("cannot switch to state 12") until the client closes its side too.
DRIVER_FAULTS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

#: application name of each connection, which the server shows in its list of sessions
APPLICATION = "toolgate"
#: application name during an export, which may be idle in a transaction while a slow client reads the rows
EXPORT = "toolgate export"
#: application name during a migration or an operator's command, which may be idle for seconds while it computes
PATIENT_APPLICATION = "toolgate patient"

#: session settings of each connection, with timeouts in milliseconds; JIT compilation is off, because for short
#: statements it takes longer than it saves
SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": APPLICATION,
    "lock_timeout": "10000",
    "statement_timeout": "30000",
    "idle_in_transaction_session_timeout": "90000",
    # If the gateway's machine loses its network, the server closes the connection after 30 seconds instead of two
    # hours.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # Override the default of the server, because after waiting for a lock, a transaction must see the commits made
    # meanwhile.
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # Set the date style, because the gateway parses dates that the server formats: the bounds of log partitions.
    "datestyle": "ISO",
    "jit": "off",
}

#: milliseconds without a new statement after which the server ends a write transaction; the time is short, because
#: other gateways may wait for the lock of an organization that the transaction holds
IDLE_IN_WRITE = 1_500
#: milliseconds after which the server closes the connection of a write transaction whose client does not read the
#: response
UNSENT_IN_WRITE = 2_000

#: SQL expression that turns `synchronous_commit` on for the transaction if it is off, because a committed change must
#: be on disk. If the operator has set a stricter value, for example `remote_apply`, it does not change.
_DURABLE = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, true)"
)

#: SQL expression that applies the settings of write transactions to the current transaction only
WRITE_SETTINGS = (
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_IN_WRITE}', true) || "
    f"set_config('tcp_user_timeout', '{UNSENT_IN_WRITE}', true) || {_DURABLE}"
)

#: SQL condition that is always true, with a side effect: the current transaction is committed without waiting for the
#: disk. Use it only for data that may be lost in a crash of the server, such as counts for rate limits.
COMMIT_FROM_MEMORY = "set_config('synchronous_commit', 'off', true) = 'off'"


class Host(NamedTuple):
    """One host in a database URL.

    Attributes:
        name: Host name, IP address, or folder of a Unix socket.
        port: TCP port, or the number in the name of the Unix socket.
    """

    name: str
    port: int


class Connector:
    """Factory of connections to the host of a database URL. If the URL has several hosts, it selects the writable one.

    The URL has the format of libpq, in which hosts are separated by commas.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._hosts = hosts_of(dsn)
        #: index of the host to which the last connection was opened; this host is tried first
        self._preferred = 0

    async def connect(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - the time is divided between the hosts
        command_timeout: float | None,
        settings: Mapping[str, str] | None = None,
        statement_cache_size: int = 100,
    ) -> "Connection":
        """Open a connection with the session settings of the gateway.

        Args:
            timeout: Time in seconds after which connecting fails. Several hosts share this time equally, because a host
                that is shut down does not respond at all.
            command_timeout: Time in seconds after which a statement fails; None waits without limit.
            settings: Additional session settings.
            statement_cache_size: Maximum number of prepared statements that the driver caches; 0 disables the cache.

        Raises:
            OSError: No host can be reached, or no host is writable.
            asyncpg.PostgresError: The server rejects the connection.
        """
        connection = await self._open(timeout, command_timeout, statement_cache_size)
        try:
            await connection.execute(_session({**SESSION_SETTINGS, **(settings or {})}), timeout=timeout)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _open(
        self,
        timeout: float,  # noqa: ASYNC109 - the time is divided between the hosts
        command_timeout: float | None,
        statement_cache_size: int,
    ) -> "Connection":
        if len(self._hosts) < 2:  # noqa: PLR2004 - a single host needs no selection
            return await asyncpg.connect(
                self.dsn,
                timeout=timeout,
                command_timeout=command_timeout,
                statement_cache_size=statement_cache_size,
            )
        failed: Exception | None = None
        for step in range(len(self._hosts)):
            place = (self._preferred + step) % len(self._hosts)
            host = self._hosts[place]
            try:
                connection: Connection = await asyncpg.connect(
                    self.dsn,
                    host=host.name,
                    port=host.port,
                    timeout=timeout / len(self._hosts),
                    command_timeout=command_timeout,
                    statement_cache_size=statement_cache_size,
                    # Select a writable host, because a standby server accepts connections but no changes.
                    target_session_attrs=SessionAttribute.read_write,
                )
            except asyncpg.TargetServerAttributeNotMatched:
                failed = failed or ConnectionError(
                    "none of the hosts in the database URL is a primary server, which accepts changes"
                )
            except DRIVER_FAULTS as error:
                failed = error
            else:
                self._preferred = place
                return connection
        raise failed or ConnectionError("the database URL contains no host name")


def hosts_of(dsn: str) -> Sequence[Host]:
    """Return the hosts in a database URL. The result is empty if the URL contains none: libpq's defaults then apply.

    Raises:
        ValueError: A port is not a number, or the numbers of hosts and ports differ.
    """
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    default = os.environ.get("PGPORT", "5432")
    names: list[str] = []
    ports: list[str] = []
    netloc = parts.netloc.rpartition("@")[2]
    for each in netloc.split(",") if netloc else ():
        name, separator, port = each.rpartition(":")
        # A colon within brackets is part of an IPv6 address and does not separate a port.
        if not separator or port.endswith("]"):
            name, port = each, ""
        names.append(name.strip("[]"))
        ports.append(port)
    if "host" in query:
        names = query["host"][-1].split(",")
        ports = [""] * len(names)
    if "port" in query:
        given = query["port"][-1].split(",")
        ports = given * len(names) if len(given) == 1 else given
    if len(ports) != len(names):
        raise ValueError("the database URL contains different numbers of hosts and ports")
    numbers = [port or default for port in ports]
    if not all(port.isdecimal() for port in numbers):
        # The error message must not contain the value, because it may be part of a password.
        raise ValueError(
            "a port of the database URL is not a number; percent-encode special characters in the password"
        )
    return [Host(name, int(port)) for name, port in zip(names, numbers, strict=True)]


def _session(settings: Mapping[str, str]) -> str:
    # Send all settings in one statement to save round trips. No name or value is escaped, because all of them are
    # constants.
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())


#: timeout in seconds for the whole check for a connection pooler
TIMEOUT = 10.0
#: number of times that the check for a pooler is repeated, because a pooler may by chance behave like a direct
#: connection
ROUNDS = 3

POOLING_FIX = (
    "set pool_mode = session for this database (PgBouncer: pool_mode in [databases] or [pgbouncer]), or connect to "
    "PostgreSQL directly"
)

#: SQLSTATEs for "prepared statement does not exist" and "prepared statement already exists"; both mean that the pooler
#: has switched the server process
_FOREIGN_STATEMENT = frozenset({"26000", "42P05"})
#: part of the message with which PgBouncer in statement mode rejects a transaction
_NO_TRANSACTIONS = "statement pooling mode"

_MARK = "toolgate.probe"


class _Session(NamedTuple):
    """PostgreSQL session that a transaction observed: the process id of the server, and the value of `_MARK`.

    If two transactions of one connection observe different values, a connection pooler has switched the session.
    """

    pid: int
    mark: str


async def refuse_pooling(connector: "Connector") -> None:
    """Raise an error if a connection pooler in transaction or statement mode is between the gateway and PostgreSQL.

    Raises:
        StorageError: A pooler switches the server process of a client, or its pool has too few connections.
        OSError: The server cannot be reached.
        asyncpg.PostgresError: The server rejects the connection.
    """
    first = await connector.connect(timeout=TIMEOUT, command_timeout=TIMEOUT, statement_cache_size=0)
    try:
        async with asyncio.timeout(TIMEOUT):
            await _probe(connector, first)
    except asyncpg.PostgresError as error:
        if error.sqlstate in _FOREIGN_STATEMENT:
            raise _refusal("transaction") from None
        if _NO_TRANSACTIONS in str(error):
            raise _refusal("statement") from None
        raise
    except TimeoutError:
        raise StorageError(
            f"the PostgreSQL database of TOOLGATE_DATABASE_URL did not accept a second connection within {TIMEOUT:.0f} "
            "seconds; if the URL is that of a connection pooler, its pool is too small: allow 40 connections for each "
            "gateway process (PgBouncer: default_pool_size)"
        ) from None
    finally:
        first.terminate()


async def _probe(connector: "Connector", first: "Connection") -> None:
    mark = secrets.token_hex(8)
    async with first.transaction():
        seen = await _read_session(first)
        await first.execute(f"SET {_MARK} = '{mark}'")
    mine = _Session(seen.pid, mark)
    second = await connector.connect(timeout=TIMEOUT, command_timeout=TIMEOUT, statement_cache_size=0)
    try:
        for _ in range(ROUNDS):
            async with second.transaction():
                other = await _read_session(second)
                # Both connections are open at the same time. If one server process serves both connections, a pooler
                # shares server processes between clients.
                if other.pid == mine.pid or other.mark == mark:
                    raise _refusal("transaction")
                async with first.transaction():
                    if await _read_session(first) != mine:
                        raise _refusal("transaction")
    finally:
        second.terminate()


async def _read_session(connection: "Connection") -> _Session:
    row = await connection.fetchrow(
        f"SELECT pg_backend_pid(), coalesce(current_setting('{_MARK}', true), '')"
    )
    assert row is not None  # noqa: S101 - a SELECT without FROM always returns one row
    return _Session(*row)


def _refusal(mode: str) -> StorageError:
    return StorageError(
        f"TOOLGATE_DATABASE_URL connects to PostgreSQL through a connection pooler in {mode} mode, in which LISTEN, "
        f"prepared statements and session settings do not work; {POOLING_FIX}"
    )


#: Prefixes of the SQLSTATEs of errors that do not result from a mistake in the statement: connection (08), login (28),
#: missing database (3D), rollback because of a concurrent transaction (40), insufficient resources (53), lock not
#: available (55), shutdown or timeout (57), system error (58), and read-only standby (25006).
UNUSABLE = ("08", "28", "3D", "40", "53", "55", "57", "58", "25006")


@asynccontextmanager
async def translate_errors() -> AsyncIterator[None]:
    """Convert errors of the server or of the connection into `StorageFault`.

    Raises:
        StorageFault: The server is temporarily unavailable; the client may repeat the request.
        LostRace: Another transaction caused a rollback; the transaction may be retried immediately.
    """
    try:
        yield
    except DRIVER_FAULTS as error:
        # The driver itself raises these exceptions while it connects and when a connection has just ended. SQLAlchemy
        # wraps all other errors of the driver in `DBAPIError`.
        raise storage_fault(f"PostgreSQL: {type(error).__name__}", getattr(error, "sqlstate", None)) from None
    except DBAPIError as error:
        code = str(getattr(error.orig, "sqlstate", None) or "")
        if not error.connection_invalidated and not code.startswith(UNUSABLE):
            raise
        # Omit the message of the driver, because it may contain values of rows, such as tool arguments.
        raise storage_fault(f"PostgreSQL: {code or type(error.orig).__name__}", code) from None


#: seconds after which an idle connection is closed, because a firewall may silently drop idle connections
IDLE_LIFETIME = 300.0

#: Session settings that make the server use indexes. Each statement of this pool finds a few rows by a key. The server
#: caches query plans: without these settings, the plans that it makes for the empty tables of a new gateway would scan
#: whole tables, and it would use these plans even after the tables have grown.
INDEXED = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class PostgresPool:
    """Connection pool of asyncpg that does not run reset statements when a connection is returned to the pool.

    The reset statements would take longer than the short statements for which this pool is used.

    Args:
        database: Database to which the connections are opened.
        size: Maximum number of connections.
    """

    def __init__(self, database: "PostgresDatabase", size: int) -> None:
        self._connector = database.connector
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._waiting = 0

    async def open(self) -> None:
        """Create the pool and open one connection, so that an unreachable server is reported at startup."""
        self._pool = await asyncpg.create_pool(
            # With a larger minimum size, asyncpg would log a traceback for each connection that it cannot replace.
            min_size=0,
            max_size=self._size,
            max_inactive_connection_lifetime=IDLE_LIFETIME,
            connect=self._connect,
            reset=_roll_back,
        )
        async with self._pool.acquire():
            pass

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator["Connection"]:
        """Yield a connection of the pool.

        Raises:
            StorageFault: The server cannot be used, or no connection was free within `DEADLINE` seconds.
            LostRace: Another transaction caused a rollback; the transaction may be retried.
        """
        if self._pool is None:
            raise RuntimeError("the connection pool is not open")
        try:
            connection = await self._acquired(self._pool)
            try:
                yield connection
            except asyncpg.PostgresError:
                # The server has responded to the statement with an error, so the connection stays usable.
                raise
            except BaseException:
                # A response may still be under way, so the connection cannot be used again.
                connection.terminate()
                raise
            finally:
                await self._pool.release(connection)  # type: ignore[arg-type]  # asyncpg wraps the connection in a proxy
        except DRIVER_FAULTS as error:
            # Omit the message of the driver, because it may contain values of rows, such as tool arguments.
            code = getattr(error, "sqlstate", None)
            raise storage_fault(
                f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else ""), code
            ) from None

    async def rows(self, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
        """Execute a statement in a separate transaction and return the resulting rows.

        If another transaction causes a rollback, the statement is retried.

        Raises:
            StorageFault: The server cannot be used.
        """
        try:
            return await self._rows(statement, values)
        except LostRace:
            return await with_retry(lambda: self._rows(statement, values))

    def usage(self) -> Usage:
        """Return the numbers of used connections, free connections and waiting tasks."""
        if self._pool is None:
            return Usage(0, 0, 0)
        idle = self._pool.get_idle_size()
        return Usage(self._pool.get_size() - idle, idle, self._waiting)

    async def close(self) -> None:
        """Close the pool. After `DEADLINE` seconds, connections that are still in use are terminated."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(DEADLINE):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _acquired(self, pool: "asyncpg.Pool[asyncpg.Record]") -> "Connection":
        self._waiting += 1
        try:
            # Do not use `pool.acquire(timeout=…)`, because it creates a task for each call, which is slower.
            async with asyncio.timeout(DEADLINE):
                connection: Connection = await pool.acquire()  # type: ignore[assignment]  # asyncpg wraps the connection in a proxy
                return connection
        finally:
            self._waiting -= 1

    async def _rows(self, statement: str, values: Sequence[Any]) -> Sequence[asyncpg.Record]:
        async with self.acquire() as connection:
            return await connection.fetch(statement, *values)

    async def _connect(self, *_: object, **__: object) -> "Connection":
        connection = await self._connector.connect(
            timeout=DEADLINE, command_timeout=DEADLINE, settings=INDEXED
        )
        try:
            # Use strings for identifiers, because the driver creates `uuid.UUID` objects by default.
            await connection.set_type_codec(
                "uuid", encoder=str, decoder=str, schema="pg_catalog", format="text"
            )
        except BaseException:
            connection.terminate()
            raise
        return connection


async def _roll_back(connection: "Connection") -> None:
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")
