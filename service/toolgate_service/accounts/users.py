"""Users as rows: found, given another password, ended."""

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import PasswordReset, User
from toolgate_service.slack.endings import NEW_PASSWORD, end_links
from toolgate_service.storage.database import now


async def find_user(session: AsyncSession, email: str) -> User | None:
    """Return the user with an e-mail address, unless removed."""
    query = select(User).where(User.email == email.strip().lower(), col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def user_of(session: AsyncSession, user_id: str) -> User | None:
    """Return a user, unless removed."""
    query = select(User).where(User.id == user_id, col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def set_password(session: AsyncSession, user: User, password_hash: str) -> None:
    """Change a user's password: every token, every link to reset it and the link to Slack stop working."""
    user.password_hash = password_hash
    user.version += 1
    session.add(user)
    await end_resets(session, user)
    await end_links(session, user, NEW_PASSWORD)


async def end_resets(session: AsyncSession, user: User) -> None:
    """Let a user's links to reset the password work no more."""
    await session.exec(
        update(PasswordReset)
        .where(
            col(PasswordReset.organization_id) == user.organization_id,
            col(PasswordReset.user_id) == user.id,
            col(PasswordReset.used_at).is_(None),
        )
        .values(expires_at=now(session))
    )
