"""One attempt of a caller's, and the answer that its retries are given again (decisions §4).

A check that used up an approval may lose its answer on the way; asking again with the same ``Idempotency-Key`` must not
cost a second approval.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.models import IdempotencyKey

#: how long the answer is repeated
REPEATED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A check with an ``Idempotency-Key``.

    Attributes:
        key: the header's value.
        fingerprint: SHA-256 of the body, to tell an honest repetition from another check under the same key.
    """

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, raw: bytes) -> "Attempt | None":
        """Return the attempt that a key and a body make; None without a key."""
        return cls(key, hashlib.sha256(raw).hexdigest()) if key else None


async def remembered(
    session: AsyncSession, standing: Standing, attempt: Attempt | None, now: datetime
) -> str | None:
    """Return the id of the decision that an earlier try of this attempt was given."""
    if attempt is None:
        return None
    query = select(IdempotencyKey.answer).where(
        IdempotencyKey.organization_id == standing.organization_id,
        IdempotencyKey.environment == standing.environment,
        IdempotencyKey.surface == "check",
        IdempotencyKey.key == attempt.key,
        IdempotencyKey.fingerprint == attempt.fingerprint,
        IdempotencyKey.expires_at > now,
    )
    answer = (await session.exec(query)).first()
    return None if answer is None else answer.decode()


async def remember(
    session: AsyncSession, standing: Standing, attempt: Attempt | None, decision_id: str, now: datetime
) -> None:
    """Keep the decision for the attempt's retries, in the transaction that used up the approval."""
    if attempt is None:
        return
    # The same key may have been used before, more than ten minutes ago. Removed and not changed: the upkeep may be about
    # to remove it too, and would take the row from under a change.
    await session.exec(
        delete(IdempotencyKey).where(
            col(IdempotencyKey.organization_id) == standing.organization_id,
            col(IdempotencyKey.environment) == standing.environment,
            col(IdempotencyKey.surface) == "check",
            col(IdempotencyKey.key) == attempt.key,
        )
    )
    session.add(
        IdempotencyKey(
            organization_id=standing.organization_id,
            environment=standing.environment,
            surface="check",
            key=attempt.key,
            fingerprint=attempt.fingerprint,
            answer=decision_id.encode(),
            created_at=now,
            expires_at=now + REPEATED,
        )
    )
