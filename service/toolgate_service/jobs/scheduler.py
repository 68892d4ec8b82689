"""Scheduler for background jobs, and the maintenance lease.

One gateway at a time holds the lease, so that usually only one gateway runs maintenance. The lease only avoids double
work: every job locks the rows that it changes, so it is correct even if several gateways run it. The lease is a row in
a table instead of an advisory lock, because a row survives a lost connection and works through every connection pooler.

One run of all jobs of a scheduler is called a round.

After the clock has jumped, no gateway deletes rows until the clock has run steadily for a day, because a wrong clock
makes rows look expired.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from sqlmodel import Field, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.errors import StorageFault
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.health import OUTAGE
from toolgate_service.db.models import Id, Table, Timestamp
from toolgate_service.db.retry import with_retry


class Heartbeat(Table, table=True):
    """Row of a background job, with the time of its latest run and the gateway that holds its lease."""

    __tablename__ = "heartbeats"

    job: str = Field(primary_key=True, max_length=20)
    #: Id of the scheduler that holds the lease. `held_until` is the end of the lease.
    holder: str | None = Field(default=None, sa_type=Id)
    held_until: datetime | None = Field(default=None, sa_type=Timestamp)
    beaten_at: datetime = Field(sa_type=Timestamp)
    #: Time since which the clock has run without a jump.
    steady_since: datetime = Field(sa_type=Timestamp)


#: Maximum time between two maintenance rounds. After a longer gap, the scheduler assumes that the clock has jumped.
JUMP = timedelta(days=1)
#: Time for which the clock must run steadily after a jump before rows are deleted again.
STEADY = timedelta(days=1)

UPKEEP = "upkeep"
RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Timing of maintenance rounds. A round is one run of all maintenance jobs.

    Attributes:
        every: Time from the start of one round until the next one is due.
        lease: Time after which a lease expires if its gateway does not renew it.
    """

    every: timedelta
    lease: timedelta


async def claim(database: Database, holder: str, rounds: Rounds) -> bool:
    """Try to take the maintenance lease. Return False if maintenance is not due, or another gateway holds the lease."""
    return await with_retry(partial(_claim, database, holder, rounds))


async def renew(database: Database, holder: str, rounds: Rounds) -> None:
    """Extend the maintenance lease while the maintenance jobs run, if `holder` still holds it."""

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                beat.held_until = now(session) + rounds.lease
                session.add(beat)

    await with_retry(once)


async def release(database: Database, holder: str, *, done: bool) -> None:
    """Release the maintenance lease after a round, which is one run of all maintenance jobs.

    If the round is not `done`, any gateway may start another one immediately.
    """

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                # End the lease. A row with a `holder` but without `held_until` means that the next round is due
                # immediately. Do not change `beaten_at` for this purpose, because the age of the latest maintenance is
                # computed from it.
                beat.held_until = None
                if done:
                    beat.holder = None
                session.add(beat)

    await with_retry(once)


async def _claim(database: Database, holder: str, rounds: Rounds) -> bool:
    async with database.reading() as session:
        # Read the lease without a lock first, because usually no maintenance is due.
        if not _may_begin(await _beat(session, UPKEEP), holder, rounds, now(session)):
            return False
    async with database.writing(UPKEEP) as session:
        beat, moment = await _beat(session, UPKEEP), now(session)
        if not _may_begin(beat, holder, rounds, moment):
            return False
        beat.holder, beat.held_until, beat.beaten_at = holder, moment + rounds.lease, moment
        session.add(beat)
        return True


def _may_begin(beat: Heartbeat, holder: str, rounds: Rounds, moment: datetime) -> bool:
    if beat.holder in {None, holder} or beat.held_until is None:
        # Maintenance is due if the latest round was not finished (the row contains its holder), is older than the
        # interval, or lies in the future because a clock was wrong.
        return beat.holder is not None or not moment - rounds.every < beat.beaten_at <= moment
    # Ignore a lease that ends too far in the future, because a wrong clock has set it. Leases of earlier versions last
    # three intervals, so the limit is at least six intervals.
    return not moment < beat.held_until <= moment + max(2 * rounds.lease, 6 * rounds.every)


class RetentionHalted(Exception):
    """Error that halts the deletion of rows after the clock has jumped.

    The message contains the time at which deletion resumes.
    """


async def steady_from(database: Database) -> tuple[datetime, datetime]:
    """Record a maintenance round, and return the current time and the time from which the clock counts as reliable.

    Rows may be deleted only after the second of these times.
    """
    return await with_retry(partial(_steady_from, database))


async def _steady_from(database: Database) -> tuple[datetime, datetime]:
    async with database.writing(UPKEEP) as session:
        beat = await _beat(session, RETENTION)
        moment = now(session)
        if moment - beat.beaten_at > JUMP or beat.steady_since > moment:
            beat.steady_since = moment
        beat.beaten_at = moment
        session.add(beat)
        return moment, beat.steady_since + STEADY


async def _beat(session: AsyncSession, job: str) -> Heartbeat:
    found = (await session.exec(select(Heartbeat).where(Heartbeat.job == job))).first()
    if found is not None:
        return found
    # Without an earlier round, no jump of the clock can be detected, so trust the clock. Set the time of the latest
    # maintenance back, so that the first round is due immediately.
    moment = now(session)
    beaten = moment - JUMP if job == UPKEEP else moment
    return Heartbeat(job=job, beaten_at=beaten, steady_since=moment - STEADY)


logger = logging.getLogger("toolgate.gateway")

#: Background job: an asynchronous function that the scheduler calls regularly.
Job: TypeAlias = Callable[[], Awaitable[object]]

#: Seconds from the start of a gateway to the first run of its jobs. If the interval of the jobs is shorter, the first
#: run follows after one interval. The actual delay is randomly up to 20 % shorter or longer.
FIRST_DELAY = 60
#: Maximum duration of a lease in seconds.
LEASE = 60
#: A lease lasts ROUNDS times as long as the interval between two rounds, but at most `LEASE` seconds. In this time, it
#: is renewed ROUNDS times, so that a single failed renewal does not end the lease.
ROUNDS = 3
#: Fraction of the interval after which the next maintenance is due. It is less than 1, because the delays vary
#: randomly: a gateway that checks slightly too early would otherwise wait for another interval.
DUE = 0.8


class Scheduler:
    """Scheduler that regularly runs a list of jobs.

    A round is one run of all jobs. If a job fails, the other jobs still run.

    A round starts every `seconds`, randomly varied by 20 %, so that gateways do not start at the same time. If
    `exclusive` is True, a gateway runs a round only if it can take the maintenance lease. The function `problem`
    returns the reason why this gateway must not run jobs at the moment, such as a wrong clock, or None.
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
        # If only one gateway at a time runs the jobs (`exclusive`), every gateway checks the lease at least once per
        # lease duration, so that another gateway soon takes over if the gateway with the lease crashes.
        self._seconds = min(seconds, lease) if exclusive else seconds
        self._jobs = jobs
        self._problem = problem
        self._exclusive = exclusive
        self._id = new_id()
        self._task: asyncio.Task[None] | None = None
        #: Problem that was logged most recently; None if the jobs run.
        self._logged: str | None = None
        #: Unix time at which this process last ran all jobs without a failure.
        self.finished_at: float | None = None

    def start(self) -> None:
        """Start the background task."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop immediately, even if a job is running. A later run repeats the work that was not committed."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not self._exclusive:
            return
        try:
            # Release the lease if the jobs were interrupted. Otherwise, this call changes nothing, because a gateway
            # holds the lease only while its jobs run.
            await release(self._database, self._id, done=False)
        except StorageFault as failed:
            OUTAGE.failed("attempts to release the maintenance lease", failed)
        except Exception:
            logger.exception("could not release the maintenance lease; other gateways wait until it expires")

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
            except Exception as failed:  # noqa: BLE001 - logged; the loop tries again
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
            except Exception as failed:  # noqa: BLE001 - logged; the lease only saves work
                # Continue: if the lease expires, another gateway may run the jobs at the same time, which is harmless.
                OUTAGE.failed("attempts to renew the maintenance lease", failed)

    def _log_problem(self, problem: str | None) -> None:
        """Log a problem that prevents maintenance, or the end of the problem, once per change."""
        if problem != self._logged:
            if problem is not None:
                logger.warning("maintenance is paused: %s", problem)
            else:
                logger.info("maintenance runs again")
            self._logged = problem

    async def _round(self) -> None:
        succeeded = True
        for job in self._jobs:
            try:
                # `with_retry` repeats the whole job only until the first commit of the job. Afterwards, the job itself
                # repeats transactions that failed.
                await with_retry(job)
            except RetentionHalted as halted:
                logger.warning("old rows are not deleted for now: %s", halted)
            except StorageFault as failed:
                succeeded = False
                OUTAGE.failed("steps of maintenance", failed)
            except Exception:
                succeeded = False
                logger.exception("a maintenance job failed; the gateway runs it again in the next round")
        if succeeded:
            self.finished_at = time.time()


def _about(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter is not secret
