"""Decision store for SQLite. It uses the connection and the thread of the log store, under the process's write lock."""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

from toolgate_service.core.clock import wire
from toolgate_service.decisions.recorder import COLUMNS, Row, time_of_prefix
from toolgate_service.logs.store_sqlite import SqliteLogStore
from toolgate_service.transparency.chunks import Chunk
from toolgate_service.transparency.statements import write_chunks


class SqliteDecisionStore:
    """Decision store that commits each batch in one transaction, with one sync to disk."""

    def __init__(self, log_store: SqliteLogStore) -> None:
        self._log_store = log_store
        self.time_format = _wire_time

    async def write(self, rows: Sequence[Row], chunks: Sequence[Chunk]) -> None:
        """Write rows and chunks in one transaction. Nothing is written if the rows already exist.

        Raises:
            sqlite3.Error: No row was written.
        """

        def work(connection: sqlite3.Connection) -> None:
            # If no row was inserted, an earlier attempt was committed, and all leaves exist already.
            if connection.executemany(_INSERT, rows).rowcount > 0:
                write_chunks(connection, chunks)

        async with self._log_store.write_access():
            await self._log_store.run(work)


@lru_cache(maxsize=64)
def _wire_time(prefix: str) -> str:
    return wire(time_of_prefix(prefix))


_INSERT = f"INSERT INTO decisions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT DO NOTHING"  # noqa: S608 - the inserted names are constants
