"""Team members: invitation, joining, roles and removal, for the API and for the console."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import mail
from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.models import ADMIN, FULL, Invitation, Session, User
from toolgate_service.accounts.repository import (
    MEMBER_REMOVED,
    end_user_links,
    expire_password_resets,
    find_user_by_email,
)
from toolgate_service.accounts.schemas import TokenView
from toolgate_service.accounts.service import INVITATION_PAGE, build_link, create_token, hash_token
from toolgate_service.accounts.sessions import (
    Caller,
    LinkUser,
    Precondition,
    ensure_session_valid,
    no_precondition,
    open_session,
    transaction_as,
)
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import UNLIMITED, Plans
from toolgate_service.db.database import ACCOUNTS, now
from toolgate_service.organizations.models import Organization
from toolgate_service.scratch.models import find_scratch
from toolgate_service.team.schemas import (
    Acceptance,
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    TeamView,
)

INVITATION_LIFETIME = timedelta(hours=72)

#: maximum number of invitations that an organization may create in 24 hours, so that it cannot send unwanted e-mails to
#: many people
MAX_INVITATIONS_PER_DAY = 100
DAY = timedelta(days=1)
CLOSED = "This gateway accepts no new users; ask its operator for an account"


async def list_users(
    session: AsyncSession, organization_id: str, *, offset: int = 0, at_most: int | None = None
) -> Sequence[User]:
    """Return the users of the organization without removed users, newest first."""
    query = (
        select(User)
        .where(User.organization_id == organization_id, col(User.removed_at).is_(None))
        .order_by(col(User.created_at).desc(), col(User.id).desc())
    )
    return (await session.exec(query.offset(offset).limit(at_most))).all()


async def count_users(session: AsyncSession, organization_id: str) -> int:
    """Return the number of users of the organization, without removed users."""
    count = select(func.count()).where(
        User.organization_id == organization_id, col(User.removed_at).is_(None)
    )
    return (await session.exec(count)).one()


async def list_open_invitations(session: AsyncSession, organization_id: str) -> Sequence[Invitation]:
    """Return the invitations of the organization that can still be accepted, newest first."""
    query = (
        select(Invitation)
        .where(Invitation.organization_id == organization_id, *_is_open(session))
        .order_by(col(Invitation.created_at).desc(), col(Invitation.id).desc())
    )
    return (await session.exec(query)).all()


async def get_team(context: AppContext, caller: Caller) -> TeamView:
    """Return the users of the organization and, if the caller is an admin, the open invitations."""
    async with context.database.reading() as session:
        users = await list_users(session, caller.organization_id)
        open_invitations = (
            await list_open_invitations(session, caller.organization_id) if caller.is_admin else None
        )
    return TeamView.model_validate({"users": users, "invitations": open_invitations}, from_attributes=True)


async def change_role(context: AppContext, caller: Caller, user_id: str, role: str) -> MemberView:
    """Change the role of a user and revoke the user's session tokens.

    If the user was an admin, the open invitations that the user sent are also revoked.

    Raises:
        ApiError: 404 if the user does not exist; 409 if the user is the last admin and would get another role; 401 if
            the caller's session is no longer valid.
    """
    async with transaction_as(context, caller) as session:
        user = await _find_user(session, caller, user_id)
        if user.role != role:
            if user.role == ADMIN:
                await _require_other_admin(session, user)
                # Revoke the open invitations of the former admin, because only admins may invite.
                await _revoke_open_invitations(
                    session, user.organization_id, col(Invitation.invited_by) == user.id
                )
            before, user.role = user.role, role
            user.version += 1
            session.add(user)
            changes = {"role": role, "before": before}
            audit.record(session, caller, "team.role_changed", user.id, changes=changes)
        return MemberView.model_validate(user, from_attributes=True)


async def remove(context: AppContext, caller: Caller, user_id: str) -> None:
    """Remove a user, and revoke the user's session tokens, reset links, Slack links and sent invitations.

    The row of the user is kept, so that logs can still show the e-mail address. The address can be registered again.

    Raises:
        ApiError: 404 if the user does not exist; 409 if the user is the last admin; 401 if the caller's session is no
            longer valid.
    """
    async with transaction_as(context, caller) as session:
        user = await _find_user(session, caller, user_id)
        if user.role == ADMIN:
            await _require_other_admin(session, user)
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
        await expire_password_resets(session, user)
        await end_user_links(session, user, MEMBER_REMOVED)
        await _revoke_open_invitations(session, user.organization_id, col(Invitation.invited_by) == user.id)
        audit.record(
            session, caller, "team.removed", user.id, changes={"email": user.email, "role": user.role}
        )


async def invite(
    context: AppContext,
    caller: Caller,
    new: NewInvitation,
    base_url: str,
    *,
    first: Precondition = no_precondition,
) -> NewInvitationView:
    """Invite a user by e-mail. If the gateway cannot send the e-mail, the result contains the invitation link.

    The link starts with the configured public URL or, if none is configured, with `base_url`. The value of `base_url`
    is safe, because it is taken from the request of an authenticated admin. `first` is an additional check in the same
    transaction, before the invitation is created.

    Raises:
        ApiError: 403 if the gateway accepts no new users, or the organization is a scratch organization; 400 if the
            e-mail address is already registered; 401 if the caller's session is no longer valid; 429 if the organization
            created too many invitations in the last 24 hours.
        PlanLimitExceeded: The plan allows no further team members.
    """
    require_open_registration(context)
    async with context.database.writing(ACCOUNTS, caller.organization_id) as session:
        await first(session)
        await ensure_session_valid(session, caller)
        invitation, organization, token = await _create_invitation(session, context.plans, caller, new)
    shown = InvitationView.model_validate(invitation, from_attributes=True)
    link = build_link(context.settings.public_url or base_url, INVITATION_PAGE, token)
    email = mail.invitation(new.email, organization.name, new.role, link)
    mailed = context.mail is not None and context.mail.send(email)
    return NewInvitationView(**shown.model_dump(), link=None if mailed else link)


async def revoke_invitation(context: AppContext, caller: Caller, invitation_id: str) -> None:
    """Revoke an invitation, so that its link stops working.

    Raises:
        ApiError: 404 if there is no open invitation with this id; 401 if the caller's session is no longer valid.
    """
    async with transaction_as(context, caller) as session:
        query = select(Invitation).where(
            Invitation.id == invitation_id,
            Invitation.organization_id == caller.organization_id,
            *_is_open(session),
        )
        invitation = (await session.exec(query)).first()
        if invitation is None:
            raise not_found("Invitation")
        invitation.revoked_at = now(session)
        session.add(invitation)
        changes = {"email": invitation.email}
        audit.record(session, caller, "team.invitation_revoked", invitation.id, changes=changes)


async def join(context: AppContext, acceptance: Acceptance, address: str | None) -> TokenView:
    """Create the user of an invitation, and return a session token for the user.

    Raises:
        ApiError: 403 if the gateway accepts no new users or the organization is not active; 400 if the invitation was
            accepted or revoked or has expired, or if the e-mail address is already registered; 429 if too many other
            requests are waiting for a password to be hashed.
        PlanLimitExceeded: The plan allows no further team members.
    """
    require_open_registration(context)
    async with context.database.reading() as session:
        invitation = await _find_open_invitation(session, acceptance.token)
    password_hash = await context.passwords.hash(acceptance.password)
    network = LoginAttempt.of(context.vault, address, invitation.email).address
    async with context.database.writing(ACCOUNTS, invitation.organization_id) as session:
        user = await _accept(session, context.plans, acceptance.token, password_hash, address)
        return await open_session(session, context.vault, user, FULL, address=network)


def require_open_registration(context: AppContext) -> None:
    """Raise an error if the operator has closed the gateway to new users.

    Raises:
        ApiError: 403 if the setting `registration` is ``closed``.
    """
    if context.settings.registration == "closed":
        raise ApiError(403, CLOSED)


async def _find_user(session: AsyncSession, caller: Caller, user_id: str) -> User:
    query = select(User).where(
        User.id == user_id,
        User.organization_id == caller.organization_id,
        col(User.removed_at).is_(None),
    )
    user = (await session.exec(query)).first()
    if user is None:
        raise not_found("User")
    return user


async def _require_other_admin(session: AsyncSession, user: User) -> None:
    others = select(func.count()).where(
        User.organization_id == user.organization_id,
        User.role == ADMIN,
        User.id != user.id,
        col(User.removed_at).is_(None),
    )
    if (await session.exec(others)).one() == 0:
        raise ApiError(409, "This is the organization's last admin; make another user an admin first")


async def _create_invitation(
    session: AsyncSession, plans: Plans, caller: Caller, new: NewInvitation
) -> tuple[Invitation, Organization, str]:
    """Create an invitation, and return it with its organization and the token of its link.

    An open invitation for the same e-mail address is revoked, so its link stops working. Each open invitation counts
    towards the maximum number of team members in the plan. This limit is checked again when the invitation is accepted.
    """
    if await find_scratch(session, caller.organization_id) is not None:
        raise ApiError(403, "This is a scratch organization, which cannot invite users")
    if await find_user_by_email(session, new.email) is not None:
        raise ApiError(400, "E-mail already registered")
    organization = await _find_organization(session, caller.organization_id)
    await _revoke_open_invitations(session, caller.organization_id, col(Invitation.email) == new.email)
    waiting = await list_open_invitations(session, caller.organization_id)
    await _require_free_seat(session, plans, organization, invited=len(waiting))
    await _require_below_daily_limit(session, caller.organization_id)
    moment, token = now(session), create_token()
    invitation = Invitation(
        id=new_id(),
        organization_id=caller.organization_id,
        email=new.email,
        role=new.role,
        token_hash=hash_token(token),
        invited_by=caller.user_id,
        created_at=moment,
        expires_at=moment + INVITATION_LIFETIME,
    )
    session.add(invitation)
    audit.record(session, caller, "team.invited", invitation.id, changes=new.model_dump())
    return invitation, organization, token


async def _find_open_invitation(session: AsyncSession, token: str) -> Invitation:
    query = select(Invitation).where(Invitation.token_hash == hash_token(token), *_is_open(session))
    invitation = (await session.exec(query)).first()
    if invitation is None:
        raise ApiError(
            400, "This invitation was used already, revoked, or has expired; ask an admin for a new one"
        )
    return invitation


async def _accept(
    session: AsyncSession, plans: Plans, token: str, password_hash: str, ip_address: str | None
) -> User:
    """Create the user of an invitation and mark the invitation as accepted.

    The transaction must hold the lock `ACCOUNTS` and the lock of the organization, so that no concurrent request
    registers the same e-mail address or exceeds the limit of the plan.
    """
    invitation = await _find_open_invitation(session, token)
    organization = await _find_organization(session, invitation.organization_id)
    if not organization.is_active:
        raise ApiError(403, "Organization is not active")
    if await find_user_by_email(session, invitation.email) is not None:
        raise ApiError(400, "E-mail already registered")
    await _require_free_seat(session, plans, organization)
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
    user_of_link = LinkUser(user.id, organization.id, ip_address)
    changes = {"email": user.email, "role": user.role, "invitation": invitation.id}
    audit.record(session, user_of_link, "team.joined", user.id, changes=changes)
    return user


def _is_open(session: AsyncSession) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Invitation.accepted_at).is_(None),
        col(Invitation.revoked_at).is_(None),
        col(Invitation.expires_at) > now(session),
    )


async def _revoke_open_invitations(
    session: AsyncSession, organization_id: str, condition: ColumnElement[bool]
) -> None:
    await session.exec(
        update(Invitation)
        .where(col(Invitation.organization_id) == organization_id, condition, *_is_open(session))
        .values(revoked_at=now(session))
    )


async def _require_free_seat(
    session: AsyncSession, plans: Plans, organization: Organization, *, invited: int = 0
) -> None:
    """Raise an error if the plan of the organization does not allow one more team member.

    `invited` is the number of open invitations, each of which counts as a member.
    """
    limit = plans[organization.plan].max_team_members
    used = await count_users(session, organization.id) + invited
    if limit != UNLIMITED and used >= limit:
        raise PlanLimitExceeded("team_members", used, limit, organization.plan)


async def _require_below_daily_limit(session: AsyncSession, organization_id: str) -> None:
    count = select(func.count()).where(
        Invitation.organization_id == organization_id,
        col(Invitation.created_at) > now(session) - DAY,
    )
    if (await session.exec(count)).one() >= MAX_INVITATIONS_PER_DAY:
        raise ApiError(
            429,
            f"The organization created {MAX_INVITATIONS_PER_DAY} invitations within a day, which is the maximum; retry after 3600 seconds",
            {"Retry-After": "3600"},
        )


async def _find_organization(session: AsyncSession, organization_id: str) -> Organization:
    return (await session.exec(select(Organization).where(Organization.id == organization_id))).one()
