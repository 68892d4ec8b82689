"""Where a statement of an SQLite connection runs: on the event loop's thread, or on another one.

A trip to another thread and back costs a multiple of what most statements cost. So what is short by its nature runs where
it is asked for, and so does every read, for as long as the loop can be without its thread; what waits for the disk or for
another process, and what may take long, goes to a thread.
"""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

#: How long one process waits for another's lock on the same file, in seconds.
BUSY_TIMEOUT = 10
#: How long a read may keep the event loop's thread, in seconds; then it begins anew on another one.
PATIENCE = 0.002
#: Instructions of SQLite's machine between two looks at the time.
INSTRUCTIONS = 200
#: How long a statement that is broken off may go on before it is told again, in seconds.
TOLD_EVERY = 0.01

#: New rows, given one by one, and the row of one id: as many rows are changed as the statement names.
_SHORT = re.compile(r"INSERT INTO (?!.*\bSELECT\b)|UPDATE (\w+) SET .* WHERE \1\.id = \?$", re.DOTALL)
#: An error's kind is in the low byte of its code; what stands above it is the occasion.
_KIND = 0xFF


class Statements:
    """Runs the statements of one connection, one after another.

    Args:
        connection: may be used by any thread; it waits for no lock.
        threads: where whatever may take long runs.
        patience: how long a read may keep the event loop's thread, in seconds.
    """

    def __init__(self, connection: sqlite3.Connection, threads: Executor, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._threads = threads
        self._patience = patience
        self._deadline = 0.0
        self._wrote = False

    async def begin(self, how: str) -> None:
        """Begin a transaction."""
        self._wrote = False
        await self._at_once_unless_busy(partial(self._connection.execute, how))

    async def execute(
        self, cursor: sqlite3.Cursor, statement: str, parameters: Parameters
    ) -> list[tuple[Any, ...]]:
        """Execute a statement and return all of its rows: an open cursor would keep an old snapshot."""
        work = partial(_rows, cursor, statement, parameters)
        if statement.startswith("SELECT"):
            return await self._read(work)
        self._wrote = True
        if _SHORT.match(statement):
            return work()
        return await self._elsewhere(work)

    async def execute_many(
        self, cursor: sqlite3.Cursor, statement: str, parameters: Sequence[Parameters]
    ) -> None:
        """Execute a statement for each of several parameters."""
        self._wrote = True
        await self._elsewhere(partial(cursor.executemany, statement, parameters))

    async def commit(self) -> None:
        """Commit; what was written is on disk when this returns."""
        if self._wrote:
            await self._elsewhere(self._connection.commit)
        else:
            self._connection.commit()

    async def _read(self, work: Callable[[], T]) -> T:
        self._deadline = time.perf_counter() + self._patience
        self._connection.set_progress_handler(self._is_late, INSTRUCTIONS)
        try:
            # A read that is broken off changes nothing, and leaves the transaction's snapshot as it is.
            return await self._at_once_unless_busy(work)
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_INTERRUPT:
                raise
        finally:
            self._connection.set_progress_handler(None, 0)
        return await self._elsewhere(work)

    async def _at_once_unless_busy(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_BUSY:
                raise
        return await self._elsewhere(work)

    async def _elsewhere(self, work: Callable[[], T]) -> T:
        doing = asyncio.get_running_loop().run_in_executor(self._threads, self._patiently, work)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            # Nobody may use the connection while the thread does. What it does ends soon, and is rolled back.
            await self._broken_off(doing)
            raise

    async def _broken_off(self, doing: asyncio.Future[T]) -> None:
        while not doing.done():
            # Again and again: a statement that has not begun yet is not interrupted.
            self._connection.interrupt()
            try:
                await asyncio.wait({doing}, timeout=TOLD_EVERY)
            except asyncio.CancelledError:
                continue

    def _patiently(self, work: Callable[[], T]) -> T:
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000}")
        try:
            return work()
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")

    def _is_late(self) -> bool:
        return time.perf_counter() > self._deadline


def is_busy(error: BaseException | None) -> bool:
    """Say whether a statement failed because another process held the file."""
    return _kind(error) == sqlite3.SQLITE_BUSY


def _kind(error: BaseException | None) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & _KIND if isinstance(code, int) else None


def _rows(cursor: sqlite3.Cursor, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
    return cursor.execute(statement, parameters).fetchall()
