"""How long requests waited for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import EXPIRED, Approval

#: so many decisions are looked at, the newest of the range; and so many that ran out
AT_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Waits:
    """How long requests waited until somebody decided, and how many nobody decided.

    Attributes:
        decided: the waits of those that people decided, the shortest first; the newest `AT_MOST`.
        ran_out: how many nobody decided in time; counted to `AT_MOST`.
    """

    decided: Sequence[timedelta]
    ran_out: int

    def longest_of(self, percent: int) -> timedelta:
        """Return how long the quickest so many of a hundred waited at most; of 50 it is the median."""
        return self.decided[-(-percent * len(self.decided) // 100) - 1]


async def waits(session: AsyncSession, organization_id: str, environment: str, since: datetime) -> Waits:
    """Return how long the requests waited that were decided since a moment, by an index and never more than a bound."""
    decided = (
        select(Approval.created_at, col(Approval.decided_at))
        .where(
            Approval.organization_id == organization_id,
            Approval.environment == environment,
            # What a grant let through has waited for nobody.
            col(Approval.decided_by).is_not(None),
            col(Approval.decided_at) >= since,
        )
        .order_by(col(Approval.decided_at).desc())
        .limit(AT_MOST)
    )
    ran_out = (
        select(col(Approval.decided_by))
        .where(
            Approval.organization_id == organization_id,
            Approval.environment == environment,
            Approval.status == EXPIRED,
            Approval.created_at >= since,
        )
        .order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
        .limit(AT_MOST)
    )
    return Waits(
        sorted(until - began for began, until in (await session.exec(decided)).all() if until is not None),
        # Others were approved, and not used in time.
        sum(decider is None for decider in (await session.exec(ran_out)).all()),
    )
