"""What the clock does to approvals, written down: people are reminded of them, and they run out (decisions §5)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from sqlalchemy import BindParameter, ColumnElement, bindparam, literal
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import OPEN, PENDING, Approval
from toolgate_service.storage.database import Database, now
from toolgate_service.upkeep.batches import in_batches

#: changes approvals of one organization and environment
Change: TypeAlias = Callable[[AsyncSession, Sequence[Approval]], Awaitable[None]]
#: says which approvals are due, at the moment of a session
Due: TypeAlias = Callable[[AsyncSession], ColumnElement[bool]]

#: Written out, as the pending state below: only then SQLite uses the index of those that run out.
_OPEN: BindParameter[Sequence[str]] = bindparam("open", OPEN, expanding=True, literal_execute=True)


async def expire_approvals(database: Database, batch: int) -> int:
    """Mark every open approval past its time as expired and return how many; their state says so already."""
    # Looked up late: what ends approvals knows callers, callers know the gateway, and the gateway knows its upkeep.
    from toolgate_service.approvals.ending import expire

    def past(session: AsyncSession) -> ColumnElement[bool]:
        return col(Approval.status).in_(_OPEN) & (col(Approval.expires_at) <= now(session))

    return await _change_each(database, batch, past, expire)


async def remind(database: Database, batch: int) -> int:
    """Tell, once, of every request that will soon run out, and return how many."""
    from toolgate_service.approvals.telling import tell

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
        await tell(session, "reminder", *approvals)

    return await _change_each(database, batch, soon, remember)


async def _change_each(database: Database, batch: int, due: Due, change: Change) -> int:
    async with database.reading() as session:
        # Not DISTINCT: for the sake of it SQLite would read all approvals there are, in an order that has equal ones
        # together.
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
            # None that another gateway is at; and whoever it is, a gateway that dies lets go of all it held.
            approvals = (await session.exec(chosen.limit(batch).with_for_update(skip_locked=True))).all()
            await change(session, approvals)
            return len(approvals)

        # In the organization's turn: nobody decides or uses one meanwhile.
        changed += await in_batches(database, batch, work, organization_id)
    return changed
