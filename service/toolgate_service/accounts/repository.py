"""Queries and updates of users."""

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import PasswordReset, User
from toolgate_service.accounts.slack_links import PASSWORD_CHANGED, end_user_links
from toolgate_service.db.database import now


async def find_user_by_email(session: AsyncSession, email: str) -> User | None:
    """Return the user with this e-mail address; None if there is no such user or the user was removed."""
    query = select(User).where(User.email == email.strip().lower(), col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def find_user_by_id(session: AsyncSession, user_id: str) -> User | None:
    """Return the user with this id; None if there is no such user or the user was removed."""
    query = select(User).where(User.id == user_id, col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def set_password(session: AsyncSession, user: User, password_hash: str) -> None:
    """Change a user's password, and revoke the user's tokens, reset links and links to Slack."""
    user.password_hash = password_hash
    user.version += 1
    session.add(user)
    await expire_password_resets(session, user)
    await end_user_links(session, user, PASSWORD_CHANGED)


async def expire_password_resets(session: AsyncSession, user: User) -> None:
    """Expire the user's unused password resets, so that their links stop working."""
    await session.exec(
        update(PasswordReset)
        .where(
            col(PasswordReset.organization_id) == user.organization_id,
            col(PasswordReset.user_id) == user.id,
            col(PasswordReset.used_at).is_(None),
        )
        .values(expires_at=now(session))
    )
