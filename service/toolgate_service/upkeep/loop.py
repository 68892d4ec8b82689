"""The background loops: the upkeep, whose rounds gateways share, and the watch, which every gateway keeps."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from toolgate_service.errors import StorageFault
from toolgate_service.ids import new_id
from toolgate_service.storage.database import Database
from toolgate_service.storage.outage import OUTAGE
from toolgate_service.storage.races import anew
from toolgate_service.upkeep.heartbeat import Rounds, claim, keep, release
from toolgate_service.upkeep.retention import RetentionHalted

logger = logging.getLogger("toolgate.gateway")

#: a piece of the upkeep
Step: TypeAlias = Callable[[], Awaitable[object]]

#: seconds, at most, until a gateway that has just started does the upkeep for the first time
FIRST = 60
#: seconds at most, and rounds, for which a gateway that died in the middle of one holds the upkeep
LEASE = 60
ROUNDS = 3
#: the part of the time between rounds after which one is due: who begins them is not always the same, nor as quick
DUE = 0.8


class Upkeep:
    """Does its steps every so often, unless another gateway has just done them, or every gateway does.

    Args:
        database: where gateways agree on who does it.
        seconds: from one round to the next, give or take a fifth: gateways that start together do not stay together.
        steps: what is done, in order; one that fails keeps neither the others nor the gateway.
        problem: tells what keeps the gateway from working, its clock for instance; None when nothing does.
        alone: whether a round is one gateway's; otherwise each does its own.
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
        lease = min(LEASE, ROUNDS * seconds)
        self._rounds = Rounds(timedelta(seconds=DUE * seconds), timedelta(seconds=lease))
        # Who does not begin a round looks as often as a dead one's comes free.
        self._seconds = min(seconds, lease) if alone else seconds
        self._steps = steps
        self._problem = problem
        self._alone = alone
        self._id = new_id()
        self._task: asyncio.Task[None] | None = None
        #: the problem that was logged last
        self._logged: str | None = None
        #: Unix time at which this process last finished a round without a failure; None before the first
        self.finished_at: float | None = None

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
            # Left in the middle of a round; between two of them it is nobody's.
            await release(self._database, self._id, done=False)
        except StorageFault as failed:
            OUTAGE.failed("releases of the maintenance lease", failed)
        except Exception:
            logger.exception(
                "the upkeep could not be left to another gateway, which waits until it may take it"
            )

    async def _run(self) -> None:
        await asyncio.sleep(_about(min(self._seconds, FIRST)))
        while True:
            try:
                problem = await self._problem()
                self._log_problem(problem)
                if problem is None and not self._alone:
                    await self._round()
                elif problem is None and await claim(self._database, self._id, self._rounds):
                    await self._own_round()
            except Exception as failed:  # noqa: BLE001 - it is logged, and tried again
                OUTAGE.failed("rounds of maintenance", failed)
            await asyncio.sleep(_about(self._seconds))

    async def _own_round(self) -> None:
        keeping = asyncio.create_task(self._keep())
        try:
            await self._round()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await release(self._database, self._id, done=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._rounds.lease.total_seconds() / ROUNDS)
            try:
                await keep(self._database, self._id, self._rounds)
            except Exception as failed:  # noqa: BLE001 - it is logged
                # Another gateway may begin a round beside this one: that costs time, and nothing else.
                OUTAGE.failed("renewals of the maintenance lease", failed)

    def _log_problem(self, problem: str | None) -> None:
        """Log that no maintenance is done, or that it is done again, when that changes."""
        if problem != self._logged:
            if problem is not None:
                logger.warning("no upkeep is done: %s", problem)
            else:
                logger.info("upkeep is done again")
            self._logged = problem

    async def _round(self) -> None:
        succeeded = True
        for step in self._steps:
            try:
                # From its beginning, as long as it has committed nothing; then each of its transactions by itself.
                await anew(step)
            except RetentionHalted as halted:
                logger.warning("retention halts: %s", halted)
            except StorageFault as failed:
                succeeded = False
                OUTAGE.failed("steps of maintenance", failed)
            except Exception:
                succeeded = False
                logger.exception("a step of the upkeep failed; the gateway tries again in the next round")
        if succeeded:
            self.finished_at = time.time()


def _about(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
