"""Login, logout and password changes, for the API and for the console."""

from toolgate_service.accounts import login_throttle
from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.repository import find_user_by_email, find_user_by_id, set_password
from toolgate_service.accounts.schemas import CurrentUser, Login, PasswordChange, TokenView
from toolgate_service.accounts.sessions import Caller, end_session, load_current_user, open_session
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, FieldErrors, bad_credentials


async def log_in(context: AppContext, credentials: Login, address: str | None) -> TokenView:
    """Exchange e-mail and password for a token.

    Raises:
        ApiError: 401 for an unknown e-mail or a wrong password; 429 after too many failures, or if too many other
            requests are waiting for a password to be hashed.
    """
    attempt = LoginAttempt.of(context.vault, address, credentials.email)
    async with context.database.reading() as session:
        user = await find_user_by_email(session, credentials.email)
        await login_throttle.require_allowed(session, attempt, user)
    matches = await context.passwords.verify(credentials.password, user.password_hash if user else None)
    if user is None or not matches:
        async with context.database.writing(*attempt.lock_keys) as session:
            # Check again under the lock, so that parallel guesses get no more results than sequential guesses.
            await login_throttle.require_allowed(session, attempt, user)
            await login_throttle.count_failure(session, attempt)
        raise invalid_login()
    async with context.database.writing(*attempt.lock_keys, user.organization_id) as session:
        await login_throttle.require_allowed(session, attempt, user)
        await login_throttle.clear_failures(session, attempt)
        current = await find_user_by_id(session, user.id)
        # After the password was verified, another request may have removed the user or changed the password.
        if current is None or current.password_hash != user.password_hash:
            raise invalid_login()
        return await open_session(session, context.vault, current, credentials.scope, address=attempt.address)


async def log_out(context: AppContext, caller: Caller) -> None:
    """End the caller's session; other sessions of the user continue."""
    async with context.database.writing(caller.organization_id) as session:
        await end_session(session, caller)


async def get_current_user(context: AppContext, caller: Caller) -> CurrentUser:
    """Return the caller's user.

    Raises:
        ApiError: 401 if the session is no longer valid.
    """
    async with context.database.reading() as session:
        return CurrentUser.model_validate(await load_current_user(session, caller), from_attributes=True)


async def change_password(
    context: AppContext, caller: Caller, change: PasswordChange, address: str | None
) -> TokenView:
    """Change the caller's password, revoke all tokens of the user, and return a new token with the same scope.

    Raises:
        FieldErrors: 400 if the current password is wrong. The attempt counts as a failed login.
        ApiError: 401 if the session is no longer valid; 429 as in `log_in`.
    """
    async with context.database.reading() as session:
        user = await load_current_user(session, caller)
        attempt = LoginAttempt.of(context.vault, address, user.email)
        await login_throttle.require_allowed(session, attempt, user)
    if not await context.passwords.verify(change.current_password, user.password_hash):
        async with context.database.writing(*attempt.lock_keys) as session:
            await login_throttle.require_allowed(session, attempt, user)
            await login_throttle.count_failure(session, attempt)
        raise FieldErrors({"current_password": ["is not your password"]})
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


def invalid_login() -> ApiError:
    """Return the 401 error for a failed login. The error does not reveal whether the e-mail is registered."""
    return ApiError(401, "Invalid e-mail or password")
