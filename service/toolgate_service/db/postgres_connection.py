"""Connections to PostgreSQL: choice of the host, session settings, detection of poolers, errors, and a pool.

Session settings are sent after connecting, since PgBouncer rejects them in the startup packet. Settings for durability
and locks are applied in each transaction, since behind a pooler another client may have changed the session settings.

The pool is for statements that do not use SQLAlchemy: authentication, rate limits and log entries.
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

    #: defined only for type checkers, since asyncpg's classes are not generic at runtime
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

#: Exceptions for failures of the server or the network. After the server has closed a connection, the driver raises
#: `InternalClientError` ("cannot switch to state 12") until the connection is closed on this side too.
DRIVER_FAULTS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

#: application name of every connection
APPLICATION = "toolgate"
#: application name during an export, which may be idle in a transaction while the client reads slowly
EXPORT = "toolgate export"
#: application name during an operator's command or a migration, which may be idle for seconds while it computes
PATIENT_APPLICATION = "toolgate patient"

#: Session settings of every connection; timeouts are in milliseconds. JIT compilation is off, since for short
#: statements it takes longer than it saves.
SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": APPLICATION,
    "lock_timeout": "10000",
    "statement_timeout": "30000",
    "idle_in_transaction_session_timeout": "90000",
    # If the gateway's machine loses its network, the server closes the connection after 30 seconds, not two hours.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # Override the server's default: after waiting for a lock, a transaction must see the commits made during the wait.
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # The gateway parses the bounds of the log's partitions, which the server formats in this style.
    "datestyle": "ISO",
    "jit": "off",
}

#: Milliseconds without a new statement after which the server ends a write transaction. The transaction holds the lock
#: of its organization, and all other gateways wait for that lock.
IDLE_IN_WRITE = 1_500
#: Milliseconds after which the server closes the connection of a write transaction if the client does not read the
#: response.
UNSENT_IN_WRITE = 2_000

#: SQL expression that turns `synchronous_commit` on for the transaction if it is off: an acknowledged commit must be on
#: disk. Stricter values that the operator has set, for instance `remote_apply`, stay in effect.
_DURABLE = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, true)"
)

#: SQL expression that applies the settings of a write transaction to the current transaction only.
WRITE_SETTINGS = (
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_IN_WRITE}', true) || "
    f"set_config('tcp_user_timeout', '{UNSENT_IN_WRITE}', true) || {_DURABLE}"
)

#: SQL condition that is always true. As a side effect it lets the current transaction commit without waiting for the
#: disk. Use it only for data that need not survive a crash of the server, such as rate limit counts.
COMMIT_FROM_MEMORY = "set_config('synchronous_commit', 'off', true) = 'off'"


class Host(NamedTuple):
    """One host of a database URL.

    Attributes:
        name: Host name, IP address, or folder of a Unix socket.
        port: TCP port, or the number in the name of the Unix socket.
    """

    name: str
    port: int


class Connector:
    """Opens connections to the host of a database URL. If the URL has several hosts, it selects the writable host.

    The URL has libpq's form; hosts are separated by commas.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._hosts = hosts_of(dsn)
        #: index of the host of the last successful connection, which is tried first
        self._preferred = 0

    async def connect(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - shared between the hosts
        command_timeout: float | None,
        settings: Mapping[str, str] | None = None,
        statement_cache_size: int = 100,
    ) -> "Connection":
        """Open a connection with the gateway's session settings.

        Args:
            timeout: Seconds until connecting fails. Several hosts share this time equally, since a host that is
                switched off does not respond at all.
            command_timeout: Seconds until a statement fails; None waits without limit.
            settings: Additional session settings.
            statement_cache_size: Maximum number of prepared statements that the driver caches; 0 disables the cache.

        Raises:
            OSError: No host can be reached, or no host is writable.
            asyncpg.PostgresError: The server refuses the connection.
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
        timeout: float,  # noqa: ASYNC109 - as above
        command_timeout: float | None,
        statement_cache_size: int,
    ) -> "Connection":
        if len(self._hosts) < 2:  # noqa: PLR2004 - one host needs no choice
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
                    # Select a writable host: a standby server accepts connections but no changes.
                    target_session_attrs=SessionAttribute.read_write,
                )
            except asyncpg.TargetServerAttributeNotMatched:
                failed = failed or ConnectionError("no host of the database URL accepts changes")
            except DRIVER_FAULTS as error:
                failed = error
            else:
                self._preferred = place
                return connection
        raise failed or ConnectionError("the database URL names no host")


def hosts_of(dsn: str) -> Sequence[Host]:
    """Return the hosts of a database URL; empty if the URL contains none, so that libpq's defaults apply.

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
        # A colon within brackets is part of an IPv6 address, not the separator of a port.
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
        raise ValueError("the database URL names a different number of hosts and ports")
    numbers = [port or default for port in ports]
    if not all(port.isdecimal() for port in numbers):
        # The error message must not contain the value, which may be part of a password.
        raise ValueError("a port of the database URL is not a number")
    return [Host(name, int(port)) for name, port in zip(names, numbers, strict=True)]


def _session(settings: Mapping[str, str]) -> str:
    # One statement for all settings needs only one round trip. All names and values are constants, so none is escaped.
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())


#: timeout in seconds for the whole check for a pooler
TIMEOUT = 10.0
#: Number of rounds of the check. By chance, a pooler may give the two test clients different backends in one round.
ROUNDS = 3

POOLING_FIX = (
    "set pool_mode = session for this database (PgBouncer: pool_mode in [databases] or [pgbouncer]), or connect to "
    "PostgreSQL directly"
)

#: SQLSTATEs for "prepared statement does not exist" and "prepared statement already exists"; both mean that the pooler
#: has changed the backend
_FOREIGN_STATEMENT = frozenset({"26000", "42P05"})
#: part of the message with which PgBouncer in statement mode rejects a transaction
_NO_TRANSACTIONS = "statement pooling mode"

_MARK = "toolgate.probe"


class _Session(NamedTuple):
    """Backend process that served a transaction, and the value of the test setting in its session."""

    pid: int
    mark: str


async def refuse_pooling(connector: "Connector") -> None:
    """Check that no connection pooler in transaction or statement mode is between the gateway and PostgreSQL.

    Raises:
        StorageError: A pooler does not keep one backend for each client, or its pool has too few connections.
        OSError: The server cannot be reached.
        asyncpg.PostgresError: The server refuses the connection.
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
            f"a second connection to the PostgreSQL database of TOOLGATE_DATABASE_URL was not served within "
            f"{TIMEOUT:.0f} seconds: if a pooler is in between, its pool is too small; allow it 40 connections for "
            "each gateway process (PgBouncer: default_pool_size)"
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
                # Both clients are connected at the same time. If one backend serves both, the pooler shares backends.
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
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return _Session(*row)


def _refusal(mode: str) -> StorageError:
    return StorageError(
        f"TOOLGATE_DATABASE_URL leads to PostgreSQL through a connection pooler in {mode} mode, in which LISTEN, "
        f"prepared statements and session settings do not work; {POOLING_FIX}"
    )


#: Prefixes of SQLSTATEs of errors that the statement did not cause, in this order: connection, login, missing database,
#: rollback because of a concurrent transaction, insufficient resources, lock not available, shutdown or timeout, system
#: error, read-only standby.
UNUSABLE = ("08", "28", "3D", "40", "53", "55", "57", "58", "25006")


@asynccontextmanager
async def translate_errors() -> AsyncIterator[None]:
    """Convert errors of the server or the connection into `StorageFault`.

    Raises:
        StorageFault: The server is temporarily unavailable; the request may be repeated.
        LostRace: A concurrent transaction caused a rollback; the transaction may be retried immediately.
    """
    try:
        yield
    except DRIVER_FAULTS as error:
        # The driver's own exceptions occur while connecting, or if the connection has just ended. SQLAlchemy wraps all
        # other errors in `DBAPIError`.
        raise storage_fault(f"PostgreSQL: {type(error).__name__}", getattr(error, "sqlstate", None)) from None
    except DBAPIError as error:
        code = str(getattr(error.orig, "sqlstate", None) or "")
        if not error.connection_invalidated and not code.startswith(UNUSABLE):
            raise
        # Omit the driver's message, which quotes row values: they include tool arguments.
        raise storage_fault(f"PostgreSQL: {code or type(error.orig).__name__}", code) from None


#: seconds after which an idle connection is closed, since a firewall may drop an idle connection silently
IDLE_LIFETIME = 300.0

#: Session settings that make the server use indexes. All statements of this pool find a few rows by key. The server
#: caches query plans; on the empty tables of a new gateway it would choose plans that scan whole tables, and keep using
#: them after the tables have grown.
INDEXED = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class PostgresPool:
    """asyncpg connection pool that does not run asyncpg's reset statements when a connection is returned.

    The reset statements would take longer than the short statements that use this pool.

    Args:
        database: Database to connect to.
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
            # With a minimum size asyncpg would log a traceback for each connection that it cannot replace.
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
            LostRace: A concurrent transaction caused a rollback; the transaction may be retried.
        """
        if self._pool is None:
            raise RuntimeError("the pool is not open")
        try:
            connection = await self._acquired(self._pool)
            try:
                yield connection
            except asyncpg.PostgresError:
                # The server has responded with an error, so the connection can be reused.
                raise
            except BaseException:
                # A response may still be in transit, so the connection cannot be reused.
                connection.terminate()
                raise
            finally:
                await self._pool.release(connection)  # type: ignore[arg-type]  # a proxy of a connection
        except DRIVER_FAULTS as error:
            # Omit the driver's message, which quotes row values: they include arguments of tool calls.
            code = getattr(error, "sqlstate", None)
            raise storage_fault(
                f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else ""), code
            ) from None

    async def rows(self, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
        """Execute a statement in a separate transaction and return its rows.

        If a concurrent transaction causes a rollback, the statement is retried.

        Raises:
            StorageFault: The server cannot be used.
        """
        try:
            return await self._rows(statement, values)
        except LostRace:
            return await with_retry(lambda: self._rows(statement, values))

    def usage(self) -> Usage:
        """Return the number of used and free connections and of waiting tasks."""
        if self._pool is None:
            return Usage(0, 0, 0)
        idle = self._pool.get_idle_size()
        return Usage(self._pool.get_size() - idle, idle, self._waiting)

    async def close(self) -> None:
        """Close the pool. Wait at most `DEADLINE` seconds for connections in use, then terminate them."""
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
            # `pool.acquire(timeout=…)` would create a task for each call, which is slower.
            async with asyncio.timeout(DEADLINE):
                connection: Connection = await pool.acquire()  # type: ignore[assignment]  # a proxy of a connection
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
            # The gateway uses identifiers as strings. By default the driver would create `uuid.UUID` objects.
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
