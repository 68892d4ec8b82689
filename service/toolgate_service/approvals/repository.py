"""Database queries for approval requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals.models import EXPIRED, PENDING, Approval, has_state
from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import is_action
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page, find_page

#: maximum number of decided requests, and of expired requests, that the statistics of waiting times include; older
#: requests are left out
MAX_WAITS = 1_000

# columns of the unique index `uq_approvals_pending`; only one pending request may have the same values in all of them
_UNIQUE = ("organization_id", "environment", "agent_id", "permission_id", "digest", "run_id", "call_id")
_PENDING_DUPLICATE = select(Approval).where(
    *(col(getattr(Approval, name)) == bindparam(name) for name in _UNIQUE),
    col(Approval.status) == PENDING,
)


async def list_approvals(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    status: str | None,
    agent_id: str | None,
    action: str | None,
) -> Found[Approval]:
    """Return one page of approval requests, newest first."""
    if (agent_id is not None and not is_id(agent_id)) or (action is not None and not is_action(action)):
        return Found([], 0, None)
    query = select(Approval).where(
        Approval.organization_id == caller.organization_id, Approval.environment == environment
    )
    if status is not None:
        query = query.where(has_state(status, now(session)))
    if agent_id is not None:
        query = query.where(col(Approval.agent_id) == agent_id)
    if action is not None:
        query = query.where(Approval.action == action)
    return await find_page(session, query, Approval, page)


async def find_approval(
    session: AsyncSession, organization_id: str, environment: str, approval_id: str
) -> Approval:
    """Return the approval request with this id in the environment of the organization.

    Raises:
        ApiError: 404 if the request does not exist.
    """
    query = select(Approval).where(
        Approval.id == approval_id,
        Approval.organization_id == organization_id,
        Approval.environment == environment,
    )
    found = (await session.exec(query)).first()
    if found is None:
        raise not_found("Approval")
    return found


async def find_duplicate(session: AsyncSession, approval: Approval) -> Approval | None:
    """Return the pending request that has the same values in the columns `_UNIQUE` as `approval`, or None."""
    values = {name: getattr(approval, name) for name in _UNIQUE}
    return (await session.exec(_PENDING_DUPLICATE, params=values)).first()


@dataclass(frozen=True, slots=True)
class WaitStats:
    """Statistics about how long approval requests waited for a decision.

    Attributes:
        decided: Waiting times of the newest `MAX_WAITS` decided requests, shortest first.
        expired: Number of requests that expired without a decision, among the newest `MAX_WAITS` expired requests.
    """

    decided: Sequence[timedelta]
    expired: int

    def percentile(self, percent: int) -> timedelta:
        """Return a percentile of `decided`: 95 % of the waiting times are not longer than `percentile(95)`.

        `decided` must not be empty.
        """
        return self.decided[-(-percent * len(self.decided) // 100) - 1]


async def load_wait_stats(
    session: AsyncSession, organization_id: str, environment: str, since: datetime
) -> WaitStats:
    """Return the statistics of requests that users decided after `since`, or that were created after it and expired."""
    decided = (
        select(Approval.created_at, col(Approval.decided_at))
        .where(
            Approval.organization_id == organization_id,
            Approval.environment == environment,
            # Exclude requests that an active temporary approval approved at once, because they did not wait for a user.
            col(Approval.decided_by).is_not(None),
            col(Approval.decided_at) >= since,
        )
        .order_by(col(Approval.decided_at).desc())
        .limit(MAX_WAITS)
    )
    expired = (
        select(col(Approval.decided_by))
        .where(
            Approval.organization_id == organization_id,
            Approval.environment == environment,
            Approval.status == EXPIRED,
            Approval.created_at >= since,
        )
        .order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
        .limit(MAX_WAITS)
    )
    return WaitStats(
        sorted(until - began for began, until in (await session.exec(decided)).all() if until is not None),
        # Do not count expired requests that have a decider: they were approved, but no check consumed them in time.
        sum(decider is None for decider in (await session.exec(expired)).all()),
    )
