"""Questions that are put together are answered as if each had been put alone."""

import asyncio
from collections.abc import Sequence

import pytest

from toolgate_service.hotpath.together import Together


class Clerk:
    """Doubles numbers, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bundles: list[list[int]] = []
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.fault: Exception | None = None

    async def put(self, questions: Sequence[int]) -> list[int]:
        """Answer."""
        self.bundles.append(list(questions))
        self.was_asked.set()
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        return [2 * question for question in questions]


async def test_whoever_asks_in_the_same_moment_shares_a_question() -> None:
    """Ten at once are one bundle, and each is given its own answer."""
    clerk = Clerk()
    together = Together(clerk.put, at_once=1, most=64)
    assert await asyncio.gather(*(together.ask(n) for n in range(10))) == [2 * n for n in range(10)]
    assert clerk.bundles == [list(range(10))]


async def test_a_question_is_never_answered_by_an_earlier_one() -> None:
    """What is asked while a bundle is under way is put after it was asked."""
    clerk = Clerk()
    clerk.may_answer.clear()
    together = Together(clerk.put, at_once=1, most=64)
    first = asyncio.ensure_future(together.ask(1))
    await clerk.was_asked.wait()
    second = asyncio.ensure_future(together.ask(1))
    await asyncio.sleep(0)
    assert clerk.bundles == [[1]]
    clerk.may_answer.set()
    assert await asyncio.gather(first, second) == [2, 2]
    assert clerk.bundles == [[1], [1]]


async def test_a_bundle_has_its_size() -> None:
    """More than fit go in several bundles, in the order in which they were asked."""
    clerk = Clerk()
    together = Together(clerk.put, at_once=2, most=4)
    assert await asyncio.gather(*(together.ask(n) for n in range(11))) == [2 * n for n in range(11)]
    assert [len(bundle) for bundle in clerk.bundles] == [4, 4, 3]
    assert [n for bundle in clerk.bundles for n in bundle] == list(range(11))


async def test_who_hangs_up_takes_nobody_along() -> None:
    """A question that is given up leaves the others of its bundle their answers."""
    clerk = Clerk()
    clerk.may_answer.clear()
    together = Together(clerk.put, at_once=1, most=64)
    asked = [asyncio.ensure_future(together.ask(n)) for n in range(3)]
    await clerk.was_asked.wait()
    asked[1].cancel()
    clerk.may_answer.set()
    assert await asyncio.gather(asked[0], asked[2]) == [0, 4]


async def test_a_fault_is_everybody_s_and_is_over_with_its_bundle() -> None:
    """All who asked hear of it; the next question is put again."""
    clerk = Clerk()
    clerk.fault = OSError("away")
    together = Together(clerk.put, at_once=1, most=64)
    faults = await asyncio.gather(*(together.ask(n) for n in range(3)), return_exceptions=True)
    assert [str(fault) for fault in faults] == ["away"] * 3
    clerk.fault = None
    assert await together.ask(4) == 8


async def test_a_cancelled_bundle_leaves_nobody_waiting() -> None:
    """When the gateway ends in the middle, those who asked are told."""
    clerk = Clerk()
    clerk.may_answer.clear()
    together = Together(clerk.put, at_once=1, most=64)
    asked = asyncio.ensure_future(together.ask(1))
    await clerk.was_asked.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task(), asked}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
