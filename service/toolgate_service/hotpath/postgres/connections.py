"""Pools of plain connections, past SQLAlchemy's sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from toolgate_service.errors import StorageFault
from toolgate_service.storage.postgres import ASKED, CONNECT_TIMEOUT, DURABLE, SILENCE, PostgresDatabase

if TYPE_CHECKING:
    #: asyncpg's classes are generic to type checkers alone
    Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]


class Connections:
    """A pool of plain connections, opened and closed with the gateway.

    Args:
        database: where to connect.
        size: how many connections at most.
        durable: whether a commit must be on disk; a count of the current minute need not.
    """

    def __init__(self, database: PostgresDatabase, size: int, *, durable: bool = True) -> None:
        self._dsn = database.dsn
        self._size = size
        self._durable = durable
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Connect once, to fail early."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=SILENCE,
            init=self._prepare,
            reset=_nothing,
            server_settings=ASKED,
        )

    @asynccontextmanager
    async def one(self) -> AsyncIterator["Connection"]:
        """Lend a connection.

        Raises:
            StorageFault: the server cannot be used just now.
        """
        if self._pool is None:
            raise RuntimeError("the connections are not open")
        try:
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            # Not the driver's own words: they quote rows, and rows hold contexts.
            code = getattr(error, "sqlstate", None)
            raise StorageFault(f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else "")) from None

    async def close(self) -> None:
        """Disconnect."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _prepare(self, connection: "Raw") -> None:
        # Identifiers are texts here; the driver would make objects of them.
        await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog", format="text")
        await connection.execute(DURABLE if self._durable else "SET synchronous_commit = off")


async def _nothing(_connection: "Raw") -> None:
    # The driver's own reset is a round trip, and would undo what `_prepare` set. Nothing of ours outlives its use.
    pass
