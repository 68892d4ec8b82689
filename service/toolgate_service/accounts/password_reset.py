"""Password reset: the gateway sends a link by e-mail. The link works once and expires after one hour."""

from datetime import timedelta

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import one_time_tokens
from toolgate_service.accounts.models import PasswordReset, User
from toolgate_service.accounts.repository import (
    expire_password_resets,
    find_user_by_email,
    find_user_by_id,
    set_password,
)
from toolgate_service.accounts.schemas import ResetConfirmation
from toolgate_service.accounts.sessions import LinkUser
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.retry import with_retry
from toolgate_service.mail import Email
from toolgate_service.mail import password_reset as password_reset_email

SENT = "If the e-mail is registered here, a link to choose a new password is on its way to it"
NO_MAIL = "This gateway sends no mail; ask its operator, who gets a link from 'toolgate admin reset-password'"
MAIL_RETRY_AFTER = 60
RESET_LIFETIME = timedelta(hours=1)
#: maximum number of reset e-mails that a user receives within `RESET_LIFETIME`
MAX_RESET_EMAILS = 3


def request_password_reset(context: AppContext, email: str) -> str:
    """Queue an e-mail with a reset link, and return the message for the client.

    The response and its timing do not reveal whether the e-mail is registered: a background task looks up the user.

    Raises:
        ApiError: 429 if the mail queue is full.
    """
    if context.mail is None:
        return NO_MAIL
    if not context.mail.make_and_send(lambda: with_retry(lambda: _create_reset_email(context, email))):
        raise ApiError(
            429,
            f"Too many mails are on their way; retry after {MAIL_RETRY_AFTER} seconds",
            {"Retry-After": str(MAIL_RETRY_AFTER)},
        )
    return SENT


async def reset_password(context: AppContext, confirmation: ResetConfirmation, address: str | None) -> None:
    """Set a new password for the user of a reset token, and end all sessions of the user.

    Raises:
        ApiError: 400 if the token is unknown, used, replaced or expired, or its user was removed; 429 if too many
            other requests are waiting for a password to be hashed.
    """
    async with context.database.reading() as session:
        reset = await _find_open_reset(session, confirmation.token)
    password_hash = await context.passwords.hash(confirmation.new_password)
    async with context.database.writing(reset.organization_id) as session:
        reset = await _find_open_reset(session, confirmation.token)
        user = await find_user_by_id(session, reset.user_id)
        if user is None:
            raise ApiError(400, "The user of this link was removed")
        reset.used_at = now(session)
        session.add(reset)
        await session.flush()
        await set_password(session, user, password_hash)
        audit.record(
            session, LinkUser(user.id, user.organization_id, address), "user.password_reset", user.id
        )


async def create_reset(session: AsyncSession, user: User) -> str:
    """Create a password reset for the user and return its token. Earlier tokens of the user become invalid.

    The session must be a write transaction that holds the lock of the user's organization.
    """
    moment = now(session)
    await expire_password_resets(session, user)
    token = one_time_tokens.create_token()
    session.add(
        PasswordReset(
            id=new_id(),
            organization_id=user.organization_id,
            user_id=user.id,
            token_hash=one_time_tokens.hash_token(token),
            created_at=moment,
            expires_at=moment + RESET_LIFETIME,
        )
    )
    return token


async def _create_reset_email(context: AppContext, email: str) -> Email | None:
    async with context.database.reading() as session:
        found = await find_user_by_email(session, email)
    if found is None or context.settings.public_url is None:
        return None
    async with context.database.writing(found.organization_id) as session:
        user = await find_user_by_id(session, found.id)
        if user is None or await _count_recent_resets(session, user) >= MAX_RESET_EMAILS:
            return None
        address, token = user.email, await create_reset(session, user)
    link = one_time_tokens.build_link(context.settings.public_url, one_time_tokens.RESET_PAGE, token)
    return password_reset_email(address, link)


async def _count_recent_resets(session: AsyncSession, user: User) -> int:
    query = select(func.count()).where(
        PasswordReset.user_id == user.id, col(PasswordReset.created_at) > now(session) - RESET_LIFETIME
    )
    return (await session.exec(query)).one()


async def _find_open_reset(session: AsyncSession, token: str) -> PasswordReset:
    query = select(PasswordReset).where(
        PasswordReset.token_hash == one_time_tokens.hash_token(token),
        col(PasswordReset.used_at).is_(None),
        PasswordReset.expires_at > now(session),
    )
    reset = (await session.exec(query)).first()
    if reset is None:
        raise ApiError(
            400, "This link was used already, has expired or was replaced by a newer one; ask for another"
        )
    return reset
