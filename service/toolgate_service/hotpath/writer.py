"""Group commit: log entries that wait at the same moment share one transaction and one sync to disk."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from toolgate_service.errors import ApiError
from toolgate_service.logs.entries import NewEntry, Outcome

logger = logging.getLogger("toolgate.gateway")

MAX_BATCH = 256
#: entries that may wait; beyond it the gateway says so rather than grow
MAX_WAITING = 10_000
RETRY_AFTER = 1


class LogStore(Protocol):
    """Where entries are committed; every call comes from one thread."""

    def open(self) -> None:
        """Connect."""

    def commit(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Make entries durable, one outcome each, in order."""

    def close(self) -> None:
        """Disconnect."""


class LogWriter:
    """Takes entries from all requests of a loop and answers each once it is on disk.

    While one batch is being synced the next one gathers, so that the batch grows with the load by itself.
    """

    def __init__(self, store: LogStore, write_turn: asyncio.Lock, *, max_batch: int = MAX_BATCH) -> None:
        self._store = store
        self._write_turn = write_turn
        self._max_batch = max_batch
        self._waiting: deque[tuple[NewEntry, asyncio.Future[Outcome]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-writer")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to the store."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.open)

    async def append(self, entry: NewEntry) -> Outcome:
        """Return what became of an entry, after it is on disk.

        Raises:
            ApiError: 503, too many wait or the disk refused; the entry is not acknowledged.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise _unavailable("Too many log entries wait to be written")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def stop(self) -> None:
        """Write what waits, then disconnect."""
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            async with self._write_turn:
                # Taken only now: whoever came while others were writing is in this batch.
                size = min(len(self._waiting), self._max_batch)
                batch = [self._waiting.popleft() for _ in range(size)]
                entries = [entry for entry, _ in batch]
                try:
                    outcomes = await loop.run_in_executor(self._thread, self._store.commit, entries)
                except Exception:
                    logger.exception("%d log entries could not be written", size)
                    error = _unavailable("The log entry could not be written")
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)


def _unavailable(why: str) -> ApiError:
    return ApiError(503, f"{why}; retry after {RETRY_AFTER} second", {"Retry-After": str(RETRY_AFTER)})
