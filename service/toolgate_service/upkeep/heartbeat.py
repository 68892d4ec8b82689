"""Signs of life: one gateway at a time does the upkeep, and a clock that jumps removes nothing (decisions §12)."""

from datetime import datetime, timedelta

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.database import Database, now
from toolgate_service.upkeep.models import Heartbeat

#: by so much the clock may be ahead of the newest heartbeat
JUMP = timedelta(days=1)
#: and so long it must go on steadily after a jump before anything is removed again
STEADY = timedelta(days=1)

UPKEEP = "upkeep"
RETENTION = "retention"


async def claim(database: Database, holder: str, lease: timedelta) -> bool:
    """Take the upkeep, or keep it; False when another gateway has it."""
    async with database.writing(UPKEEP) as session:
        beat = await _beat(session, UPKEEP)
        moment = now(session)
        mine = beat.holder in {None, holder} or beat.held_until is None or beat.held_until <= moment
        # A holder whose clock was far ahead must not keep the upkeep for ever.
        if mine or (beat.held_until is not None and beat.held_until > moment + 2 * lease):
            beat.holder, beat.held_until, beat.beaten_at = holder, moment + lease, moment
            session.add(beat)
            return True
        return False


async def release(database: Database, holder: str) -> None:
    """Leave the upkeep to whoever comes next."""
    async with database.writing(UPKEEP) as session:
        beat = await _beat(session, UPKEEP)
        if beat.holder == holder:
            beat.holder = beat.held_until = None
            session.add(beat)


async def steady_from(database: Database) -> tuple[datetime, datetime]:
    """Give a heartbeat for the retention.

    Returns:
        The present moment, and the one from which on the clock may be trusted.
    """
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
    # The first one has nothing that the clock could have jumped ahead of.
    moment = now(session)
    return Heartbeat(job=job, beaten_at=moment, steady_since=moment - STEADY)
