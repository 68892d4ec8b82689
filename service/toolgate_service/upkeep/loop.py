"""The background loops: the upkeep, which one gateway at a time does, and the watch, which every gateway keeps."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from toolgate_service.ids import new_id
from toolgate_service.storage.database import Database
from toolgate_service.upkeep.heartbeat import claim, release
from toolgate_service.upkeep.retention import RetentionHalted

logger = logging.getLogger("toolgate.gateway")

#: a piece of the upkeep
Step: TypeAlias = Callable[[], Awaitable[object]]

#: seconds, at most, until a gateway that has just started does the upkeep for the first time
FIRST = 60
#: a gateway that died holds the upkeep for so many rounds
ROUNDS = 3


class Upkeep:
    """Does its steps every so often, unless another gateway does or all of them may.

    Args:
        database: where gateways agree on who does it.
        seconds: from one round to the next, give or take a fifth: gateways that start together do not stay together.
        steps: what is done, in order; one that fails keeps neither the others nor the gateway.
        problem: tells what keeps the gateway from working, its clock for instance; None when nothing does.
        alone: whether one gateway at a time does it.
    """

    def __init__(
        self,
        database: Database,
        seconds: float,
        steps: Sequence[Step],
        problem: Callable[[], Awaitable[str | None]],
        *,
        alone: bool = True,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._steps = steps
        self._problem = problem
        self._alone = alone
        self._id = new_id()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, in the middle of a round if need be: a batch that was not committed is done again some time."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not self._alone:
            return
        try:
            await release(self._database, self._id)
        except Exception:
            logger.exception(
                "the upkeep could not be left to another gateway, which waits until it may take it"
            )

    async def _run(self) -> None:
        await asyncio.sleep(_about(min(self._seconds, FIRST)))
        while True:
            try:
                problem = await self._problem()
                if problem is not None:
                    logger.warning("no upkeep is done: %s", problem)
                elif await self._may():
                    await self._round()
            except Exception:
                logger.exception("the upkeep could not be taken; the gateway tries again")
            await asyncio.sleep(_about(self._seconds))

    async def _may(self) -> bool:
        lease = timedelta(seconds=ROUNDS * self._seconds)
        return not self._alone or await claim(self._database, self._id, lease)

    async def _round(self) -> None:
        for step in self._steps:
            try:
                await step()
            except RetentionHalted as halted:
                logger.warning("retention halts: %s", halted)
            except Exception:
                logger.exception("a step of the upkeep failed; the gateway tries again in the next round")


def _about(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
