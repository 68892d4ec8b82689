"""SQLAlchemy's SQLite on an event loop: its own dialect, its statements run by `Statements`."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import AdaptedConnection
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from toolgate_service.storage.sqlite_statements import Parameters, Statements

T = TypeVar("T")

#: how an URL names the dialect
DRIVER = "sqlite+toolgate"


class Connection(AdaptedConnection):
    """What SQLAlchemy asks of a connection.

    Args:
        raw: the driver's connection.
        statements: runs them.
        begin: how a transaction begins.
    """

    __slots__ = ("_begin", "_statements")

    #: the base's type is that of drivers that are awaited
    _connection: Any

    def __init__(self, raw: sqlite3.Connection, statements: Statements, begin: str) -> None:
        self._connection = raw
        self._statements = statements
        self._begin = begin

    def begin(self) -> None:
        """Begin a transaction."""
        self._finish(self._statements.begin(self._begin))

    def cursor(self) -> "Cursor":
        """Return a cursor."""
        return Cursor(self._connection.cursor(), self._statements, self._finish)

    def commit(self) -> None:
        """Commit."""
        self._finish(self._statements.commit())

    def rollback(self) -> None:
        """Roll back, which waits for nothing."""
        self._connection.rollback()

    def close(self) -> None:
        """Close; what was not committed is rolled back."""
        # Not left to the driver: while anybody still holds a cursor, it would keep the file and its lock.
        try:
            self._connection.rollback()
        finally:
            self._connection.close()

    def _finish(self, work: Awaitable[T]) -> T:
        return self.run_async(lambda _: work)


class Cursor:
    """What SQLAlchemy asks of a cursor: every row is there when a statement has been executed."""

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
        """The columns of the rows; None where a statement has none."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The number of the row that was added."""
        return self._cursor.lastrowid

    def execute(self, statement: str, parameters: Parameters = ()) -> None:
        """Execute a statement."""
        self._rows = iter(self._finish(self._statements.execute(self._cursor, statement, parameters)))

    def executemany(self, statement: str, parameters: Sequence[Parameters]) -> None:
        """Execute a statement for each of several parameters."""
        self._finish(self._statements.execute_many(self._cursor, statement, parameters))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, if there is one."""
        return next(self._rows, None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        return list(islice(self._rows, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return list(self._rows)

    def close(self) -> None:
        """Forget the rows."""
        self._rows = iter(())
        self._cursor.close()

    async def _async_soft_close(self) -> None:
        # SQLAlchemy asks for it where a cursor's end is to be awaited.
        return


class Dialect(SQLiteDialect_pysqlite):
    """SQLite for `create_async_engine`."""

    driver = "toolgate"
    is_async = True
    supports_statement_cache = True

    def do_begin(self, dbapi_connection: Any) -> None:
        """Begin a transaction with the lock that the engine wants."""
        dbapi_connection.begin()

    def on_connect(self) -> Callable[[Any], None]:
        """Do nothing to a new connection: SQLAlchemy would give it functions that no statement of ours uses."""
        return lambda _: None

    def get_driver_connection(self, connection: Any) -> Any:
        """Return the driver's own connection."""
        return connection.driver_connection


registry.register("sqlite.toolgate", __name__, Dialect.__name__)
