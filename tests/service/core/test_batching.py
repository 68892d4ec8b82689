"""Items of a queue expire and are weighed; items of a batch are answered as if each had been sent alone."""

import asyncio
from collections.abc import Sequence

import pytest

from toolgate_service.core.concurrency import Batcher, DeadlineQueue


class _Late(Exception):
    """Raised for an item past its deadline."""


async def test_whoever_waited_too_long_is_refused_in_place() -> None:
    """With nobody taking from the queue everyone in it hears the refusal, each its own, and it is empty."""
    queue: DeadlineQueue[int, int] = DeadlineQueue(_Late, deadline=0)
    futures = [queue.add(number, weight=10) for number in range(3)]
    heard = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(one) for one in heard] == [_Late] * 3
    assert len({id(one) for one in heard}) == 3
    assert (len(queue), queue.weight) == (0, 0)


async def test_those_in_time_wait_on() -> None:
    """When the first are given up the later ones stay, and newcomers are given up in their turn."""
    queue: DeadlineQueue[str, int] = DeadlineQueue(_Late, deadline=0.6)
    early = queue.add("early")
    await asyncio.gather(queue.add("also early"), return_exceptions=True)
    late = queue.add("late")
    assert isinstance(early.exception(), _Late)
    assert [one.item for one in queue.take(10)] == ["late"]
    late.set_result(1)
    with pytest.raises(_Late):
        await queue.add("last")


async def test_taken_weight_is_limited() -> None:
    """An item that alone weighs more is taken by itself."""
    queue: DeadlineQueue[str, int] = DeadlineQueue(_Late)
    for item, weight in {"a": 50, "b": 5, "c": 5, "d": 1}.items():
        queue.add(item, weight)
    taken = []
    while one := queue.take(10, 10):
        taken.append("".join(each.item for each in one))
    assert taken == ["a", "bc", "d"]
    assert queue.weight == 0


async def test_what_is_taken_is_no_longer_weighed() -> None:
    """The first ones are taken, in their order, with their weight; a caller who hung up is among them."""
    queue: DeadlineQueue[str, int] = DeadlineQueue(_Late)
    queue.add("a", 5).cancel()
    queue.add("b", 7)
    queue.add("c", 11)
    assert [one.item for one in queue.take(2)] == ["a", "b"]
    assert (len(queue), queue.weight) == (1, 11)


class Database:
    """Doubles numbers and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.fault: Exception | None = None

    async def send(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.was_asked.set()
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        return [2 * item for item in items]


async def test_items_of_one_iteration_share_a_batch() -> None:
    database = Database()
    batcher = Batcher(database.send, concurrency=1, size=64)
    assert await asyncio.gather(*(batcher.submit(n) for n in range(10))) == [2 * n for n in range(10)]
    assert database.batches == [list(range(10))]


async def test_an_item_does_not_join_a_batch_under_way() -> None:
    database = Database()
    database.may_answer.clear()
    batcher = Batcher(database.send, concurrency=1, size=64)
    first = asyncio.ensure_future(batcher.submit(1))
    await database.was_asked.wait()
    second = asyncio.ensure_future(batcher.submit(1))
    await asyncio.sleep(0)
    assert database.batches == [[1]]
    database.may_answer.set()
    assert await asyncio.gather(first, second) == [2, 2]
    assert database.batches == [[1], [1]]


async def test_a_batch_has_a_maximum_size() -> None:
    database = Database()
    batcher = Batcher(database.send, concurrency=2, size=4)
    assert await asyncio.gather(*(batcher.submit(n) for n in range(11))) == [2 * n for n in range(11)]
    assert [len(batch) for batch in database.batches] == [4, 4, 3]
    assert [n for batch in database.batches for n in batch] == list(range(11))


async def test_a_cancelled_item_leaves_the_others_their_results() -> None:
    database = Database()
    database.may_answer.clear()
    batcher = Batcher(database.send, concurrency=1, size=64)
    asked = [asyncio.ensure_future(batcher.submit(n)) for n in range(3)]
    await database.was_asked.wait()
    asked[1].cancel()
    database.may_answer.set()
    assert await asyncio.gather(asked[0], asked[2]) == [0, 4]


async def test_a_fault_is_raised_for_every_item_of_its_batch_only() -> None:
    database = Database()
    database.fault = OSError("away")
    batcher = Batcher(database.send, concurrency=1, size=64)
    faults = await asyncio.gather(*(batcher.submit(n) for n in range(3)), return_exceptions=True)
    assert [str(fault) for fault in faults] == ["away"] * 3
    database.fault = None
    assert await batcher.submit(4) == 8


async def test_a_cancelled_batch_cancels_its_items() -> None:
    database = Database()
    database.may_answer.clear()
    batcher = Batcher(database.send, concurrency=1, size=64)
    asked = asyncio.ensure_future(batcher.submit(1))
    await database.was_asked.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task(), asked}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
