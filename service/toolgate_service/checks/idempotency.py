"""Idempotent retries of checks that consumed an approval.

If the response to such a check is lost, the client retries with the same `Idempotency-Key` and body. The retry returns
the same decision and does not consume a second approval.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AuthContext
from toolgate_service.logs.models import IdempotencyKey

#: time after the check during which a retry returns the same decision
LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Idempotency key of a check and fingerprint of its body. The same key with another body is a different check.

    Attributes:
        key: Value of the header `Idempotency-Key`.
        fingerprint: SHA-256 digest of the body.
    """

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, raw: bytes) -> "Attempt | None":
        """Return the attempt for an idempotency key and a body; None if there is no key."""
        return cls(key, hashlib.sha256(raw).hexdigest()) if key else None


async def load_idempotent(
    session: AsyncSession, auth: AuthContext, attempt: Attempt | None, now: datetime
) -> str | None:
    """Return the decision id of an earlier check with the same key and body; None if there was none."""
    if attempt is None:
        return None
    query = select(IdempotencyKey.answer).where(
        IdempotencyKey.organization_id == auth.organization_id,
        IdempotencyKey.environment == auth.environment,
        IdempotencyKey.surface == "check",
        IdempotencyKey.key == attempt.key,
        IdempotencyKey.fingerprint == attempt.fingerprint,
        IdempotencyKey.expires_at > now,
    )
    answer = (await session.exec(query)).first()
    return None if answer is None else answer.decode()


async def store_idempotent(
    session: AsyncSession, auth: AuthContext, attempt: Attempt | None, decision_id: str, now: datetime
) -> None:
    """Store the decision for retries, in the transaction that consumes the approval."""
    if attempt is None:
        return
    # Delete and insert instead of an update, which would fail if the retention job deletes an expired row with this key
    # at the same time.
    await session.exec(
        delete(IdempotencyKey).where(
            col(IdempotencyKey.organization_id) == auth.organization_id,
            col(IdempotencyKey.environment) == auth.environment,
            col(IdempotencyKey.surface) == "check",
            col(IdempotencyKey.key) == attempt.key,
        )
    )
    session.add(
        IdempotencyKey(
            organization_id=auth.organization_id,
            environment=auth.environment,
            surface="check",
            key=attempt.key,
            fingerprint=attempt.fingerprint,
            answer=decision_id.encode(),
            created_at=now,
            expires_at=now + LIFETIME,
        )
    )
