"""Concurrency in one event loop: limits, a thread for large request bodies, notifications, and batching queues."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from toolgate_service.core.errors import ApiError, StorageFault

RETRY_AFTER = 10


class ConcurrencyLimiter:
    """Limit of concurrent operations, in total and per organization, so that one organization cannot block the others.

    `what` is the plural name of the operations for error messages, such as ``exports``.
    """

    def __init__(self, what: str, total: int, per_organization: int) -> None:
        self._what = what
        self._total = total
        self._per_organization = per_organization
        self._running: Counter[str] = Counter()

    @contextmanager
    def acquire(self, organization_id: str) -> Iterator[None]:
        """Count an operation of the organization as running until the `with` block ends.

        Raises:
            ApiError: 429, the total limit or the limit of the organization is reached.
        """
        if self._running.total() >= self._total or self._running[organization_id] >= self._per_organization:
            raise ApiError(
                429,
                f"Too many {self._what} are running at the same time; retry after {RETRY_AFTER} seconds",
                {"Retry-After": str(RETRY_AFTER)},
            )
        self._running[organization_id] += 1
        try:
            yield
        finally:
            self._running[organization_id] -= 1
            # Unary plus removes the organizations with the count 0, so that the counter does not grow without limit.
            self._running = +self._running


T = TypeVar("T")

#: maximum size in bytes of a request body that is parsed on the event loop; parsing a body of this size usually takes
#: 0.1 ms, and took less than 10 ms in the worst case that was measured
MAX_ON_LOOP = 16 * 1024


class BodyParser:
    """Parser of large request bodies in one separate thread.

    More threads would be useless, because parsing needs Python's global interpreter lock (GIL).
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def run(self, size: int, parse: Callable[[], T]) -> T:
        """Call `parse` and return its result.

        `size` is the size of the request body in bytes. If it is larger than `MAX_ON_LOOP`, `parse` runs in the parser
        thread, otherwise on the event loop.
        """
        if size <= MAX_ON_LOOP:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse)

    def close(self) -> None:
        """Stop the parser thread without waiting for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)


_Watchers: TypeAlias = dict[str, set[asyncio.Event]]


class Notifier:
    """Notifier that wakes waiting HTTP requests and open console pages when an approval request changes.

    Only requests and pages of this process are woken. Each of them waits for an asyncio event, which a notification
    sets.

    Attributes:
        calls: Maps the id of an approval request to the times at which the tool calls in this process that wait for its
            decision stop waiting.
        closed: True while the gateway shuts down. Requests must then stop waiting.
        receives_remote: True if notifications about changes in other gateway processes arrive.
    """

    def __init__(self) -> None:
        self._waiting: _Watchers = {}
        self._pages: _Watchers = {}
        self.calls: dict[str, list[datetime]] = {}
        self.closed = False
        self.receives_remote = False

    @contextmanager
    def watch_approval(self, approval_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the approval request changes.

        Enter the `with` block before the approval request is read for the first time. Otherwise, a change between the
        read and the start of the block is missed.
        """
        with _registered(self._waiting, approval_id) as changed:
            yield changed

    @contextmanager
    def watch_organization(self, organization_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever an approval request of the organization changes."""
        with _registered(self._pages, organization_id) as changed:
            yield changed

    @property
    def watched(self) -> int:
        """Number of HTTP requests in this process that wait for a decision."""
        return sum(map(len, self._waiting.values()))

    def notify(self, approval_id: str) -> None:
        """Wake the HTTP requests that wait for the decision about an approval request."""
        _wake(self._waiting, approval_id)

    def notify_organization(self, organization_id: str, approval_id: str) -> None:
        """Wake the HTTP requests that wait for an approval request, and the open console pages of the organization."""
        _wake(self._waiting, approval_id)
        _wake(self._pages, organization_id)

    def close(self) -> None:
        """Wake all waiting requests and console pages, and let no further request wait."""
        self.closed = True
        self.notify_all()

    def notify_all(self) -> None:
        """Wake all waiting requests and console pages. Call this method if notifications may have been lost."""
        for watchers in (self._waiting, self._pages):
            for id_ in watchers:
                _wake(watchers, id_)


@contextmanager
def _registered(watchers: _Watchers, id_: str) -> Iterator[asyncio.Event]:
    changed = asyncio.Event()
    events = watchers.setdefault(id_, set())
    events.add(changed)
    try:
        yield changed
    finally:
        events.discard(changed)
        if not events:
            watchers.pop(id_, None)


def _wake(watchers: _Watchers, id_: str) -> None:
    for changed in watchers.get(id_, ()):
        changed.set()


Item = TypeVar("Item")
Result = TypeVar("Result")

#: maximum time in seconds for which a request of an agent waits for the database; shorter than the SDK's timeout of 5
#: seconds, so that the SDK receives an error message
DEADLINE = 4.0
#: seconds between two sweeps that remove expired items; a sweep is cheaper than a timer for each item, which costs 2 µs
SWEEP_INTERVAL = 0.5


class QueuedItem(NamedTuple, Generic[Item, Result]):
    """Item in a `DeadlineQueue`.

    Attributes:
        item: Value that was added to the queue.
        future: Future that receives the result for this item.
        weight: Memory that the item uses, in bytes; 0 if the queue does not limit the memory.
        until: Deadline of the item, in the time of the event loop.
    """

    item: Item
    future: "asyncio.Future[Result]"
    weight: int
    until: float


class DeadlineQueue(Generic[Item, Result]):
    """First-in first-out queue whose items expire, for use in one event loop.

    Items expire so that, if the database does not respond, the queue does not fill the memory and requests do not wait
    forever.

    Args:
        expired: Function that creates the exception for the future of an expired item.
        deadline: Time in seconds after which an item expires.
    """

    def __init__(self, expired: Callable[[], Exception], deadline: float = DEADLINE) -> None:
        self._expired = expired
        self._deadline = deadline
        self._items: deque[QueuedItem[Item, Result]] = deque()
        self._is_sweeping = False
        #: total weight of all queued items, in bytes
        self.weight = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item, weight: int = 0) -> "asyncio.Future[Result]":
        """Append an item, and return the future that will receive its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._items.append(QueuedItem(item, future, weight, loop.time() + self._deadline))
        self.weight += weight
        self._start_sweep(loop)
        return future

    def take(self, count: int, max_weight: float = math.inf) -> list[QueuedItem[Item, Result]]:
        """Remove and return at most `count` items from the front of the queue.

        The total weight of the items is at most `max_weight` bytes, except that the first item is returned in any case.
        The result may contain items whose clients have disconnected.
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
        """Remove the items for which `is_wanted` returns True, and return them in queue order."""
        wanted = [one for one in self._items if is_wanted(one.item)]
        if wanted:
            self._items = deque(one for one in self._items if not is_wanted(one.item))
            self.weight -= sum(one.weight for one in wanted)
        return wanted

    def restore(self, items: "Iterable[QueuedItem[Item, Result]]") -> None:
        """Append items that were taken from another queue. They keep their original deadlines."""
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
    """Queue that sends items in batches, for use in one event loop.

    A round trip to the database takes about as long for thirty items as for one. No item is added to a batch that is
    already being sent, so each result is as current as that of a separate call.

    Args:
        send: Function that sends a batch of items and returns their results in the same order.
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
            lambda: StorageFault("the database did not respond in time")
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._is_alone = False

    async def run(self, item: Item) -> Result:
        """Send an item and return its result. If no other item is queued or being sent, bypass the queue.

        Through the queue, a single item would take a third longer.

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
        """Add an item to the queue, and return the future that will receive its result.

        The future raises the exception that `send` raised for the batch, or `StorageFault` if the item expired in the
        queue.
        """
        future = self._queue.add(item)
        self._schedule(asyncio.get_running_loop())
        return future

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled and len(self._tasks) < self._concurrency:
            self._is_scheduled = True
            # Start in the next iteration of the event loop, so that the batch contains all items of this iteration.
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
        except Exception as error:  # noqa: BLE001 - the futures of all items raise the error
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
        else:
            for one, result in zip(batch, results, strict=True):
                if not one.future.done():
                    one.future.set_result(result)
