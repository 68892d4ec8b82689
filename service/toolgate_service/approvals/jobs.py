"""Background jobs that mark approval requests as expired and remind approvers of pending requests."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from sqlalchemy import BindParameter, ColumnElement, bindparam, literal
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.events import emit_approval_event
from toolgate_service.approvals.models import OPEN, PENDING, Approval
from toolgate_service.approvals.service import expire
from toolgate_service.db.database import Database, now
from toolgate_service.jobs.batches import in_batches

#: function that updates approval requests, all of which belong to one organization and one environment
Change: TypeAlias = Callable[[AsyncSession, Sequence[Approval]], Awaitable[None]]
#: function that returns the SQL condition for the requests to update; the condition refers to the time of the session's
#: transaction
Due: TypeAlias = Callable[[AsyncSession], ColumnElement[bool]]

#: the states `pending` and `approved` as SQL literals, because SQLite does not use the partial index for a bound
#: parameter
_OPEN: BindParameter[Sequence[str]] = bindparam("open", OPEN, expanding=True, literal_execute=True)


async def expire_approvals(database: Database, batch: int) -> int:
    """Mark pending and approved requests as expired after the time `expires_at`. Return the number of marked requests.

    The API treats a request as expired from this time on, even if the job has not marked it yet.
    """

    def past(session: AsyncSession) -> ColumnElement[bool]:
        return col(Approval.status).in_(_OPEN) & (col(Approval.expires_at) <= now(session))

    return await _change_each(database, batch, past, expire)


async def remind(database: Database, batch: int) -> int:
    """Write one webhook event for each pending request that expires soon. Return the number of events."""

    def soon(session: AsyncSession) -> ColumnElement[bool]:
        return (
            (col(Approval.status) == literal(PENDING, literal_execute=True))
            & (col(Approval.remind_at) <= now(session))
            & (col(Approval.expires_at) > now(session))
        )

    async def remember(session: AsyncSession, approvals: Sequence[Approval]) -> None:
        for approval in approvals:
            approval.reminded_at, approval.remind_at = now(session), None
            session.add(approval)
        await emit_approval_event(session, "reminder", *approvals)

    return await _change_each(database, batch, soon, remember)


async def _change_each(database: Database, batch: int, due: Due, change: Change) -> int:
    async with database.reading() as session:
        # Remove duplicates in Python, because for DISTINCT, SQLite would scan all approval requests with another index.
        query = select(Approval.organization_id, Approval.environment).where(due(session))
        tenants = sorted(set((await session.exec(query)).all()))
    changed = 0
    for organization_id, environment in tenants:

        async def work(
            session: AsyncSession, organization_id: str = organization_id, environment: str = environment
        ) -> int:
            chosen = select(Approval).where(
                Approval.organization_id == organization_id,
                Approval.environment == environment,
                due(session),
            )
            # Skip rows that another gateway process has locked, because that process updates them.
            approvals = (await session.exec(chosen.limit(batch).with_for_update(skip_locked=True))).all()
            await change(session, approvals)
            return len(approvals)

        # Hold the organization's lock, so that no approver decides about a request and no check consumes it at the same
        # time.
        changed += await in_batches(database, batch, work, organization_id)
    return changed
