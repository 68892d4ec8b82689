"""Questions that are asked at the same moment, put as one: a round trip costs the same for one and for thirty."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.patience import Queue, Waiting

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Together(Generic[Question, Answer]):
    """Gathers questions of one event loop.

    A question is put after it was asked, never before: its answer is as fresh as if it had been put alone.

    Args:
        put: answers some questions, in their order.
        at_once: how many bundles may be under way.
        most: questions in a bundle.
    """

    def __init__(
        self, put: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]], *, at_once: int, most: int
    ) -> None:
        self._put = put
        self._at_once = at_once
        self._most = most
        self._waiting: Queue[Question, Answer] = Queue(
            lambda: StorageFault("the database did not answer in time")
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._called = False

    def ask(self, question: Question) -> "asyncio.Future[Answer]":
        """Return what becomes the answer, or raises whatever `put` raised for the bundle.

        Raises:
            StorageFault: from the future, if it waited for too long to be put.
        """
        future = self._waiting.join(question)
        self._call(asyncio.get_running_loop())
        return future

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._called and len(self._tasks) < self._at_once:
            self._called = True
            # Not at once: whoever is ready in this turn of the loop joins.
            loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._called = False
        bundle = self._waiting.take(self._most)
        task = asyncio.get_running_loop().create_task(self._answer(bundle))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._waiting:
            self._call(asyncio.get_running_loop())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._waiting:
            self._call(task.get_loop())

    async def _answer(self, bundle: Sequence[Waiting[Question, Answer]]) -> None:
        # Those who hung up meanwhile need no answer.
        try:
            answers = await self._put([one.item for one in bundle])
        except asyncio.CancelledError:
            for one in bundle:
                one.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again, by everybody who asked
            for one in bundle:
                if not one.future.done():
                    one.future.set_exception(error)
        else:
            for one, answer in zip(bundle, answers, strict=True):
                if not one.future.done():
                    one.future.set_result(answer)
