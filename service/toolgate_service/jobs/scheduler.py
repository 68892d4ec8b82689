"""Scheduler that runs background jobs periodically, either on one gateway at a time or on every gateway."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from toolgate_service.core.errors import StorageFault
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database
from toolgate_service.db.health import OUTAGE
from toolgate_service.db.retry import with_retry
from toolgate_service.jobs.lease import RetentionHalted, Rounds, claim, release, renew

logger = logging.getLogger("toolgate.gateway")

#: background job: a function that the scheduler calls once in every round
Job: TypeAlias = Callable[[], Awaitable[object]]

#: maximum time in seconds from the start of a gateway to its first round, before random variation by 20 %
FIRST_DELAY = 60
#: maximum duration of a lease in seconds
LEASE = 60
#: duration of a lease in intervals, if that is shorter than `LEASE`; also the number of renewals per lease duration
ROUNDS = 3
#: Fraction of the interval after which a round is due. It is less than 1, because the delays of gateways vary randomly:
#: otherwise a gateway that checks slightly early would skip the round.
DUE = 0.8


class Scheduler:
    """Runs a list of jobs in every round. If a job fails, the other jobs and the gateway continue.

    Rounds start every `seconds`, randomly varied by 20 %, so that gateways do not start them at the same time. With
    `exclusive`, a round runs on only one gateway, which holds the maintenance lease. `problem` returns the reason why
    this gateway must not run jobs, for instance a wrong clock, or None.
    """

    def __init__(
        self,
        database: Database,
        seconds: float,
        jobs: Sequence[Job],
        problem: Callable[[], Awaitable[str | None]],
        *,
        exclusive: bool = True,
    ) -> None:
        self._database = database
        lease = min(LEASE, ROUNDS * seconds)
        self._rounds = Rounds(timedelta(seconds=DUE * seconds), timedelta(seconds=lease))
        # If rounds are exclusive, every gateway checks at least once per lease duration. So after a crash of the
        # gateway with the lease another gateway takes over soon.
        self._seconds = min(seconds, lease) if exclusive else seconds
        self._jobs = jobs
        self._problem = problem
        self._exclusive = exclusive
        self._id = new_id()
        self._task: asyncio.Task[None] | None = None
        #: the problem that was logged last, or None if the jobs run
        self._logged: str | None = None
        #: Unix time of the end of the last round of this process in which no job failed
        self.finished_at: float | None = None

    def start(self) -> None:
        """Start the background task."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop immediately, even during a round. A later round repeats the work that was not committed."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not self._exclusive:
            return
        try:
            # This call has an effect only if a round was interrupted, since between rounds no gateway holds the lease.
            await release(self._database, self._id, done=False)
        except StorageFault as failed:
            OUTAGE.failed("releases of the maintenance lease", failed)
        except Exception:
            logger.exception(
                "the upkeep could not be left to another gateway, which waits until it may take it"
            )

    async def _run(self) -> None:
        await asyncio.sleep(_about(min(self._seconds, FIRST_DELAY)))
        while True:
            try:
                problem = await self._problem()
                self._log_problem(problem)
                if problem is None and not self._exclusive:
                    await self._round()
                elif problem is None and await claim(self._database, self._id, self._rounds):
                    await self._exclusive_round()
            except Exception as failed:  # noqa: BLE001 - it is logged, and tried again
                OUTAGE.failed("rounds of maintenance", failed)
            await asyncio.sleep(_about(self._seconds))

    async def _exclusive_round(self) -> None:
        renewing = asyncio.create_task(self._renew_lease())
        try:
            await self._round()
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        await release(self._database, self._id, done=True)

    async def _renew_lease(self) -> None:
        while True:
            await asyncio.sleep(self._rounds.lease.total_seconds() / ROUNDS)
            try:
                await renew(self._database, self._id, self._rounds)
            except Exception as failed:  # noqa: BLE001 - it is logged
                # If the lease expires, another gateway may start a round at the same time, which is harmless.
                OUTAGE.failed("renewals of the maintenance lease", failed)

    def _log_problem(self, problem: str | None) -> None:
        """Log that a problem stops maintenance, or that maintenance resumes, but only once per change."""
        if problem != self._logged:
            if problem is not None:
                logger.warning("no upkeep is done: %s", problem)
            else:
                logger.info("upkeep is done again")
            self._logged = problem

    async def _round(self) -> None:
        succeeded = True
        for job in self._jobs:
            try:
                # Before the first commit of a job, `with_retry` repeats the whole job. Later, only the job's own
                # `with_retry` calls repeat a failed transaction.
                await with_retry(job)
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
