"""Whoever waits for the database waits for so long and no longer, and what waits is weighed."""

import asyncio

import pytest

from toolgate_service.hotpath.patience import Queue


class _Late(Exception):
    """What latecomers hear."""


async def test_whoever_waited_too_long_is_refused_in_place() -> None:
    """With nobody taking from the queue everyone in it hears the refusal, each its own, and it is empty."""
    queue: Queue[int, int] = Queue(_Late, deadline=0)
    futures = [queue.join(number, weight=10) for number in range(3)]
    heard = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(one) for one in heard] == [_Late] * 3
    assert len({id(one) for one in heard}) == 3
    assert (len(queue), queue.weight) == (0, 0)


async def test_those_in_time_wait_on() -> None:
    """When the first are given up the later ones stay, and newcomers are given up in their turn."""
    queue: Queue[str, int] = Queue(_Late, deadline=0.6)
    early = queue.join("early")
    await asyncio.gather(queue.join("also early"), return_exceptions=True)
    late = queue.join("late")
    assert isinstance(early.exception(), _Late)
    assert [one.item for one in queue.take(10)] == ["late"]
    late.set_result(1)
    with pytest.raises(_Late):
        await queue.join("last")


async def test_taken_weight_is_limited() -> None:
    """An item that alone weighs more is taken by itself."""
    queue: Queue[str, int] = Queue(_Late)
    for item, weight in {"a": 50, "b": 5, "c": 5, "d": 1}.items():
        queue.join(item, weight)
    taken = []
    while one := queue.take(10, 10):
        taken.append("".join(each.item for each in one))
    assert taken == ["a", "bc", "d"]
    assert queue.weight == 0


async def test_what_is_taken_is_no_longer_weighed() -> None:
    """The first ones are taken, in their order, with their weight; a caller who hung up is among them."""
    queue: Queue[str, int] = Queue(_Late)
    queue.join("a", 5).cancel()
    queue.join("b", 7)
    queue.join("c", 11)
    assert [one.item for one in queue.take(2)] == ["a", "b"]
    assert (len(queue), queue.weight) == (1, 11)
