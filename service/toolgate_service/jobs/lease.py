"""Maintenance lease, so that usually only one gateway runs maintenance, and detection of clock jumps.

The lease only saves work: every job is also correct if several gateways run it, since each job locks the rows that it
changes. The lease is a row in a table and not an advisory lock, because a row survives a lost connection and works
through any connection pooler.

After a clock jump no gateway deletes rows until the clock has run steadily for some time: a wrong clock would make rows
look expired.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.db.database import Database, now
from toolgate_service.db.retry import with_retry
from toolgate_service.jobs.models import Heartbeat

#: maximum time between two heartbeats; a longer gap is treated as a jump of the clock
JUMP = timedelta(days=1)
#: time for which the clock must run steadily after a jump before rows are deleted again
STEADY = timedelta(days=1)

UPKEEP = "upkeep"
RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Interval and lease duration of maintenance rounds.

    Attributes:
        every: Time from the start of a round until the next round is due.
        lease: Time after which the lease expires if the gateway does not renew it.
    """

    every: timedelta
    lease: timedelta


async def claim(database: Database, holder: str, rounds: Rounds) -> bool:
    """Take the lease and return True; return False if no round is due or another gateway holds the lease."""
    return await with_retry(partial(_claim, database, holder, rounds))


async def renew(database: Database, holder: str, rounds: Rounds) -> None:
    """Extend the lease during a round, if `holder` still holds it."""

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                beat.held_until = now(session) + rounds.lease
                session.add(beat)

    await with_retry(once)


async def release(database: Database, holder: str, *, done: bool) -> None:
    """Release the lease at the end of a round. If it is not `done`, any gateway may start a new round immediately."""

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                # A row with a holder but without `held_until` means that a round is due immediately. `beaten_at` stays
                # unchanged: it is the start of the last round, from which the age of maintenance is reported.
                beat.held_until = None
                if done:
                    beat.holder = None
                session.add(beat)

    await with_retry(once)


async def _claim(database: Database, holder: str, rounds: Rounds) -> bool:
    async with database.reading() as session:
        # Read without a lock first, since usually no round is due.
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
        # A round is due if the last heartbeat is older than the interval. It is also due if the heartbeat is in the
        # future: a wrong clock must not delay maintenance.
        return beat.holder is not None or not moment - rounds.every < beat.beaten_at <= moment
    # Ignore a lease that ends too far in the future, since it comes from a wrong clock. The limit of six intervals
    # allows for earlier versions, whose lease lasts three intervals.
    return not moment < beat.held_until <= moment + max(2 * rounds.lease, 6 * rounds.every)


class RetentionHalted(Exception):
    """No rows are deleted because the clock has jumped; the message contains the time at which deletion resumes."""


async def steady_from(database: Database) -> tuple[datetime, datetime]:
    """Record a heartbeat and return two times: the current time, and the time from which the clock is trusted.

    Rows may be deleted only if the current time has reached the second time.
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
    # Without an earlier heartbeat the clock is trusted, since no jump can be detected, and the first round is due.
    moment = now(session)
    beaten = moment - JUMP if job == UPKEEP else moment
    return Heartbeat(job=job, beaten_at=beaten, steady_since=moment - STEADY)
