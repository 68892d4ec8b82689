"""Who stands behind a grant."""

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.approvals.models import APPROVED, Approval, ApprovalVote
from toolgate_service.approvals.rights import why_not_enough
from toolgate_service.grants.models import ACTIVE, Grant, GrantVote


async def why_no_longer(session: AsyncSession, approval: Approval) -> str | None:
    """Say why an approved request no longer counts, as things stand in this transaction; None when it does."""
    if approval.grant_id is None:
        voters = select(ApprovalVote.user_id).where(
            ApprovalVote.approval_id == approval.id, ApprovalVote.decision == APPROVED
        )
        return await why_not_enough(session, approval, voters)
    grant = (await session.exec(select(Grant).where(Grant.id == approval.grant_id))).first()
    if grant is None:
        return "what allowed it for a while is gone"
    return await why_useless(session, grant) or await why_not_enough(session, approval, voters_of(grant))


async def why_useless(session: AsyncSession, grant: Grant) -> str | None:
    """Say why a grant lets nothing through, whatever is left of it; None when it does."""
    if grant.status != ACTIVE:
        return "what allowed it for a while was revoked"
    return await why_not_enough(session, grant, voters_of(grant))


def voters_of(grant: Grant) -> SelectOfScalar[str]:
    """Return the query for those who gave a grant."""
    return select(GrantVote.user_id).where(GrantVote.grant_id == grant.id)
