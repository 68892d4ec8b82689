"""Connection pool for statements that do not use SQLAlchemy: authentication, rate limits and log entries."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from toolgate_service.core.concurrency import DEADLINE
from toolgate_service.core.errors import LostRace
from toolgate_service.db.database import Usage
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import DRIVER_FAULTS
from toolgate_service.db.retry import storage_fault, with_retry

if TYPE_CHECKING:
    from toolgate_service.db.postgres_connection import Connection

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

    def __init__(self, database: PostgresDatabase, size: int) -> None:
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
