"""Rate windows that several processes on one SQLite file share: a small file of its own beside the database."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolgate_service.errors import StorageError, StorageFault
from toolgate_service.hotpath.rates import WINDOW, Rate
from toolgate_service.storage.sqlite import SqliteDatabase, create_private
from toolgate_service.storage.sqlite_statements import BUSY_TIMEOUT, is_busy

#: seconds that a count waits for another process's, on the event loop's thread; one takes 30 µs
PATIENCE = 0.25
#: seconds between two attempts. SQLite itself would sleep for a millisecond and more.
PAUSE = 0.00005
#: minutes; a window that lies further ahead is of a clock that was wrong, and keeps nobody out after a start
AHEAD = 60


class FileWindows:
    """Windows of several processes on one machine, one upsert a request.

    What is counted need not survive the machine, so that nothing is synced to disk; it survives each of the processes.

    Args:
        database: beside whose file the counts are kept.
        clock: this machine's, in seconds since the epoch.
    """

    def __init__(self, database: SqliteDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._path = database.path.with_name(f"{database.path.name}.rates")
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file, made anew if it cannot be read: a machine that lost its power may leave half of it.

        Raises:
            StorageError: it cannot be created or written.
        """
        # In the database's turn: of processes that begin at once one makes the file, and all count in the same.
        async with self._database.writing():
            create_private(self._path)
            try:
                try:
                    self._connection = _connect(self._path)
                except sqlite3.DatabaseError as error:
                    if isinstance(error, sqlite3.OperationalError):
                        raise
                    _remove(self._path)
                    create_private(self._path)
                    self._connection = _connect(self._path)
                window = int(self._clock() // WINDOW)
                self._connection.execute(_FORGET, (window, window + AHEAD))
            except sqlite3.Error as error:
                raise StorageError(
                    f"cannot count requests in {str(self._path)!r}: {error}; see that the folder may be written, or "
                    "serve with TOOLGATE_WORKERS=1"
                ) from error
            self._connection.execute("PRAGMA busy_timeout = 0")

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request, unless the window is full."""
        return self.count_now(organization_id, scope, limit)

    async def look(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return where the next request would stand, and count nothing."""
        moment, window, used = self._used(organization_id, scope)
        return Rate.at(moment, window, limit, min(used + 1, limit), exceeded=used >= limit)

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """As `count`, without having to wait for more than a moment.

        Raises:
            StorageFault: the file cannot be written just now.
        """
        moment = self._clock()
        counted = self._run(_COUNT, (organization_id, scope, int(moment // WINDOW), limit)) if limit else []
        if counted:
            [(window, used)] = counted
            return Rate.at(moment, window, limit, used, exceeded=False)
        moment, window, _ = self._used(organization_id, scope)
        return Rate.at(moment, window, limit, limit, exceeded=True)

    def _used(self, organization_id: str, scope: str) -> tuple[float, int, int]:
        moment = self._clock()
        window = int(moment // WINDOW)
        found = self._run(_LOOK, (organization_id, scope, window))
        # A clock that was set back does not open the window again.
        return (moment, *found[0]) if found else (moment, window, 0)

    def _run(self, statement: str, values: Sequence[object]) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the windows are not open")
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                return connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() > ends:
                    raise StorageFault(f"SQLite: {error}, in {self._path.name!r}") from None
                time.sleep(PAUSE)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(_TABLE)
        found = connection.execute("PRAGMA quick_check").fetchall()
    except BaseException:
        connection.close()
        raise
    if found != [("ok",)]:
        connection.close()
        raise sqlite3.DatabaseError("it is damaged")
    return connection


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).unlink()


_TABLE = """
CREATE TABLE IF NOT EXISTS windows (
    organization_id TEXT, scope TEXT, minute INTEGER NOT NULL, requests INTEGER NOT NULL,
    PRIMARY KEY (organization_id, scope)
) WITHOUT ROWID
"""

_FORGET = "DELETE FROM windows WHERE minute NOT BETWEEN ? AND ?"

#: No row comes back when the window is full.
_COUNT = """
INSERT INTO windows (organization_id, scope, minute, requests) VALUES (?1, ?2, ?3, 1)
ON CONFLICT (organization_id, scope) DO UPDATE
SET minute = max(minute, excluded.minute),
    requests = CASE WHEN excluded.minute > minute THEN 1 ELSE requests + 1 END
WHERE excluded.minute > minute OR requests < ?4
RETURNING minute, requests
"""

_LOOK = "SELECT minute, requests FROM windows WHERE organization_id = ?1 AND scope = ?2 AND minute >= ?3"
