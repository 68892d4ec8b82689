"""The rules of the team: roles, removal, and the admin who stays (decisions §3, §9).

Everything here runs in a transaction that holds the organization's turn.
"""

from collections.abc import Sequence

from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller, still
from toolgate_service.accounts.models import ADMIN, Invitation, Session, User
from toolgate_service.accounts.users import end_resets
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import UNLIMITED, Plans
from toolgate_service.slack.endings import REMOVED, end_links
from toolgate_service.storage.database import now


async def list_users(
    session: AsyncSession, organization_id: str, *, offset: int = 0, at_most: int | None = None
) -> Sequence[User]:
    """Return an organization's users, newest first."""
    query = (
        select(User)
        .where(User.organization_id == organization_id, col(User.removed_at).is_(None))
        .order_by(col(User.created_at).desc(), col(User.id).desc())
    )
    return (await session.exec(query.offset(offset).limit(at_most))).all()


async def count_users(session: AsyncSession, organization_id: str) -> int:
    """Return how many users an organization has."""
    count = select(func.count()).where(
        User.organization_id == organization_id, col(User.removed_at).is_(None)
    )
    return (await session.exec(count)).one()


async def change_role(session: AsyncSession, caller: Caller, user_id: str, role: str) -> User:
    """Give a user another role; every token of theirs stops working.

    Raises:
        ApiError: 404 unknown, 409 it is the last admin, 401 the caller's own token has stopped working meanwhile.
    """
    await still(session, caller)
    user = await _find(session, caller, user_id)
    if user.role == role:
        return user
    if user.role == ADMIN:
        await _refuse_without_admin(session, user)
        await _revoke_invitations_of(session, user)
    before, user.role = user.role, role
    user.version += 1
    session.add(user)
    audit.record(session, caller, "team.role_changed", user.id, changes={"role": role, "before": before})
    return user


async def remove(session: AsyncSession, caller: Caller, user_id: str) -> None:
    """Remove a user: tokens, links and invitations of theirs stop working, and the e-mail is free again.

    The row stays, so that the log and the audit keep naming who it was.

    Raises:
        ApiError: 404 unknown, 409 it is the last admin, 401 the caller's own token has stopped working meanwhile.
    """
    await still(session, caller)
    user = await _find(session, caller, user_id)
    if user.role == ADMIN:
        await _refuse_without_admin(session, user)
    user.removed_at = now(session)
    user.version += 1
    session.add(user)
    await session.exec(
        update(Session)
        .where(
            col(Session.organization_id) == user.organization_id,
            col(Session.user_id) == user.id,
            col(Session.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )
    await end_resets(session, user)
    await end_links(session, user, REMOVED)
    await _revoke_invitations_of(session, user)
    audit.record(session, caller, "team.removed", user.id, changes={"email": user.email, "role": user.role})


async def refuse_beyond_plan(
    session: AsyncSession, plans: Plans, organization: Organization, *, invited: int = 0
) -> None:
    """See that the plan has room for one more.

    Args:
        session: a transaction that holds the organization's turn.
        plans: what each plan allows.
        organization: whose plan counts.
        invited: invitations that are to count as if they had been accepted.

    Raises:
        PlanLimitExceeded: the plan's team members are used up.
    """
    limit = plans[organization.plan].max_team_members
    used = await count_users(session, organization.id) + invited
    if limit != UNLIMITED and used >= limit:
        raise PlanLimitExceeded("team_members", used, limit, organization.plan)


async def _find(session: AsyncSession, caller: Caller, user_id: str) -> User:
    query = select(User).where(
        User.id == user_id,
        User.organization_id == caller.organization_id,
        col(User.removed_at).is_(None),
    )
    user = (await session.exec(query)).first()
    if user is None:
        raise not_found("User")
    return user


async def _refuse_without_admin(session: AsyncSession, user: User) -> None:
    others = select(func.count()).where(
        User.organization_id == user.organization_id,
        User.role == ADMIN,
        User.id != user.id,
        col(User.removed_at).is_(None),
    )
    if (await session.exec(others)).one() == 0:
        raise ApiError(409, "This is the organization's last admin; make somebody else an admin first")


async def _revoke_invitations_of(session: AsyncSession, user: User) -> None:
    # Whoever loses the right to invite leaves no door open behind.
    await session.exec(
        update(Invitation)
        .where(
            col(Invitation.organization_id) == user.organization_id,
            col(Invitation.invited_by) == user.id,
            col(Invitation.accepted_at).is_(None),
            col(Invitation.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )
