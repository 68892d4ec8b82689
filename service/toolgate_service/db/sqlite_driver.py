"""SQLAlchemy dialect that runs short SQLite statements on the event loop and slow statements in threads.

Passing a statement to a thread takes several times as long as executing most statements. Statements that are always
short therefore run on the event loop. A SELECT statement starts on the event loop; if it takes too long, it is
interrupted and repeated in a thread. Other statements that may take long, or that wait for the disk or for another
process, run in a thread.
"""

import asyncio
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import AdaptedConnection
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

T = TypeVar("T")

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

#: maximum time in seconds for which a statement waits for another process's lock on the file
BUSY_TIMEOUT = 10
#: seconds for which a read may block the event loop before it is interrupted and repeated in a thread
PATIENCE = 0.002
#: number of instructions of the SQLite virtual machine between two checks whether a read takes too long
INSTRUCTIONS = 200
#: seconds between two attempts to interrupt a cancelled statement
INTERRUPT_INTERVAL = 0.01

#: statements that are always short: inserts of given values, and updates of one row by its id
_SHORT = re.compile(r"INSERT INTO (?!.*\bSELECT\b)|UPDATE (\w+) SET .* WHERE \1\.id = \?$", re.DOTALL)
#: bit mask that extracts the primary result code from an extended result code of SQLite
_KIND = 0xFF


class Statements:
    """Executor that runs the statements of one connection, one after another, on the event loop or in a thread.

    A read blocks the event loop for at most `patience` seconds. A statement waits for at most `busy_timeout()` seconds
    for another process's lock on the file. The connection must be usable in any thread, and its busy timeout must be 0.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        threads: Executor,
        patience: float = PATIENCE,
        busy_timeout: Callable[[], float] = lambda: BUSY_TIMEOUT,
    ) -> None:
        self._connection = connection
        self._threads = threads
        self._patience = patience
        self._busy_timeout = busy_timeout
        self._deadline = 0.0
        self._wrote = False

    async def begin(self, how: str) -> None:
        """Begin a transaction with the SQL statement `how`, for example ``BEGIN IMMEDIATE``."""
        self._wrote = False
        await self._run_unless_busy(partial(self._connection.execute, how))

    async def execute(
        self, cursor: sqlite3.Cursor, statement: str, parameters: Parameters
    ) -> list[tuple[Any, ...]]:
        """Execute a statement and return all its rows.

        All rows are fetched at once, because an open cursor would keep the read snapshot of the database in use.
        """
        work = partial(_rows, cursor, statement, parameters)
        if statement.startswith("SELECT"):
            return await self._read(work)
        self._wrote = True
        if _SHORT.match(statement):
            return work()
        return await self._run_in_thread(work)

    async def execute_many(
        self, cursor: sqlite3.Cursor, statement: str, parameters: Sequence[Parameters]
    ) -> None:
        """Execute a statement once for each set of parameters."""
        self._wrote = True
        await self._run_in_thread(partial(cursor.executemany, statement, parameters))

    async def commit(self) -> None:
        """Commit the transaction. All changes are on disk when the call returns."""
        if self._wrote:
            await self._run_in_thread(self._connection.commit)
        else:
            self._connection.commit()

    async def _read(self, work: Callable[[], T]) -> T:
        self._deadline = time.perf_counter() + self._patience
        self._connection.set_progress_handler(self._is_late, INSTRUCTIONS)
        try:
            # A slow read is interrupted, and then repeated in a thread. This is safe, because the transaction and its
            # snapshot of the database stay unchanged.
            return await self._run_unless_busy(work)
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_INTERRUPT:
                raise
        finally:
            self._connection.set_progress_handler(None, 0)
        return await self._run_in_thread(work)

    async def _run_unless_busy(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_BUSY:
                raise
        return await self._run_in_thread(work)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        doing = asyncio.get_running_loop().run_in_executor(
            self._threads, self._run_waiting, work, self._busy_timeout()
        )
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            # Wait for the thread, because two threads must not use the connection at the same time. The interrupt ends
            # the statement soon, and the transaction is then rolled back.
            await self._interrupt(doing)
            raise

    async def _interrupt(self, doing: asyncio.Future[T]) -> None:
        while not doing.done():
            # Repeat the interrupt, because it has no effect if the statement has not begun yet.
            self._connection.interrupt()
            try:
                await asyncio.wait({doing}, timeout=INTERRUPT_INTERVAL)
            except asyncio.CancelledError:
                continue

    def _run_waiting(self, work: Callable[[], T], seconds: float) -> T:
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        try:
            return work()
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")

    def _is_late(self) -> bool:
        return time.perf_counter() > self._deadline


def is_busy(error: BaseException | None) -> bool:
    """Return whether a statement failed because another process holds the lock on the file."""
    return _kind(error) == sqlite3.SQLITE_BUSY


def _kind(error: BaseException | None) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & _KIND if isinstance(code, int) else None


def _rows(cursor: sqlite3.Cursor, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
    return cursor.execute(statement, parameters).fetchall()


#: URL scheme with which SQLAlchemy selects this dialect
DRIVER = "sqlite+toolgate"


class Connection(AdaptedConnection):
    """DBAPI connection for SQLAlchemy. The parameter `begin` is the SQL statement that begins its transactions."""

    __slots__ = ("_begin", "_statements")

    #: declared again with another type: the base class expects the connection of an asynchronous driver
    _connection: Any

    def __init__(self, raw: sqlite3.Connection, statements: Statements, begin: str) -> None:
        self._connection = raw
        self._statements = statements
        self._begin = begin

    def begin(self) -> None:
        """Begin a transaction with the BEGIN statement of this connection."""
        self._finish(self._statements.begin(self._begin))

    def cursor(self) -> "Cursor":
        """Return a new cursor."""
        return Cursor(self._connection.cursor(), self._statements, self._finish)

    def commit(self) -> None:
        """Commit the transaction."""
        self._finish(self._statements.commit())

    def rollback(self) -> None:
        """Roll back the transaction on the event loop, because a rollback does not wait for the disk or for a lock."""
        self._connection.rollback()

    def close(self) -> None:
        """Roll back the transaction and close the connection."""
        # Roll back first, because otherwise the driver would keep the file open and locked while a cursor exists.
        try:
            self._connection.rollback()
        finally:
            self._connection.close()

    def _finish(self, work: Awaitable[T]) -> T:
        return self.run_async(lambda _: work)


class Cursor:
    """DBAPI cursor for SQLAlchemy. The method `execute` fetches all rows at once."""

    __slots__ = ("_cursor", "_finish", "_rows", "_statements", "arraysize")

    def __init__(
        self, cursor: sqlite3.Cursor, statements: Statements, finish: Callable[[Awaitable[Any]], Any]
    ) -> None:
        self._cursor = cursor
        self._statements = statements
        self._finish = finish
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.arraysize = 1

    @property
    def description(self) -> Any:
        """Descriptions of the columns of the result; None for a statement without a result."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        """Id of the row that the statement inserted."""
        return self._cursor.lastrowid

    def execute(self, statement: str, parameters: Parameters = ()) -> None:
        """Execute a statement and fetch all its rows."""
        self._rows = iter(self._finish(self._statements.execute(self._cursor, statement, parameters)))

    def executemany(self, statement: str, parameters: Sequence[Parameters]) -> None:
        """Execute a statement once for each set of parameters."""
        self._finish(self._statements.execute_many(self._cursor, statement, parameters))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None after the last row."""
        return next(self._rows, None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next `size` rows at most. The default is `arraysize`."""
        return list(islice(self._rows, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        return list(self._rows)

    def close(self) -> None:
        """Discard the remaining rows and close the cursor."""
        self._rows = iter(())
        self._cursor.close()

    async def _async_soft_close(self) -> None:
        # Do nothing, because `execute` has already fetched all rows. SQLAlchemy requires this method for dialects with
        # `is_async`.
        return


class Dialect(SQLiteDialect_pysqlite):
    """SQLAlchemy dialect for the URL scheme `sqlite+toolgate`."""

    driver = "toolgate"
    is_async = True
    supports_statement_cache = True

    def do_begin(self, dbapi_connection: Any) -> None:
        """Begin a transaction with the BEGIN statement of the connection, which may take the write lock."""
        dbapi_connection.begin()

    def on_connect(self) -> Callable[[Any], None]:
        """Return a callback that does nothing.

        The base class registers SQL functions on each new connection, but no statement of the gateway uses them.
        """
        return lambda _: None

    def get_driver_connection(self, connection: Any) -> Any:
        """Return the connection of the module `sqlite3` that this connection uses."""
        return connection.driver_connection


registry.register("sqlite.toolgate", __name__, Dialect.__name__)
