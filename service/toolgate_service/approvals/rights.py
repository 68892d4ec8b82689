"""Who may approve, and how many must: asked when a person decides, and again when it is used (decisions §5, §9)."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.terms import Terms, current_terms, stored_terms
from toolgate_service.grants.models import Grant
from toolgate_service.permissions.models import Permission

#: ids of users, or the query for them
Voters: TypeAlias = Collection[str] | SelectOfScalar[str]


async def why_not(session: AsyncSession, of: Approval | Grant, user_id: str) -> str | None:
    """Say why a user may not approve something, as things stand in this transaction; None when they may.

    The words name nobody: an agent reads them too.
    """
    terms, reasons = await _judged(session, of, [user_id])
    return _what_lacks(terms, reasons, 1)


async def why_not_enough(session: AsyncSession, of: Approval | Grant, voters: Voters) -> str | None:
    """Say why those who approved something do not suffice, as things stand in this transaction; None when they do.

    The stricter of the terms it was asked under and the current ones decides how many people it takes, and who of them
    counts.
    """
    terms, reasons = await _judged(session, of, voters)
    return _what_lacks(terms, reasons, 1 if terms is None else terms.required_approvals)


async def _judged(
    session: AsyncSession, of: Approval | Grant, voters: Voters
) -> tuple[Terms | None, Sequence[str | None]]:
    """Return the terms that count, and why each voter who is still there may not approve; None for those who may."""
    query = (
        select(Permission, Agent, User)
        .join(Agent, col(Agent.id) == Permission.agent_id)
        .outerjoin(
            User,
            (col(User.organization_id) == Permission.organization_id)
            & col(User.id).in_(voters)
            & col(User.removed_at).is_(None),
        )
        .where(
            Permission.id == of.permission_id,
            Permission.organization_id == of.organization_id,
            Agent.id == of.agent_id,
        )
    )
    found = (await session.exec(query)).all()
    # The outer join is one row without a user where nobody is left.
    users: Sequence[tuple[Permission, Agent, User | None]] = found
    if not found:
        return None, ()
    permission, agent, _ = found[0]
    terms = current_terms(permission, agent).stricter(stored_terms(of))
    return terms, [_reason(terms, user) for _, _, user in users if user is not None]


def _reason(terms: Terms, user: User) -> str | None:
    if user.role == VIEWER:
        return "the approver's role is 'viewer', which may not decide"
    if terms.separation_of_duties and user.id in terms.makers:
        return "users who created the agent, or created or loosened the permission, may not approve (separation of duties)"
    return None


def _what_lacks(terms: Terms | None, reasons: Sequence[str | None], required: int) -> str | None:
    if terms is None:
        return "its permission is gone"
    counted = reasons.count(None)
    if counted >= required:
        return None
    lost = next((reason for reason in reasons if reason is not None), None)
    if lost is None and required == 1:
        return "the approver is not, or no longer, of this organization"
    return lost or f"{required} people must approve it, and {counted} of those who did still may"
