"""Writing down that approvals have run out, so that lists by status find them (decisions §5)."""

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import EXPIRED, OPEN, Approval
from toolgate_service.storage.database import Database, now
from toolgate_service.upkeep.batches import in_batches


async def expire_approvals(database: Database, batch: int) -> int:
    """Mark every open approval past its time as expired and return how many; their state says so already."""
    async with database.reading() as session:
        past = select(Approval.organization_id).where(
            col(Approval.status).in_(OPEN), col(Approval.expires_at) <= now(session)
        )
        organizations = (await session.exec(past.distinct())).all()
    expired = 0
    for organization_id in organizations:

        async def work(session: AsyncSession, organization_id: str = organization_id) -> int:
            chosen = (
                select(Approval.id)
                .where(
                    Approval.organization_id == organization_id,
                    col(Approval.status).in_(OPEN),
                    col(Approval.expires_at) <= now(session),
                )
                .limit(batch)
            )
            change = update(Approval).where(col(Approval.id).in_(chosen)).values(status=EXPIRED)
            return (await session.exec(change)).rowcount

        # In the organization's turn: nobody decides or uses one meanwhile.
        expired += await in_batches(database, batch, work, organization_id)
    return expired
