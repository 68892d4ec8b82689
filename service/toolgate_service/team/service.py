"""Team members: invitation, joining, roles and removal, for the API and for the console."""

from collections.abc import Sequence

from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import mail
from toolgate_service.accounts import one_time_tokens
from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.models import ADMIN, FULL, Invitation, Session, User
from toolgate_service.accounts.repository import expire_password_resets
from toolgate_service.accounts.schemas import TokenView
from toolgate_service.accounts.sessions import (
    Caller,
    Precondition,
    no_precondition,
    open_session,
    transaction_as,
)
from toolgate_service.accounts.slack_links import MEMBER_REMOVED, end_user_links
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.db.database import ACCOUNTS, now
from toolgate_service.team import invitations
from toolgate_service.team.schemas import (
    Acceptance,
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    TeamView,
)


async def list_users(
    session: AsyncSession, organization_id: str, *, offset: int = 0, at_most: int | None = None
) -> Sequence[User]:
    """Return the organization's users, newest first."""
    query = (
        select(User)
        .where(User.organization_id == organization_id, col(User.removed_at).is_(None))
        .order_by(col(User.created_at).desc(), col(User.id).desc())
    )
    return (await session.exec(query.offset(offset).limit(at_most))).all()


async def get_team(context: AppContext, caller: Caller) -> TeamView:
    """Return the organization's users and, for admins, the open invitations."""
    async with context.database.reading() as session:
        users = await list_users(session, caller.organization_id)
        open_invitations = (
            await invitations.list_open(session, caller.organization_id) if caller.is_admin else None
        )
    return TeamView.model_validate({"users": users, "invitations": open_invitations}, from_attributes=True)


async def change_role(context: AppContext, caller: Caller, user_id: str, role: str) -> MemberView:
    """Change a user's role and revoke the user's tokens.

    Raises:
        ApiError: 404 if there is no such user; 409 if the user is the last admin; 401 if the caller's session is no
            longer valid.
    """
    async with transaction_as(context, caller) as session:
        user = await _find_user(session, caller, user_id)
        if user.role != role:
            if user.role == ADMIN:
                await _require_other_admin(session, user)
                await _revoke_invitations_of(session, user)
            before, user.role = user.role, role
            user.version += 1
            session.add(user)
            changes = {"role": role, "before": before}
            audit.record(session, caller, "team.role_changed", user.id, changes=changes)
        return MemberView.model_validate(user, from_attributes=True)


async def remove(context: AppContext, caller: Caller, user_id: str) -> None:
    """Remove a user, and revoke the user's tokens, links and invitations. The e-mail can then be registered again.

    The user's row is kept, so that logs can still show the e-mail.

    Raises:
        ApiError: 404 if there is no such user; 409 if the user is the last admin; 401 if the caller's session is no
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
        await _revoke_invitations_of(session, user)
        audit.record(
            session, caller, "team.removed", user.id, changes={"email": user.email, "role": user.role}
        )


async def revoke_invitation(context: AppContext, caller: Caller, invitation_id: str) -> None:
    """Revoke an invitation; its link stops working.

    Raises:
        ApiError: 404 if there is no open invitation with this id; 401 if the caller's session is no longer valid.
    """
    async with transaction_as(context, caller) as session:
        await invitations.revoke(session, caller, invitation_id)


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
        raise ApiError(409, "This is the organization's last admin; make somebody else an admin first")


async def _revoke_invitations_of(session: AsyncSession, user: User) -> None:
    # Invitations become invalid when the user who sent them may no longer invite.
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


CLOSED = "This gateway takes no new users; ask its operator"


async def join(context: AppContext, acceptance: Acceptance, address: str | None) -> TokenView:
    """Accept an invitation: create the user and return a token.

    Raises:
        ApiError: 403 if the gateway accepts no new users or the organization is not active; 400 if the invitation is no
            longer open; 429 if too many other requests are waiting for a password to be hashed.
        PlanLimitExceeded: The plan allows no further team members.
    """
    require_open_registration(context)
    async with context.database.reading() as session:
        invitation = await invitations.find_open(session, acceptance.token)
    password_hash = await context.passwords.hash(acceptance.password)
    place = LoginAttempt.of(context.vault, address, invitation.email).address
    async with context.database.writing(ACCOUNTS, invitation.organization_id) as session:
        user = await invitations.accept(session, context.plans, acceptance.token, password_hash, address)
        return await open_session(session, context.vault, user, FULL, address=place)


def require_open_registration(context: AppContext) -> None:
    """Require that the operator has not closed the gateway to new users.

    Raises:
        ApiError: 403 if the setting `registration` is ``closed``.
    """
    if context.settings.registration == "closed":
        raise ApiError(403, CLOSED)


async def invite(
    context: AppContext,
    caller: Caller,
    new: NewInvitation,
    base_url: str,
    *,
    first: Precondition = no_precondition,
) -> NewInvitationView:
    """Invite a user by e-mail. If the gateway cannot send the e-mail, the result contains the link.

    The link starts with the configured public URL or, if none is configured, with `base_url`. This is safe, because
    `base_url` comes from an authenticated admin's own request.

    Raises:
        ApiError: 403 if the gateway accepts no new users; 400 if the e-mail is registered; 401 if the caller's session
            is no longer valid; 429 if the organization created too many invitations within a day.
        PlanLimitExceeded: The plan allows no further team members.
    """
    require_open_registration(context)
    async with context.database.writing(ACCOUNTS, caller.organization_id) as session:
        await first(session)
        invited = await invitations.invite(session, context.plans, caller, new)
    shown = InvitationView.model_validate(invited.invitation, from_attributes=True)
    link = one_time_tokens.build_link(
        context.settings.public_url or base_url, one_time_tokens.INVITATION_PAGE, invited.token
    )
    email = mail.invitation(new.email, invited.organization.name, new.role, link)
    mailed = context.mail is not None and context.mail.send(email)
    return NewInvitationView(**shown.model_dump(), link=None if mailed else link)
