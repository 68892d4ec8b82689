"""Invitations to join an organization. An invitation is for one e-mail, expires after 72 hours and can be used once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import one_time_tokens
from toolgate_service.accounts.models import Invitation, User
from toolgate_service.accounts.repository import find_user_by_email
from toolgate_service.accounts.sessions import Caller, LinkUser, ensure_session_valid
from toolgate_service.audit import service as audit
from toolgate_service.core.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import UNLIMITED, Plans
from toolgate_service.db.database import now
from toolgate_service.organizations.models import Organization
from toolgate_service.team.schemas import NewInvitation

INVITATION_LIFETIME = timedelta(hours=72)
#: maximum number of invitations per organization and day; limited because the recipients did not ask for the e-mails
MAX_INVITATIONS_PER_DAY = 100
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Invited:
    """New invitation, its organization, and the link's token. The database stores only the token's hash."""

    invitation: Invitation
    organization: Organization
    token: str


async def list_open(session: AsyncSession, organization_id: str) -> Sequence[Invitation]:
    """Return the invitations that can still be accepted, newest first."""
    query = (
        select(Invitation)
        .where(Invitation.organization_id == organization_id, *_open(session))
        .order_by(col(Invitation.created_at).desc(), col(Invitation.id).desc())
    )
    return (await session.exec(query)).all()


async def invite(session: AsyncSession, plans: Plans, caller: Caller, new: NewInvitation) -> Invited:
    """Create an invitation. It replaces an open invitation for the same e-mail, whose link stops working.

    The session must be a write transaction that holds the lock `ACCOUNTS` and the organization's lock. Open invitations
    count towards the limit of team members. `accept` checks the limit again.

    Raises:
        ApiError: 400 if the e-mail is registered; 401 if the caller's session is no longer valid; 429 if the
            organization created too many invitations within a day.
        PlanLimitExceeded: The plan allows no further team members.
    """
    await ensure_session_valid(session, caller)
    if await find_user_by_email(session, new.email) is not None:
        raise ApiError(400, "E-mail already registered")
    organization = await _organization(session, caller.organization_id)
    await _end(session, caller.organization_id, col(Invitation.email) == new.email)
    waiting = await list_open(session, caller.organization_id)
    await require_free_seat(session, plans, organization, invited=len(waiting))
    await _require_below_daily_limit(session, caller.organization_id)
    moment, token = now(session), one_time_tokens.create_token()
    invitation = Invitation(
        id=new_id(),
        organization_id=caller.organization_id,
        email=new.email,
        role=new.role,
        token_hash=one_time_tokens.hash_token(token),
        invited_by=caller.user_id,
        created_at=moment,
        expires_at=moment + INVITATION_LIFETIME,
    )
    session.add(invitation)
    audit.record(session, caller, "team.invited", invitation.id, changes=new.model_dump())
    return Invited(invitation, organization, token)


async def revoke(session: AsyncSession, caller: Caller, invitation_id: str) -> None:
    """Revoke an invitation; its link stops working.

    Raises:
        ApiError: 404 if there is no open invitation with this id.
    """
    query = select(Invitation).where(
        Invitation.id == invitation_id,
        Invitation.organization_id == caller.organization_id,
        *_open(session),
    )
    invitation = (await session.exec(query)).first()
    if invitation is None:
        raise not_found("Invitation")
    invitation.revoked_at = now(session)
    session.add(invitation)
    audit.record(
        session, caller, "team.invitation_revoked", invitation.id, changes={"email": invitation.email}
    )


async def find_open(session: AsyncSession, token: str) -> Invitation:
    """Return the open invitation with this token.

    Raises:
        ApiError: 400 if the token is unknown, or the invitation was accepted, was revoked or has expired.
    """
    query = select(Invitation).where(
        Invitation.token_hash == one_time_tokens.hash_token(token), *_open(session)
    )
    invitation = (await session.exec(query)).first()
    if invitation is None:
        raise ApiError(400, "This invitation was used already, revoked, or has expired; ask for another")
    return invitation


async def accept(
    session: AsyncSession, plans: Plans, token: str, password_hash: str, ip_address: str | None
) -> User:
    """Accept an invitation and create its user.

    The session must be a write transaction that holds the lock `ACCOUNTS` and the organization's lock.

    Raises:
        ApiError: 400 if the invitation is no longer open or the e-mail is registered; 403 if the organization is not
            active.
        PlanLimitExceeded: The plan allows no further team members.
    """
    invitation = await find_open(session, token)
    organization = await _organization(session, invitation.organization_id)
    if not organization.is_active:
        raise ApiError(403, "Organization is not active")
    if await find_user_by_email(session, invitation.email) is not None:
        raise ApiError(400, "E-mail already registered")
    await require_free_seat(session, plans, organization)
    moment = now(session)
    user = User(
        id=new_id(),
        organization_id=organization.id,
        email=invitation.email,
        password_hash=password_hash,
        role=invitation.role,
        created_at=moment,
    )
    session.add(user)
    invitation.accepted_at = moment
    session.add(invitation)
    await session.flush()
    person = LinkUser(user.id, organization.id, ip_address)
    changes = {"email": user.email, "role": user.role, "invitation": invitation.id}
    audit.record(session, person, "team.joined", user.id, changes=changes)
    return user


def _open(session: AsyncSession) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Invitation.accepted_at).is_(None),
        col(Invitation.revoked_at).is_(None),
        col(Invitation.expires_at) > now(session),
    )


async def count_users(session: AsyncSession, organization_id: str) -> int:
    """Return the number of users of an organization, without removed users."""
    count = select(func.count()).where(
        User.organization_id == organization_id, col(User.removed_at).is_(None)
    )
    return (await session.exec(count)).one()


async def require_free_seat(
    session: AsyncSession, plans: Plans, organization: Organization, *, invited: int = 0
) -> None:
    """Require that the plan allows one more team member. `invited` is the number of open invitations that count too.

    The session must be a transaction that holds the organization's lock.

    Raises:
        PlanLimitExceeded: The plan allows no further team members.
    """
    limit = plans[organization.plan].max_team_members
    used = await count_users(session, organization.id) + invited
    if limit != UNLIMITED and used >= limit:
        raise PlanLimitExceeded("team_members", used, limit, organization.plan)


async def _organization(session: AsyncSession, organization_id: str) -> Organization:
    return (await session.exec(select(Organization).where(Organization.id == organization_id))).one()


async def _end(session: AsyncSession, organization_id: str, which: ColumnElement[bool]) -> None:
    await session.exec(
        update(Invitation)
        .where(col(Invitation.organization_id) == organization_id, which, *_open(session))
        .values(revoked_at=now(session))
    )


async def _require_below_daily_limit(session: AsyncSession, organization_id: str) -> None:
    made = select(func.count()).where(
        Invitation.organization_id == organization_id,
        col(Invitation.created_at) > now(session) - DAY,
    )
    if (await session.exec(made)).one() >= MAX_INVITATIONS_PER_DAY:
        raise ApiError(
            429,
            f"More than {MAX_INVITATIONS_PER_DAY} invitations within a day; retry after 3600 seconds",
            {"Retry-After": "3600"},
        )
