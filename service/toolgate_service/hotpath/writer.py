"""Group commit: log entries that wait at the same moment share one transaction and one sync to disk."""

import asyncio
import logging
from contextvars import Context

from toolgate_service.errors import ApiError, StorageFault
from toolgate_service.hotpath.patience import Queue
from toolgate_service.hotpath.stores import LogStore
from toolgate_service.logs.entries import NewEntry, Outcome

logger = logging.getLogger("toolgate.gateway")

MAX_BATCH = 256
#: entries that may wait, and bytes of their contexts; beyond it the gateway says so rather than grow
MAX_WAITING = 10_000
MAX_WEIGHT = 64 * 1024 * 1024
RETRY_AFTER = 1


class LogWriter:
    """Takes entries from all requests of a loop and answers each once it is on disk.

    While one batch is being synced the next one gathers, so that the batch grows with the load by itself.
    """

    def __init__(self, store: LogStore, *, max_batch: int = MAX_BATCH) -> None:
        self._store = store
        self._max_batch = max_batch
        self._waiting: Queue[NewEntry, Outcome] = Queue(
            lambda: _unavailable("The log entry could not be written in time")
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to the store."""
        await self._store.open()

    @property
    def has_room(self) -> bool:
        """Whether another entry may wait."""
        return len(self._waiting) < MAX_WAITING and self._waiting.weight < MAX_WEIGHT

    @property
    def waiting(self) -> int:
        """How many entries wait for their batch."""
        return len(self._waiting)

    async def append(self, entry: NewEntry) -> Outcome:
        """Return what became of an entry, after it is on disk.

        Raises:
            ApiError: 503, too many wait, it waited for too long or the disk refused; the entry is not acknowledged.
        """
        return await self.append_soon(entry)

    def append_soon(self, entry: NewEntry) -> "asyncio.Future[Outcome]":
        """As `append`, without waiting for it.

        Raises:
            ApiError: 503, too many wait; the entry is not taken.
        """
        if not self.has_room:
            raise _unavailable("Too many log entries wait to be written")
        future = self._waiting.join(entry, len(entry.context or ""))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), context=Context())
        return future

    async def stop(self) -> None:
        """Write what waits, then disconnect."""
        if self._task is not None:
            await self._task
        await self._store.close()

    async def _drain(self) -> None:
        while self._waiting:
            async with self._store.turn():
                # Taken only now: whoever came while others were writing is in this batch.
                batch = self._waiting.take(self._max_batch)
                if not batch:
                    # They had waited for too long.
                    return
                try:
                    outcomes = await self._store.commit([one.item for one in batch])
                except Exception as failed:
                    # A server that is away needs no traceback a request.
                    unknown = None if isinstance(failed, StorageFault) else failed
                    many = len(batch)
                    logger.error("%d log entries could not be written: %s", many, failed, exc_info=unknown)  # noqa: TRY400 - see above
                    error = _unavailable("The log entry could not be written")
                    for one in batch:
                        if not one.future.done():
                            one.future.set_exception(error)
                    continue
            for one, outcome in zip(batch, outcomes, strict=True):
                if not one.future.done():
                    one.future.set_result(outcome)


def _unavailable(why: str) -> ApiError:
    return ApiError(503, f"{why}; retry after {RETRY_AFTER} second", {"Retry-After": str(RETRY_AFTER)})
