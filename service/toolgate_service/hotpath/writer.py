"""Group commit: log entries that wait at the same moment share one transaction and one sync to disk.

An organization whose lock another gateway keeps is set aside into a lane of its own, so that the entries of all other
organizations go on.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextvars import Context
from typing import TypeAlias

from toolgate_service.errors import ApiError
from toolgate_service.hotpath.batch import Tenant, tenant_of
from toolgate_service.hotpath.patience import Queue, Waiting
from toolgate_service.hotpath.stores import LogStore
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.storage.outage import OUTAGE

MAX_BATCH = 256
#: bytes of contexts in one batch, unless one entry alone has more: a network of 100 Mbit/s carries them in a third of a
#: second, of the four seconds after which a statement is given up
MAX_BATCH_WEIGHT = 4 * 1024 * 1024
#: entries that may wait, and bytes of their contexts; beyond it the gateway says so rather than grow
MAX_WAITING = 10_000
MAX_WEIGHT = 64 * 1024 * 1024
RETRY_AFTER = 1

_Queue: TypeAlias = Queue[NewEntry, Outcome]
_Entry: TypeAlias = Waiting[NewEntry, Outcome]


class LogWriter:
    """Takes entries from all requests of a loop and answers each once it is on disk.

    While one batch is being synced the next one gathers, so that the batch grows with the load by itself.
    """

    def __init__(self, store: LogStore, *, max_batch: int = MAX_BATCH) -> None:
        self._store = store
        self._max_batch = max_batch
        self._waiting = _queue()
        #: queues of organizations that another gateway writes for, by tenant
        self._lanes: dict[Tenant, _Queue] = {}
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to the store."""
        await self._store.open()

    @property
    def has_room(self) -> bool:
        """Whether another entry may wait."""
        if self._lanes:
            weight = self._waiting.weight + sum(lane.weight for lane in self._lanes.values())
            return self.waiting < MAX_WAITING and weight < MAX_WEIGHT
        return len(self._waiting) < MAX_WAITING and self._waiting.weight < MAX_WEIGHT

    @property
    def waiting(self) -> int:
        """How many entries wait for their batch."""
        return len(self._waiting) + sum(len(lane) for lane in self._lanes.values())

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
        lane = self._lanes.get(tenant_of(entry)) if self._lanes else None
        if lane is not None:
            # Its own task takes it.
            return lane.join(entry, len(entry.context or ""))
        future = self._waiting.join(entry, len(entry.context or ""))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), context=Context())
        return future

    async def stop(self) -> None:
        """Write what waits, then disconnect."""
        while (self._task is not None and not self._task.done()) or self._lane_tasks:
            await asyncio.wait({*self._lane_tasks, *({self._task} if self._task is not None else ())})
        await self._store.close()

    async def _drain(self) -> None:
        while self._waiting:
            async with self._store.turn():
                # Taken only now: whoever came while others were writing is in this batch.
                batch = self._waiting.take(self._max_batch, MAX_BATCH_WEIGHT)
                if not batch:
                    # They had waited for too long.
                    return
                aside = await self._write(batch, wait=False)
            if aside:
                self._open_lanes(aside)

    def _open_lanes(self, aside: Sequence[_Entry]) -> None:
        """Give each tenant of entries that were set aside a lane, and move what else waits for it there."""
        by_tenant = defaultdict[Tenant, list[_Entry]](list)
        for one in aside:
            by_tenant[tenant_of(one.item)].append(one)
        for one in self._waiting.extract(lambda entry: tenant_of(entry) in by_tenant):
            by_tenant[tenant_of(one.item)].append(one)
        for tenant, entries in by_tenant.items():
            lane = self._lanes[tenant] = _queue()
            lane.rejoin(entries)
            task = asyncio.create_task(self._drain_lane(tenant, lane), context=Context())
            self._lane_tasks.add(task)
            task.add_done_callback(self._lane_tasks.discard)

    async def _drain_lane(self, tenant: Tenant, lane: _Queue) -> None:
        try:
            while batch := lane.take(self._max_batch, MAX_BATCH_WEIGHT):
                await self._write(batch, wait=True)
        finally:
            del self._lanes[tenant]

    async def _write(self, batch: Sequence[_Entry], *, wait: bool) -> Sequence[_Entry]:
        """Commit a batch, answer its entries, and return those that were set aside."""
        try:
            outcomes = await self._store.commit([one.item for one in batch], wait=wait)
        except Exception as failed:  # noqa: BLE001 - it is logged, and every caller is answered
            OUTAGE.failed("batches of log entries", failed)
            error = _unavailable("The log entry could not be written")
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
            return ()
        aside = []
        for one, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                aside.append(one)
            elif not one.future.done():
                one.future.set_result(outcome)
        return aside


def _queue() -> _Queue:
    return Queue(lambda: _unavailable("The log entry could not be written in time"))


def _unavailable(why: str) -> ApiError:
    return ApiError(503, f"{why}; retry after {RETRY_AFTER} second", {"Retry-After": str(RETRY_AFTER)})
