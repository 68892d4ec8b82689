"""Coming in: registration, login and passwords from end to end, for the API and for the console."""

from toolgate_service.accounts import resets, service, slowing
from toolgate_service.accounts.caller import Caller, own_row
from toolgate_service.accounts.schemas import (
    Login,
    PasswordChange,
    Registration,
    ResetConfirmation,
    TokenView,
)
from toolgate_service.accounts.slowing import Attempt
from toolgate_service.accounts.users import find_user
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.gateway import Gateway
from toolgate_service.storage.database import ACCOUNTS

NO_REGISTRATION = {
    "invite": "Registration is by invitation only; ask an admin of your organization for one",
    "closed": "Registration is closed on this gateway; ask its operator",
}


async def register(gateway: Gateway, registration: Registration, address: str | None) -> TokenView:
    """Create an organization and its first user, who administers it.

    Raises:
        ApiError: 403, this gateway takes no registrations; 400, the e-mail is registered; 429, too many at once.
    """
    refusal = NO_REGISTRATION.get(gateway.settings.registration)
    if refusal is not None:
        raise ApiError(403, refusal)
    attempt = Attempt.of(gateway.vault, address, registration.email)
    # Hashed before the transaction opens: a tenth of a second in it would hold up every writer.
    password_hash = await gateway.passwords.hash(registration.password)
    async with gateway.database.writing(ACCOUNTS) as session:
        return await service.register(
            session,
            gateway.vault,
            registration,
            password_hash,
            gateway.settings.default_plan,
            address=attempt.address,
        )


async def log_in(gateway: Gateway, credentials: Login, address: str | None) -> TokenView:
    """Exchange e-mail and password for a token.

    Raises:
        ApiError: 401, unknown e-mail or wrong password; 429, too many failed or too many at once.
    """
    attempt = Attempt.of(gateway.vault, address, credentials.email)
    async with gateway.database.reading() as session:
        user = await find_user(session, credentials.email)
        await slowing.admit(session, attempt, user)
    fits = await gateway.passwords.verify(credentials.password, user.password_hash if user else None)
    if user is None or not fits:
        async with gateway.database.writing(*attempt.turns) as session:
            # Again: of many guesses at once, no more are answered than one after the other.
            await slowing.admit(session, attempt, user)
            await slowing.count_failure(session, attempt)
        raise service.wrong_login()
    async with gateway.database.writing(*attempt.turns, user.organization_id) as session:
        await slowing.admit(session, attempt, user)
        await slowing.forgive(session, attempt)
        return await service.log_in(session, gateway.vault, user, credentials.scope, address=attempt.address)


async def reset_password(gateway: Gateway, confirmation: ResetConfirmation, address: str | None) -> None:
    """Choose a new password by a link's token; every session of the user ends.

    Raises:
        ApiError: 400, the token was used, replaced or has expired; 429, too many at once.
    """
    async with gateway.database.reading() as session:
        reset = await resets.find_open(session, confirmation.token)
    password_hash = await gateway.passwords.hash(confirmation.new_password)
    async with gateway.database.writing(reset.organization_id) as session:
        await resets.confirm(session, confirmation.token, password_hash, address)


async def change_password(
    gateway: Gateway, caller: Caller, change: PasswordChange, address: str | None
) -> TokenView:
    """Change one's own password; every other token of the user stops working, and a new one is returned.

    Raises:
        FieldErrors: 400, the current password is another; that counts as a failed login.
        ApiError: 401, the token has stopped working; 429, too many failed or too many at once.
    """
    async with gateway.database.reading() as session:
        user = await own_row(session, caller)
        attempt = Attempt.of(gateway.vault, address, user.email)
        await slowing.admit(session, attempt, user)
    if not await gateway.passwords.verify(change.current_password, user.password_hash):
        async with gateway.database.writing(*attempt.turns) as session:
            await slowing.admit(session, attempt, user)
            await slowing.count_failure(session, attempt)
        raise FieldErrors({"current_password": ["is not your password"]})
    password_hash = await gateway.passwords.hash(change.new_password)
    async with gateway.database.writing(*attempt.turns, caller.organization_id) as session:
        await slowing.admit(session, attempt, user)
        await slowing.forgive(session, attempt)
        return await service.change_password(
            session, gateway.vault, caller, user, password_hash, address=attempt.address
        )
