"""Queue of items with deadlines, and a batcher that sends several queued items in one call."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from toolgate_service.core.errors import StorageFault

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Maximum time in seconds that an agent's request waits for the database. The SDK's own timeout is 5 seconds. The
#: gateway must respond earlier, so that the SDK receives the error message.
DEADLINE = 4.0
#: seconds between two sweeps that remove expired items; one sweep replaces a timer for each item, which costs 2 µs
SWEEP_INTERVAL = 0.5


class QueuedItem(NamedTuple, Generic[Item, Result]):
    """An item in the queue.

    Attributes:
        item: The value that the caller added.
        future: Future that receives the item's result.
        weight: Memory of the item in bytes.
        until: Deadline of the item, as event loop time.
    """

    item: Item
    future: "asyncio.Future[Result]"
    weight: int
    until: float


class DeadlineQueue(Generic[Item, Result]):
    """First-in first-out queue whose items expire, for use in one event loop.

    If the database does not respond, items expire. So the queue does not fill the memory and requests do not hang.

    Args:
        expired: Creates the exception that an expired item's future raises.
        deadline: Seconds until an item expires.
    """

    def __init__(self, expired: Callable[[], Exception], deadline: float = DEADLINE) -> None:
        self._expired = expired
        self._deadline = deadline
        self._items: deque[QueuedItem[Item, Result]] = deque()
        self._is_sweeping = False
        #: total weight of the queued items, in bytes
        self.weight = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item, weight: int = 0) -> "asyncio.Future[Result]":
        """Append an item and return the future that will receive its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._items.append(QueuedItem(item, future, weight, loop.time() + self._deadline))
        self.weight += weight
        self._start_sweep(loop)
        return future

    def take(self, count: int, max_weight: float = math.inf) -> list[QueuedItem[Item, Result]]:
        """Remove and return the first items. They may include items whose clients have disconnected.

        Args:
            count: Maximum number of items.
            max_weight: Maximum total weight in bytes. The first item is returned even if it is heavier.
        """
        taken: list[QueuedItem[Item, Result]] = []
        weight = 0
        while self._items and len(taken) < count:
            weight += self._items[0].weight
            if taken and weight > max_weight:
                break
            one = self._items.popleft()
            self.weight -= one.weight
            taken.append(one)
        return taken

    def extract(self, is_wanted: Callable[[Item], bool]) -> "list[QueuedItem[Item, Result]]":
        """Remove and return all items for which `is_wanted` returns true, in queue order."""
        wanted = [one for one in self._items if is_wanted(one.item)]
        if wanted:
            self._items = deque(one for one in self._items if not is_wanted(one.item))
            self.weight -= sum(one.weight for one in wanted)
        return wanted

    def restore(self, items: "Iterable[QueuedItem[Item, Result]]") -> None:
        """Append items that were taken from another queue, with their original deadlines."""
        for one in items:
            self._items.append(one)
            self.weight += one.weight
        self._start_sweep(asyncio.get_running_loop())

    def _start_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_sweeping and self._items:
            self._is_sweeping = True
            loop.call_later(SWEEP_INTERVAL, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._items and self._items[0].until <= now:
            [late] = self.take(1)
            if not late.future.done():
                late.future.set_exception(self._expired())
        self._is_sweeping = bool(self._items)
        if self._is_sweeping:
            loop.call_later(SWEEP_INTERVAL, self._sweep, loop)


class Batcher(Generic[Item, Result]):
    """Sends queued items in batches, for use in one event loop.

    A round trip to the database costs about the same for one item and for thirty. A batch contains only items that were
    added before it is sent. So a batched result is as current as the result of a separate call.

    Args:
        send: Sends a batch of items and returns their results in the same order.
        concurrency: Maximum number of batches that are sent at the same time.
        size: Maximum number of items in a batch.
    """

    def __init__(
        self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, concurrency: int, size: int
    ) -> None:
        self._send = send
        self._concurrency = concurrency
        self._size = size
        self._queue: DeadlineQueue[Item, Result] = DeadlineQueue(
            lambda: StorageFault("the database did not answer in time")
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._is_alone = False

    async def run(self, item: Item) -> Result:
        """Send an item and return its result. If no other item is queued or being sent, send it without queueing.

        For a single item, the task and the future of the queue would add a third to the time of the round trip.

        Raises:
            StorageFault: The item expired in the queue.
        """
        if self._is_alone or self._tasks or self._queue:
            return await self.submit(item)
        self._is_alone = True
        try:
            [result] = await self._send([item])
        finally:
            self._is_alone = False
        return result

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Add an item to the queue and return the future that will receive its result.

        The future raises the exception that `send` raised for the batch, or `StorageFault` if the item expired in the
        queue.
        """
        future = self._queue.add(item)
        self._schedule(asyncio.get_running_loop())
        return future

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled and len(self._tasks) < self._concurrency:
            self._is_scheduled = True
            # Start in the next iteration of the event loop, so that the batch contains every item of this iteration.
            loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        batch = self._queue.take(self._size)
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        if self._queue:
            self._schedule(asyncio.get_running_loop())

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._queue:
            self._schedule(task.get_loop())

    async def _run(self, batch: Sequence[QueuedItem[Item, Result]]) -> None:
        try:
            results = await self._send([one.item for one in batch])
        except asyncio.CancelledError:
            for one in batch:
                one.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - every future raises it
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
        else:
            for one, result in zip(batch, results, strict=True):
                if not one.future.done():
                    one.future.set_result(result)
