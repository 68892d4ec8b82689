"""Plain connections, past SQLAlchemy's sessions and the driver's pool: that one takes longer than a check's statement."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from toolgate_service.errors import LostRace
from toolgate_service.hotpath.patience import DEADLINE
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.postgres_connection import DRIVER_FAULTS
from toolgate_service.storage.races import LOST, anew, fault

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

#: seconds after which an idle connection is not trusted: what stands between may have forgotten it without a word
KEPT = 300.0

#: What is asked here finds a few rows by their keys. The server keeps a plan, and the first one is made for the empty
#: tables of a young gateway: left to itself it reads them whole, ever more of them each time.
INDEXED = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class Connections:
    """So many connections at most, opened and closed with the gateway.

    Args:
        database: where to connect.
        size: how many connections at most.
    """

    def __init__(self, database: PostgresDatabase, size: int) -> None:
        self._connector = database.connector
        self._size = size
        self._is_open = False
        #: how many there are, or are being made
        self._made = 0
        #: unused, with the moment since when; the last one used is the next one taken
        self._idle: list[tuple[Connection, float]] = []
        #: each gets a connection, or None for the right to make one
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    async def open(self) -> None:
        """Connect once, to fail early."""
        self._is_open = True
        self._made = 1
        self._give(await self._connect())

    @asynccontextmanager
    async def one(self) -> AsyncIterator["Connection"]:
        """Lend a connection.

        Raises:
            StorageFault: the server cannot be used just now.
            LostRace: the transaction lost against another one, and may be done anew at once.
        """
        try:
            connection = await self._take()
            try:
                yield connection
            except asyncpg.PostgresError as error:
                # The server has answered, and waits for the next statement.
                if error.sqlstate in LOST and connection.is_in_transaction():
                    # It will be wanted again at once.
                    await connection.execute("ROLLBACK")
                raise
            except BaseException:
                # Left in the middle, nobody knows what is still to come.
                connection.terminate()
                raise
            finally:
                self._give(connection)
        except DRIVER_FAULTS as error:
            # Not the driver's own words: they quote rows, and rows hold contexts.
            code = getattr(error, "sqlstate", None)
            raise fault(f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else ""), code) from None

    async def rows(self, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
        """Return the rows of a statement that is a transaction of its own; done anew where it lost a race.

        Raises:
            StorageFault: the server cannot be used just now.
        """
        try:
            return await self._rows(statement, values)
        except LostRace:
            return await anew(lambda: self._rows(statement, values))

    def usage(self) -> Usage:
        """Return how they are used."""
        idle, waiting = len(self._idle), sum(not future.done() for future in self._waiting)
        return Usage(self._made - idle, idle, waiting)

    async def close(self) -> None:
        """Disconnect; what is in use is disconnected when it is given back."""
        self._is_open = False
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.close()

    async def _rows(self, statement: str, values: Sequence[Any]) -> Sequence[asyncpg.Record]:
        async with self.one() as connection:
            return await connection.fetch(statement, *values)

    async def _take(self) -> "Connection":
        if not self._is_open:
            raise RuntimeError("the connections are not open")
        trusted = asyncio.get_running_loop().time() - KEPT
        while self._idle:
            connection, since = self._idle.pop()
            if since > trusted and not connection.is_closed():
                return connection
            connection.terminate()
            self._made -= 1
        if self._made < self._size:
            self._made += 1
            return await self._connect()
        return await self._wait() or await self._connect()

    async def _wait(self) -> "Connection | None":
        future: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(DEADLINE):
                return await future
        except BaseException:
            if future.done() and not future.cancelled():
                # It was given something in the moment in which it gave up.
                self._give(future.result())
            raise

    def _give(self, connection: "Connection | None") -> None:
        """Pass a connection on, or the right to make one; whatever has ended is such a right."""
        if connection is not None and not (self._is_open and _is_usable(connection)):
            connection.terminate()
            connection = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(connection)
                return
        if connection is None:
            self._made -= 1
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    async def _connect(self) -> "Connection":
        """Make a connection, with the right to."""
        try:
            connection = await self._connector.connect(
                timeout=DEADLINE, command_timeout=DEADLINE, settings=INDEXED
            )
            try:
                # Identifiers are texts here; the driver would make objects of them.
                await connection.set_type_codec(
                    "uuid", encoder=str, decoder=str, schema="pg_catalog", format="text"
                )
            except BaseException:
                connection.terminate()
                raise
        except BaseException:
            self._give(None)
            raise
        return connection


def _is_usable(connection: "Connection") -> bool:
    return not connection.is_closed() and not connection.is_in_transaction()
