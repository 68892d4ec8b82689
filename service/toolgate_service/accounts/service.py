"""Login, logout, password changes and password resets, for the API and for the console.

The link in a password reset or an invitation contains a one-time token of 256 random bits. The database stores only the
hash of the token.
"""

import hashlib
import secrets
from datetime import timedelta
from urllib.parse import quote

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import login_throttle
from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.models import PasswordReset, User
from toolgate_service.accounts.repository import (
    expire_password_resets,
    find_user_by_email,
    find_user_by_id,
    set_password,
)
from toolgate_service.accounts.schemas import CurrentUser, Login, PasswordChange, ResetConfirmation, TokenView
from toolgate_service.accounts.sessions import Caller, LinkUser, end_session, load_current_user, open_session
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, FieldErrors, bad_credentials
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.retry import with_retry
from toolgate_service.mail import Email
from toolgate_service.mail import password_reset as password_reset_email
from toolgate_service.scratch.models import find_scratch

TOKEN_BYTES = 32

#: paths of the console pages to which the links in e-mails point; each link contains a one-time token
INVITATION_PAGE = "/console/invitation"
RESET_PAGE = "/console/password-reset"
SENT = "If this e-mail address is registered, an e-mail with a link to set a new password is on its way"
NO_MAIL = "This gateway sends no e-mail; ask its operator, who can create a link with 'toolgate admin reset-password'"
MAIL_RETRY_AFTER = 60
RESET_LIFETIME = timedelta(hours=1)

#: maximum number of reset e-mails that the gateway sends to a user within `RESET_LIFETIME`
MAX_RESET_EMAILS = 3


async def log_in(context: AppContext, credentials: Login, address: str | None) -> TokenView:
    """Exchange an e-mail address and a password for a session token.

    Raises:
        ApiError: 401 for an unknown e-mail address or a wrong password; 429 after too many failed logins, or if too
            many other requests are waiting for a password to be hashed.
    """
    attempt = LoginAttempt.of(context.vault, address, credentials.email)
    async with context.database.reading() as session:
        user = await find_user_by_email(session, credentials.email)
        await login_throttle.require_allowed(session, attempt, user)
    if not await _verify_password(context, attempt, user, credentials.password) or user is None:
        raise invalid_login()
    async with context.database.writing(*attempt.lock_keys, user.organization_id) as session:
        await login_throttle.require_allowed(session, attempt, user)
        await login_throttle.clear_failures(session, attempt)
        current = await find_user_by_id(session, user.id)
        # Another request may have removed the user or changed the password since the password was verified.
        if current is None or current.password_hash != user.password_hash:
            raise invalid_login()
        return await open_session(session, context.vault, current, credentials.scope, address=attempt.address)


async def log_out(context: AppContext, caller: Caller) -> None:
    """End the caller's session; other sessions of the user continue."""
    async with context.database.writing(caller.organization_id) as session:
        await end_session(session, caller)


async def get_current_user(context: AppContext, caller: Caller) -> CurrentUser:
    """Return the authenticated user.

    Raises:
        ApiError: 401 if the session is no longer valid.
    """
    async with context.database.reading() as session:
        return CurrentUser.model_validate(await load_current_user(session, caller), from_attributes=True)


async def change_password(
    context: AppContext, caller: Caller, change: PasswordChange, address: str | None
) -> TokenView:
    """Change the caller's password, revoke all session tokens of the user, and return a new token.

    The new token has the same scope as the token of the caller.

    Raises:
        FieldErrors: 400 if the current password is wrong. The attempt counts as a failed login.
        ApiError: 401 if the session is no longer valid; 429 after too many failed logins, or if too many other requests
            are waiting for a password to be hashed.
    """
    async with context.database.reading() as session:
        user = await load_current_user(session, caller)
        attempt = LoginAttempt.of(context.vault, address, user.email)
        await login_throttle.require_allowed(session, attempt, user)
    if not await _verify_password(context, attempt, user, change.current_password):
        raise FieldErrors({"current_password": ["is not your current password"]})
    password_hash = await context.passwords.hash(change.new_password)
    async with context.database.writing(*attempt.lock_keys, caller.organization_id) as session:
        await login_throttle.require_allowed(session, attempt, user)
        await login_throttle.clear_failures(session, attempt)
        current = await load_current_user(session, caller)
        if current.password_hash != user.password_hash:
            raise bad_credentials()
        await set_password(session, current, password_hash)
        await end_session(session, caller)
        audit.record(session, caller, "user.password_changed", current.id)
        return await open_session(session, context.vault, current, caller.scope, address=attempt.address)


async def _verify_password(
    context: AppContext, attempt: LoginAttempt, user: User | None, password: str
) -> bool:
    """Return whether `password` is the user's password. A wrong password is counted as a failed login."""
    if await context.passwords.verify(password, user.password_hash if user else None):
        return True
    async with context.database.writing(*attempt.lock_keys) as session:
        # Check the delay again under the lock, so that parallel guesses get no more results than sequential guesses.
        await login_throttle.require_allowed(session, attempt, user)
        await login_throttle.count_failure(session, attempt)
    return False


def invalid_login() -> ApiError:
    """Return the 401 error for a failed login. It does not reveal whether the e-mail address is registered."""
    return ApiError(401, "Invalid e-mail or password")


def create_token() -> str:
    """Return a new random token for a reset or invitation link."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return the SHA-256 hash that the database stores instead of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def build_link(public_url: str, page: str, token: str) -> str:
    """Return a link to a console page, with the one-time token in the URL fragment.

    Browsers do not send the fragment of a URL to the server, so the token is not logged.
    """
    return f"{public_url.rstrip('/')}{page}#token={quote(token)}"


def request_password_reset(context: AppContext, email: str) -> str:
    """Queue an e-mail with a link to reset the password, and return a message for the user.

    The response and its timing do not reveal whether the e-mail address is registered: a background task looks up the
    user after the response.

    Raises:
        ApiError: 429 if the queue of unsent e-mails is full.
    """
    if context.mail is None:
        return NO_MAIL
    if not context.mail.make_and_send(lambda: with_retry(lambda: _create_reset_email(context, email))):
        raise ApiError(
            429,
            f"Too many e-mails are waiting to be sent; retry after {MAIL_RETRY_AFTER} seconds",
            {"Retry-After": str(MAIL_RETRY_AFTER)},
        )
    return SENT


async def reset_password(context: AppContext, confirmation: ResetConfirmation, address: str | None) -> None:
    """Set a new password for the user of a reset link, and end all sessions of the user.

    Raises:
        ApiError: 400 if the token of the link is unknown, used, replaced or expired, or if its user was removed; 429 if
            too many other requests are waiting for a password to be hashed.
    """
    async with context.database.reading() as session:
        reset = await _find_open_reset(session, confirmation.token)
    password_hash = await context.passwords.hash(confirmation.new_password)
    async with context.database.writing(reset.organization_id) as session:
        reset = await _find_open_reset(session, confirmation.token)
        user = await find_user_by_id(session, reset.user_id)
        if user is None:
            raise ApiError(400, "The user of this link was removed from the organization")
        reset.used_at = now(session)
        session.add(reset)
        await session.flush()
        await set_password(session, user, password_hash)
        audit.record(
            session, LinkUser(user.id, user.organization_id, address), "user.password_reset", user.id
        )


async def create_reset(session: AsyncSession, user: User) -> str:
    """Create a password reset for the user and return its one-time token. Earlier reset tokens become invalid.

    `session` must be a write transaction that holds the lock of the user's organization.
    """
    moment = now(session)
    await expire_password_resets(session, user)
    token = create_token()
    session.add(
        PasswordReset(
            id=new_id(),
            organization_id=user.organization_id,
            user_id=user.id,
            token_hash=hash_token(token),
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
        if user is None or await find_scratch(session, user.organization_id) is not None:
            return None
        if await _count_recent_resets(session, user) >= MAX_RESET_EMAILS:
            return None
        address, token = user.email, await create_reset(session, user)
    link = build_link(context.settings.public_url, RESET_PAGE, token)
    return password_reset_email(address, link)


async def _count_recent_resets(session: AsyncSession, user: User) -> int:
    query = select(func.count()).where(
        PasswordReset.user_id == user.id, col(PasswordReset.created_at) > now(session) - RESET_LIFETIME
    )
    return (await session.exec(query)).one()


async def _find_open_reset(session: AsyncSession, token: str) -> PasswordReset:
    query = select(PasswordReset).where(
        PasswordReset.token_hash == hash_token(token),
        col(PasswordReset.used_at).is_(None),
        PasswordReset.expires_at > now(session),
    )
    reset = (await session.exec(query)).first()
    if reset is None:
        raise ApiError(
            400, "This link was used already, has expired or was replaced by a newer one; request a new link"
        )
    return reset
