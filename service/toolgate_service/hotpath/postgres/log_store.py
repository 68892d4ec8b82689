"""Committing log entries to PostgreSQL."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.batch import Batch, tenant_of
from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.postgres.log_known import begin, begin_available, known
from toolgate_service.hotpath.postgres.log_written import write
from toolgate_service.hotpath.postgres.news import tell
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.races import anew
from toolgate_service.webhooks.outbox import wake

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection

#: milliseconds that a batch waits for the lock of an organization, or of a row, before entries are set aside; another
#: gateway that works needs a few
SHARED_WAIT = 250
#: milliseconds that entries which were set aside wait for their organization's lock, and for each row
LANE_WAIT = 3_000
#: connections for entries that were set aside
LANES = 4

#: outcomes, and whether events for webhooks were written
_Committed: TypeAlias = tuple[list[Outcome | None], bool]


class PostgresLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, 1)
        self._lanes = Connections(database, LANES)
        self._database = database

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()
        await self._lanes.open()

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for nobody: the server has many writers."""
        return nullcontext()

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> list[Outcome | None]:
        """Make entries durable and return one outcome each, in order.

        Args:
            entries: of any organizations; with `wait`, of one.
            wait: whether to wait for a lock that another gateway holds. Otherwise the outcome of its organization's
                entries is None: nothing was done, and they are to be committed with `wait`. If the lock is that of a
                row, the outcome of all entries is None.

        Raises:
            StorageFault: nothing of the batch is acknowledged.
        """
        connections, patience = (self._lanes, LANE_WAIT) if wait else (self._connections, SHARED_WAIT)
        committed = await anew(lambda: self._commit(connections, entries, patience))
        if committed is None:
            if wait:
                raise StorageFault("another gateway keeps the organization's lock")
            committed = await anew(lambda: self._commit_available(entries))
        outcomes, told = committed
        if told:
            wake(self._database)
        return outcomes

    async def _commit(
        self, connections: Connections, entries: Sequence[NewEntry], patience: int
    ) -> "_Committed | None":
        """Commit entries; None, and nothing done, if another gateway keeps a lock for longer than the patience."""
        # Whatever fails, the connection ends, and with it the transaction.
        async with connections.one() as connection:
            try:
                await begin(connection, entries, patience)
            except asyncpg.LockNotAvailableError:
                await connection.execute("ROLLBACK")
                return None
            if connections is self._lanes:
                return await _write(connection, entries)
            return await self._write_shared(connection, entries)

    async def _write_shared(self, connection: "Connection", entries: Sequence[NewEntry]) -> _Committed:
        """Write entries as `_write` does, or set all of them aside if another transaction keeps a row of one of them.

        A held check that froze keeps the row of its organization's counts. The error does not name the organization, so
        that each organization continues in a lane of its own.
        """
        try:
            return await _write(connection, entries)
        except asyncpg.LockNotAvailableError:
            await connection.execute("ROLLBACK")
            return [None] * len(entries), False

    async def _commit_available(self, entries: Sequence[NewEntry]) -> "_Committed":
        async with self._connections.one() as connection:
            locked = await begin_available(connection, entries, SHARED_WAIT)
            places = [place for place, entry in enumerate(entries) if tenant_of(entry) in locked]
            outcomes: list[Outcome | None] = [None] * len(entries)
            if not places:
                await connection.execute("ROLLBACK")
                return outcomes, False
            found, told = await self._write_shared(connection, [entries[place] for place in places])
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
            return outcomes, told

    def usage(self) -> Usage:
        """Return how its connections are used."""
        shared, lanes = self._connections.usage(), self._lanes.usage()
        waiting = (shared.waiting or 0) + (lanes.waiting or 0)
        return Usage(shared.busy + lanes.busy, shared.idle + lanes.idle, waiting)

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()
        await self._lanes.close()


async def _write(connection: "Connection", entries: Sequence[NewEntry]) -> _Committed:
    """Decide about entries whose locks are held, write them and commit: three round trips, and two for webhooks."""
    batch = Batch(await known(connection, entries))
    outcomes = batch.decide(entries)
    await write(connection, batch)
    told = await tell(connection, batch)
    await connection.execute("COMMIT")
    return [*outcomes], told
