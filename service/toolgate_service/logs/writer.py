"""Group commit of log entries: entries that wait at the same time share one transaction and one sync to disk.

If another gateway holds the lock of an organization, the organization's entries move to a separate queue, called a
lane, so that they do not delay the entries of other organizations.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolgate_service.core.concurrency import DeadlineQueue, QueuedItem
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import Usage
from toolgate_service.db.health import OUTAGE
from toolgate_service.logs.batch import Tenant, tenant_of
from toolgate_service.logs.entries import NewEntry, Outcome, Replayed, Stored

if TYPE_CHECKING:
    from toolgate_service.core.metrics import Metrics

MAX_BATCH = 256
#: Maximum number of bytes of contexts in one batch, except for a single larger entry. A network of 100 Mbit/s transfers
#: them in a third of a second; the statement timeout is four seconds.
MAX_BATCH_WEIGHT = 4 * 1024 * 1024
#: maximum number of waiting entries, and maximum number of bytes of their contexts; if either is reached, new entries
#: are rejected with a 503
MAX_WAITING = 10_000
MAX_WEIGHT = 64 * 1024 * 1024
RETRY_AFTER = 1

_Queue: TypeAlias = DeadlineQueue[NewEntry, Outcome]
_Entry: TypeAlias = QueuedItem[NewEntry, Outcome]


class LogStore(Protocol):
    """Interface of log stores, which commit batches of log entries."""

    async def open(self) -> None:
        """Connect to the database, whose schema must exist."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return a context manager that waits until this process may write."""

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> Sequence[Outcome | None]:
        """Commit entries and return one outcome for each, in order.

        Args:
            entries: Entries of any organizations; with `wait`, of one organization.
            wait: True to wait for a lock that another gateway holds. Without `wait`, entries of a locked organization
                are not written and their outcome is None. The caller must commit them again with `wait`.

        Raises:
            Exception: No entry of the batch was stored.
        """

    def usage(self) -> Usage | None:
        """Return the usage of the connection pool; None if the store has no pool."""

    async def close(self) -> None:
        """Disconnect."""


class LogWriter:
    """Writer that collects the log entries of concurrent requests and commits them in batches.

    While one batch is written, the next batch collects entries, so the size of batches grows with the load.
    """

    def __init__(
        self, store: LogStore, metrics: "Metrics | None" = None, *, max_batch: int = MAX_BATCH
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._max_batch = max_batch
        self._waiting = _queue()
        #: lanes by tenant: queues for the entries of organizations whose lock another gateway holds
        self._lanes: dict[Tenant, _Queue] = {}
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to the store."""
        await self._store.open()

    @property
    def has_room(self) -> bool:
        """True if the writer accepts another entry, because the limits of waiting entries are not reached."""
        if self._lanes:
            weight = self._waiting.weight + sum(lane.weight for lane in self._lanes.values())
            return self.waiting < MAX_WAITING and weight < MAX_WEIGHT
        return len(self._waiting) < MAX_WAITING and self._waiting.weight < MAX_WEIGHT

    @property
    def waiting(self) -> int:
        """Number of entries that wait to be written."""
        return len(self._waiting) + sum(len(lane) for lane in self._lanes.values())

    async def append(self, entry: NewEntry) -> Outcome:
        """Queue an entry, wait until it is committed to disk, and return its outcome.

        Raises:
            ApiError: 503, too many entries wait, the entry waited for too long, or the database failed.
        """
        if not self.has_room:
            raise _unavailable("Too many log entries wait to be written")
        lane = self._lanes.get(tenant_of(entry)) if self._lanes else None
        if lane is not None:
            # The lane's own task writes the entry.
            return await lane.add(entry, len(entry.context or ""))
        future = self._waiting.add(entry, len(entry.context or ""))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), context=Context())
        return await future

    async def stop(self) -> None:
        """Write all waiting entries, then disconnect from the store."""
        while (self._task is not None and not self._task.done()) or self._lane_tasks:
            await asyncio.wait({*self._lane_tasks, *({self._task} if self._task is not None else ())})
        await self._store.close()

    async def _drain(self) -> None:
        while self._waiting:
            async with self._store.turn():
                # The batch is taken after the wait for the lock, so that it includes entries that arrived during it.
                batch = self._waiting.take(self._max_batch, MAX_BATCH_WEIGHT)
                if not batch:
                    # All waiting entries have passed their deadline.
                    return
                aside = await self._write(batch, wait=False)
            if aside:
                self._open_lanes(aside)

    def _open_lanes(self, aside: Sequence[_Entry]) -> None:
        """Create a lane for each tenant of these entries, and move all its waiting entries into the lane."""
        by_tenant = defaultdict[Tenant, list[_Entry]](list)
        for one in aside:
            by_tenant[tenant_of(one.item)].append(one)
        for one in self._waiting.extract(lambda entry: tenant_of(entry) in by_tenant):
            by_tenant[tenant_of(one.item)].append(one)
        for tenant, entries in by_tenant.items():
            lane = self._lanes[tenant] = _queue()
            lane.restore(entries)
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
        """Commit a batch and complete the futures of its entries.

        Returns:
            The entries that were not written because another gateway holds the lock of their organization.
        """
        began = perf_counter()
        try:
            outcomes = await self._store.commit([one.item for one in batch], wait=wait)
        except Exception as failed:  # noqa: BLE001 - it is logged, and every caller is answered
            OUTAGE.failed("batches of log entries", failed)
            if self._metrics is not None:
                self._metrics.log_entries.labels("failed").inc(len(batch))
            error = _unavailable("The log entry could not be written")
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
            return ()
        if self._metrics is not None:
            _count(self._metrics, outcomes, perf_counter() - began)
        aside = []
        for one, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                aside.append(one)
            elif not one.future.done():
                one.future.set_result(outcome)
        return aside


def _count(metrics: "Metrics", outcomes: Sequence[Outcome | None], seconds: float) -> None:
    metrics.log_commits.observe(seconds)
    # Entries of locked organizations have no outcome yet. They are counted when they are committed.
    done = [outcome for outcome in outcomes if outcome is not None]
    if done:
        metrics.log_batches.observe(len(done))
    for outcome in done:
        name = (
            "stored"
            if isinstance(outcome, Stored)
            else "replayed"
            if isinstance(outcome, Replayed)
            else "refused"
        )
        metrics.log_entries.labels(name).inc()


def _queue() -> _Queue:
    return DeadlineQueue(lambda: _unavailable("The log entry could not be written in time"))


def _unavailable(why: str) -> ApiError:
    return ApiError(503, f"{why}; retry after {RETRY_AFTER} second", {"Retry-After": str(RETRY_AFTER)})
