"""What only the database knows, looked at when somebody asks for the figures: a bounded walk along an index each."""

import asyncio
import time
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import bindparam, text
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.database import Database, now
from toolgate_service.storage.types import Timestamp

#: counted so far and no further
MOST = 10_000
#: seconds until a database that does not answer is left out
PATIENCE = 2.0

#: monotonic time at which the process started, in seconds
STARTED = time.monotonic()

#: before everything: only with a bound to search from SQLite takes the index of what waits instead of reading a larger one
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

_DELIVERIES = text(
    "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE status = 'pending' AND next_attempt_at > :moment "
    "LIMIT :most) AS found"
).bindparams(bindparam("moment", type_=Timestamp))
_OLDEST = (
    text(
        "SELECT next_attempt_at FROM deliveries WHERE status = 'pending' AND next_attempt_at > :moment "
        "ORDER BY next_attempt_at LIMIT 1"
    )
    .bindparams(bindparam("moment", type_=Timestamp))
    .columns(next_attempt_at=Timestamp)
)
# Those that are approved and wait to be used stand in the same index, for an hour each.
_APPROVALS = text(
    "SELECT count(*) FROM (SELECT status FROM approvals WHERE status IN ('pending', 'approved') "
    "AND expires_at > :moment LIMIT :most) AS found WHERE status = 'pending'"
).bindparams(bindparam("moment", type_=Timestamp))

_MAINTENANCE = text("SELECT beaten_at FROM heartbeats WHERE job = 'upkeep'").columns(beaten_at=Timestamp)


class Waiting(NamedTuple):
    """What waits, in all organizations.

    Attributes:
        deliveries: of webhooks, those that failed and are tried again later included; at most `MOST`.
        lag: for how many seconds the oldest delivery has been due.
        approvals: requests that wait for a person; at most `MOST`.
        maintenance: seconds since the last round of maintenance began, at any gateway; before the first, since this
            process started.
    """

    deliveries: int
    lag: float
    approvals: int
    maintenance: float


async def waiting(database: Database) -> Waiting | None:
    """Return what waits; None if the database does not say in time.

    Args:
        database: the gateway's.
    """
    try:
        async with asyncio.timeout(PATIENCE), database.reading() as session:
            return await _waiting(session)
    except Exception:  # noqa: BLE001 - whatever it is, the readiness tells it
        return None


async def _waiting(session: AsyncSession) -> Waiting:
    connection = await session.connection()
    begin, most = {"moment": BEGINNING}, {"most": MOST}
    deliveries = (await connection.execute(_DELIVERIES, begin | most)).scalar_one()
    oldest = (await connection.execute(_OLDEST, begin)).scalar_one_or_none()
    approvals = (await connection.execute(_APPROVALS, {"moment": now(session)} | most)).scalar_one()
    lag = 0.0 if oldest is None else max(0.0, (now(session) - oldest).total_seconds())
    begun = (await connection.execute(_MAINTENANCE)).scalar_one_or_none()
    since_start = time.monotonic() - STARTED
    age = since_start if begun is None else max(0.0, (now(session) - begun).total_seconds())
    return Waiting(deliveries, lag, approvals, age)
