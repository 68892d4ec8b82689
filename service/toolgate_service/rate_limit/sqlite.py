"""Rate limiter for several processes on one SQLite database. It stores the request counts in a separate SQLite file.

If the counts were in the gateway's database file, counting a request would have to wait for other write transactions
and for a sync to disk.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolgate_service.core.errors import StorageError, StorageFault
from toolgate_service.db.sqlite import SqliteDatabase, create_private
from toolgate_service.db.sqlite_driver import BUSY_TIMEOUT, is_busy
from toolgate_service.rate_limit.limiter import WINDOW, Rate

#: Maximum time in seconds that a process waits for other processes before it can count a request. The wait blocks the
#: event loop, but is usually short: counting one request takes 30 µs.
PATIENCE = 0.25
#: seconds between two attempts to count a request; SQLite's own busy handler would sleep for at least a millisecond
PAUSE = 0.00005
#: Maximum number of minutes that a stored window may be in the future. Later windows, which a process with a wrong
#: clock created, are deleted at startup.
AHEAD = 60


class SqliteRateLimiter:
    """Rate limiter that counts each request with one upsert statement.

    The counts survive a restart of a process, but need not survive a crash of the machine, so they are not synced to
    disk.

    Args:
        database: The gateway's database. The file with the request counts is in the same folder.
        clock: Returns Unix time in seconds.
    """

    is_degraded = False

    def __init__(self, database: SqliteDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._path = database.path.with_name(f"{database.path.name}.rates")
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the SQLite file that stores the request counts. If the file is damaged, replace it with an empty one.

        Raises:
            StorageError: The file cannot be created or written.
        """
        # Hold the database's write lock, so that only one of several processes that start together creates the file.
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
                    f"cannot count requests in {str(self._path)!r}: {error}; let the gateway write to the "
                    "folder, or set TOOLGATE_WORKERS=1"
                ) from error
            self._connection.execute("PRAGMA busy_timeout = 0")

    async def close(self) -> None:
        """Close the SQLite file that stores the request counts."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""
        return self.count_now(organization_id, scope, limit)

    async def peek(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return the state that `count` would return now, without counting a request."""
        moment, window, used = self._used(organization_id, scope)
        return Rate.at(moment, window, limit, min(used + 1, limit), exceeded=used >= limit)

    def count_now(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit; block at most 0.25 seconds.

        Raises:
            StorageFault: The file cannot be written at the moment.
        """
        moment = self._clock()
        counted = self._run(_COUNT, (organization_id, scope, int(moment // WINDOW), limit)) if limit else []
        if counted:
            [(window, used)] = counted
            return Rate.at(moment, window, limit, used, exceeded=False)
        moment, window, _ = self._used(organization_id, scope)
        return Rate.at(moment, window, limit, limit, exceeded=True)

    def usage(self) -> None:
        """Return None, since the limiter does not use connections to the database."""

    def _used(self, organization_id: str, scope: str) -> tuple[float, int, int]:
        moment = self._clock()
        window = int(moment // WINDOW)
        found = self._run(_LOOK, (organization_id, scope, window))
        # If the clock was set back, return the stored later window, so that no earlier window starts again.
        return (moment, *found[0]) if found else (moment, window, 0)

    def _run(self, statement: str, values: Sequence[object]) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the database of the rate limiter is not open")
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

#: Statement that counts one request. It returns no row if the limit is reached.
_COUNT = """
INSERT INTO windows (organization_id, scope, minute, requests) VALUES (?1, ?2, ?3, 1)
ON CONFLICT (organization_id, scope) DO UPDATE
SET minute = max(minute, excluded.minute),
    requests = CASE WHEN excluded.minute > minute THEN 1 ELSE requests + 1 END
WHERE excluded.minute > minute OR requests < ?4
RETURNING minute, requests
"""

_LOOK = "SELECT minute, requests FROM windows WHERE organization_id = ?1 AND scope = ?2 AND minute >= ?3"
