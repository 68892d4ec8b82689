"""Concurrency in one event loop: limits, a thread for large bodies, notifications, and queues that send in batches."""

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
    """Limits concurrent operations in total and per organization, so that one organization cannot block the others.

    `what` is the plural name of the operation, for error messages.
    """

    def __init__(self, what: str, total: int, per_organization: int) -> None:
        self._what = what
        self._total = total
        self._per_organization = per_organization
        self._running: Counter[str] = Counter()

    @contextmanager
    def acquire(self, organization_id: str) -> Iterator[None]:
        """Count one running operation of the organization while the `with` block runs.

        Raises:
            ApiError: 429, one of the limits is reached.
        """
        if self._running.total() >= self._total or self._running[organization_id] >= self._per_organization:
            raise ApiError(
                429,
                f"Too many {self._what} run at the same time; retry after {RETRY_AFTER} seconds",
                {"Retry-After": str(RETRY_AFTER)},
            )
        self._running[organization_id] += 1
        try:
            yield
        finally:
            self._running[organization_id] -= 1
            # Unary plus removes the organizations whose count is 0.
            self._running = +self._running


T = TypeVar("T")

#: Maximum size in bytes of a body that is parsed on the event loop. Parsing it takes 0.1 ms usually and less than 10 ms
#: in the worst case measured.
MAX_ON_LOOP = 16 * 1024


class BodyParser:
    """Parses large bodies in a single thread. More threads would only compete with the event loop for Python's GIL."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def run(self, size: int, parse: Callable[[], T]) -> T:
        """Call `parse` and return its result; if `size` exceeds `MAX_ON_LOOP` bytes, call it in the thread."""
        if size <= MAX_ON_LOOP:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse)

    def close(self) -> None:
        """Stop the thread without waiting for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)


_Watchers: TypeAlias = dict[str, set[asyncio.Event]]


class Notifier:
    """Sets asyncio events when an approval changes, to wake waiting requests and the organization's console pages.

    Attributes:
        calls: Deadlines of the tool calls of this process that wait for an approval, by approval id.
        closed: Whether the gateway is shutting down, so that no request should wait any longer.
        receives_remote: Whether notifications of other gateways arrive, so that their changes wake requests here.
    """

    def __init__(self) -> None:
        self._waiting: _Watchers = {}
        self._pages: _Watchers = {}
        self.calls: dict[str, list[datetime]] = {}
        self.closed = False
        self.receives_remote = False

    @contextmanager
    def watch_approval(self, approval_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set at every change of the approval.

        Enter this context before the first read of the approval. Otherwise a change between the two is missed.
        """
        with _registered(self._waiting, approval_id) as changed:
            yield changed

    @contextmanager
    def watch_organization(self, organization_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when any approval of the organization changes."""
        with _registered(self._pages, organization_id) as changed:
            yield changed

    @property
    def watched(self) -> int:
        """Number of requests in this process that wait for an approval."""
        return sum(map(len, self._waiting.values()))

    def notify(self, approval_id: str) -> None:
        """Wake the requests that wait for an approval."""
        _wake(self._waiting, approval_id)

    def notify_organization(self, organization_id: str, approval_id: str) -> None:
        """Wake the requests that wait for an approval, and the console pages of its organization."""
        _wake(self._waiting, approval_id)
        _wake(self._pages, organization_id)

    def close(self) -> None:
        """Wake all requests and pages, and mark the notifier as closed, so that no request waits any longer."""
        self.closed = True
        self.notify_all()

    def notify_all(self) -> None:
        """Wake all requests and pages. Called when notifications may have been lost."""
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
