"""A queue in which nobody waits for ever: a database that has fallen silent fills no memory and hangs nobody."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: seconds that a request of an agent waits for the database: the SDK tries for five, and should hear why it is refused
DEADLINE = 4.0
#: how often it is looked who has waited for too long; less than a microsecond an item it may cost, and a timer costs two
LOOK = 0.5


class Waiting(NamedTuple, Generic[Item, Answer]):
    """Somebody in the queue.

    Attributes:
        item: what it is about.
        future: the answer.
        weight: how much memory it holds, in bytes.
        until: the loop's moment at which it is given up.
    """

    item: Item
    future: "asyncio.Future[Answer]"
    weight: int
    until: float


class Queue(Generic[Item, Answer]):
    """Who waits, in order of arrival; of one event loop.

    Args:
        refusal: makes what is raised for whoever waited for too long.
        deadline: seconds.
    """

    def __init__(self, refusal: Callable[[], Exception], deadline: float = DEADLINE) -> None:
        self._refusal = refusal
        self._deadline = deadline
        self._waiting: deque[Waiting[Item, Answer]] = deque()
        self._looking = False
        #: bytes held by everybody in the queue
        self.weight = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, item: Item, weight: int = 0) -> "asyncio.Future[Answer]":
        """Return what becomes the answer of a newcomer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(Waiting(item, future, weight, loop.time() + self._deadline))
        self.weight += weight
        self._begin_looking(loop)
        return future

    def take(self, most: int, max_weight: float = math.inf) -> list[Waiting[Item, Answer]]:
        """Take the first few out, also those of clients that hung up.

        Args:
            most: how many at most.
            max_weight: bytes at most, unless the first one alone weighs more.
        """
        taken: list[Waiting[Item, Answer]] = []
        weight = 0
        while self._waiting and len(taken) < most:
            weight += self._waiting[0].weight
            if taken and weight > max_weight:
                break
            one = self._waiting.popleft()
            self.weight -= one.weight
            taken.append(one)
        return taken

    def extract(self, is_wanted: Callable[[Item], bool]) -> "list[Waiting[Item, Answer]]":
        """Take those out whose item is wanted, in order."""
        wanted = [one for one in self._waiting if is_wanted(one.item)]
        if wanted:
            self._waiting = deque(one for one in self._waiting if not is_wanted(one.item))
            self.weight -= sum(one.weight for one in wanted)
        return wanted

    def rejoin(self, ones: "Iterable[Waiting[Item, Answer]]") -> None:
        """Let those wait here who waited in another queue; their deadlines stay."""
        for one in ones:
            self._waiting.append(one)
            self.weight += one.weight
        self._begin_looking(asyncio.get_running_loop())

    def _begin_looking(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._looking and self._waiting:
            self._looking = True
            loop.call_later(LOOK, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._waiting and self._waiting[0].until <= now:
            [late] = self.take(1)
            if not late.future.done():
                late.future.set_exception(self._refusal())
        self._looking = bool(self._waiting)
        if self._looking:
            loop.call_later(LOOK, self._look, loop)
