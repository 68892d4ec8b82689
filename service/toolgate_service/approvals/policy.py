"""Rules for who may approve a request, and for the number of required approvers.

The rules are evaluated when an approver decides, and again when a check consumes the approval. Each time, the stricter
value applies: the rule stored with the request, or the current rule of the permission.
"""

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import APPROVED, Approval, ApprovalVote
from toolgate_service.grants.models import ACTIVE, Grant, GrantVote
from toolgate_service.permissions.models import Permission, loosening_users


class Terms(NamedTuple):
    """Rules for who may approve a request, and for the number of required approvers.

    Attributes:
        required_approvals: Number of distinct users who must approve.
        separation_of_duties: True if the users in `makers` may not approve.
        makers: Ids of the users who created the agent, or who created or loosened the permission.
    """

    required_approvals: int
    separation_of_duties: bool
    makers: frozenset[str]

    def stricter(self, other: "Terms") -> "Terms":
        """Combine two sets of terms: for each rule, take the stricter value."""
        return Terms(
            max(self.required_approvals, other.required_approvals),
            self.separation_of_duties or other.separation_of_duties,
            self.makers | other.makers,
        )


def current_terms(permission: Permission, agent: Agent) -> Terms:
    """Return the current terms of a permission."""
    makers = {agent.created_by, permission.created_by, *loosening_users(permission)}
    return Terms(permission.required_approvals, permission.separation_of_duties, frozenset(makers))


def stored_terms(of: Approval | Grant) -> Terms:
    """Return the terms that were stored when a request was created; a grant has the terms of its request.

    Rows from before the database revision 0016 contain only `required_approvals`.
    """
    makers = json.loads(of.makers) if of.makers else ()
    return Terms(of.required_approvals, bool(of.separation_of_duties), frozenset(makers))


def store_terms(of: Approval | Grant, terms: Terms) -> None:
    """Set the terms of a request or a grant."""
    of.required_approvals, of.separation_of_duties = terms.required_approvals, terms.separation_of_duties
    of.makers = json.dumps(sorted(terms.makers))


#: ids of users, or a query that selects them
Voters: TypeAlias = Collection[str] | SelectOfScalar[str]


async def approver_rejection(session: AsyncSession, of: Approval | Grant, user_id: str) -> str | None:
    """Return the reason why a user may not approve a request or grant; None if the user may approve.

    The reason contains no names or ids of users, because agents receive it too.
    """
    terms, reasons = await _evaluate_voters(session, of, [user_id])
    return _shortfall(terms, reasons, 1)


async def quorum_failure(session: AsyncSession, of: Approval | Grant, voters: Voters) -> str | None:
    """Return the reason why the votes do not suffice to approve a request or grant; None if they suffice."""
    terms, reasons = await _evaluate_voters(session, of, voters)
    return _shortfall(terms, reasons, 1 if terms is None else terms.required_approvals)


async def _evaluate_voters(
    session: AsyncSession, of: Approval | Grant, voters: Voters
) -> tuple[Terms | None, Sequence[str | None]]:
    """Return the current terms, and for each voter the reason why the vote does not count.

    The reason is None for a vote that counts. Voters who are no longer members are left out. The terms are None if the
    permission was deleted.
    """
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
    # If no voter is a member any more, the outer join returns one row without a user.
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


def _shortfall(terms: Terms | None, reasons: Sequence[str | None], required: int) -> str | None:
    if terms is None:
        return "its permission is gone"
    counted = reasons.count(None)
    if counted >= required:
        return None
    lost = next((reason for reason in reasons if reason is not None), None)
    if lost is None and required == 1:
        return "the approver is not, or no longer, of this organization"
    return lost or f"{required} people must approve it, and {counted} of those who did still may"


async def approval_invalid_reason(session: AsyncSession, approval: Approval) -> str | None:
    """Return the reason why an approved request must not be consumed; None if it may be consumed."""
    if approval.grant_id is None:
        voters = select(ApprovalVote.user_id).where(
            ApprovalVote.approval_id == approval.id, ApprovalVote.decision == APPROVED
        )
        return await quorum_failure(session, approval, voters)
    grant = (await session.exec(select(Grant).where(Grant.id == approval.grant_id))).first()
    if grant is None:
        return "what allowed it for a while is gone"
    return await grant_invalid_reason(session, grant) or await quorum_failure(
        session, approval, voters_of(grant)
    )


async def grant_invalid_reason(session: AsyncSession, grant: Grant) -> str | None:
    """Return the reason why a grant allows no calls, or None. Remaining uses and expiry are not checked."""
    if grant.status != ACTIVE:
        return "what allowed it for a while was revoked"
    return await quorum_failure(session, grant, voters_of(grant))


def voters_of(grant: Grant) -> SelectOfScalar[str]:
    """Return the query for the ids of the users who voted for a grant."""
    return select(GrantVote.user_id).where(GrantVote.grant_id == grant.id)
