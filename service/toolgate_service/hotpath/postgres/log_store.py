"""Committing log entries to PostgreSQL."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from toolgate_service.hotpath.batch import Batch
from toolgate_service.hotpath.postgres.connections import Connections
from toolgate_service.hotpath.postgres.log_known import begin, known
from toolgate_service.hotpath.postgres.log_written import write
from toolgate_service.hotpath.postgres.news import tell
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.races import anew
from toolgate_service.webhooks.outbox import wake


class PostgresLogStore:
    """Commits batches of log entries: one transaction and one sync to disk for all of them."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connections = Connections(database, 1)
        self._database = database

    async def open(self) -> None:
        """Connect; the schema must exist."""
        await self._connections.open()

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for nobody: the server has many writers."""
        return nullcontext()

    async def commit(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Make entries durable and return one outcome each, in order.

        Raises:
            StorageFault: nothing of the batch is acknowledged.
        """
        outcomes, told = await anew(lambda: self._commit(entries))
        if told:
            wake(self._database)
        return outcomes

    async def _commit(self, entries: Sequence[NewEntry]) -> tuple[list[Outcome], bool]:
        # Four round trips. Whatever fails, the connection ends, and with it the transaction.
        async with self._connections.one() as connection:
            await begin(connection, entries)
            batch = Batch(await known(connection, entries))
            outcomes = batch.decide(entries)
            await write(connection, batch)
            told = await tell(connection, batch)
            await connection.execute("COMMIT")
        return outcomes, told

    def usage(self) -> Usage:
        """Return how its connections are used."""
        return self._connections.usage()

    async def close(self) -> None:
        """Disconnect."""
        await self._connections.close()
