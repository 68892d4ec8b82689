"""Signs of life: mostly one gateway at a time does the upkeep, and a clock that jumps removes nothing (decisions §12).

That one gateway does it spares the others the work, and no more: each step is right however many do it at once, since
rows are claimed where they are changed. So a lease will do, which outlives who held it, and works through any pooler;
the lock of a connection would not.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.database import Database, now
from toolgate_service.storage.races import anew
from toolgate_service.upkeep.models import Heartbeat

#: by so much the clock may be ahead of the newest heartbeat
JUMP = timedelta(days=1)
#: and so long it must go on steadily after a jump before anything is removed again
STEADY = timedelta(days=1)

UPKEEP = "upkeep"
RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class Rounds:
    """When rounds of the upkeep begin.

    Attributes:
        every: how long after the beginning of one the next is due.
        lease: for how long a round is a gateway's without a sign of life of it: one that died keeps it so long.
    """

    every: timedelta
    lease: timedelta


async def claim(database: Database, holder: str, rounds: Rounds) -> bool:
    """Begin a round; False where none is due, or another gateway is at it."""
    return await anew(partial(_claim, database, holder, rounds))


async def keep(database: Database, holder: str, rounds: Rounds) -> None:
    """Give a sign of life in the middle of a round."""

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                beat.held_until = now(session) + rounds.lease
                session.add(beat)

    await anew(once)


async def release(database: Database, holder: str, *, done: bool) -> None:
    """End a round; one that was not done to its end is due at once, for whoever comes next."""

    async def once() -> None:
        async with database.writing(UPKEEP) as session:
            beat = await _beat(session, UPKEEP)
            if beat.holder == holder:
                # A holder without an end of its lease marks a round that is due: `beaten_at` stays the moment at which
                # the last round began, from which the age of maintenance is reported.
                beat.held_until = None
                if done:
                    beat.holder = None
                session.add(beat)

    await anew(once)


async def _claim(database: Database, holder: str, rounds: Rounds) -> bool:
    async with database.reading() as session:
        # Mostly none is due: nobody's turn is taken for that.
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
        # A clock that was far ahead must not put the next round off for ever.
        return beat.holder is not None or not moment - rounds.every < beat.beaten_at <= moment
    # Nor must it keep a round for ever; a version before this one keeps it for three.
    return not moment < beat.held_until <= moment + max(2 * rounds.lease, 6 * rounds.every)


async def steady_from(database: Database) -> tuple[datetime, datetime]:
    """Give a heartbeat for the retention.

    Returns:
        The present moment, and the one from which on the clock may be trusted.
    """
    return await anew(partial(_steady_from, database))


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
    # The first one has nothing that the clock could have jumped ahead of; the first round is due.
    moment = now(session)
    beaten = moment - JUMP if job == UPKEEP else moment
    return Heartbeat(job=job, beaten_at=beaten, steady_since=moment - STEADY)
