"""The rules of forgotten passwords: a link that works once, for an hour (decisions §3, §9)."""

from datetime import timedelta

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import single_use
from toolgate_service.accounts.caller import Person
from toolgate_service.accounts.models import PasswordReset, User
from toolgate_service.accounts.users import end_resets, set_password, user_of
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError
from toolgate_service.ids import new_id
from toolgate_service.storage.database import now

LIFETIME = timedelta(hours=1)
#: links that a user is sent within their lifetime, however often somebody asks
MOST_MAILS = 3


async def issue(session: AsyncSession, user: User) -> str:
    """Return a token that resets a user's password; earlier ones stop working.

    Args:
        session: a write transaction with the turn of the user's organization.
        user: whose password was forgotten.
    """
    moment = now(session)
    await end_resets(session, user)
    token = single_use.mint()
    session.add(
        PasswordReset(
            id=new_id(),
            organization_id=user.organization_id,
            user_id=user.id,
            token_hash=single_use.token_hash(token),
            created_at=moment,
            expires_at=moment + LIFETIME,
        )
    )
    return token


async def issue_for_mail(session: AsyncSession, user_id: str) -> tuple[str, str] | None:
    """Return the address and the token to be sent to a user, unless removed or sent enough of late."""
    user = await user_of(session, user_id)
    sent = select(func.count()).where(
        PasswordReset.user_id == user_id, col(PasswordReset.created_at) > now(session) - LIFETIME
    )
    if user is None or (await session.exec(sent)).one() >= MOST_MAILS:
        return None
    return user.email, await issue(session, user)


async def find_open(session: AsyncSession, token: str) -> PasswordReset:
    """Return the reset that a token stands for.

    Raises:
        ApiError: 400, it is unknown, used, outdated by a newer one, or has expired.
    """
    query = select(PasswordReset).where(
        PasswordReset.token_hash == single_use.token_hash(token),
        col(PasswordReset.used_at).is_(None),
        PasswordReset.expires_at > now(session),
    )
    reset = (await session.exec(query)).first()
    if reset is None:
        raise ApiError(
            400, "This link was used already, has expired or was replaced by a newer one; ask for another"
        )
    return reset


async def confirm(session: AsyncSession, token: str, password_hash: str, ip_address: str | None) -> None:
    """Use a token up and set the password; every session of the user ends.

    Args:
        session: a write transaction with the turn of the reset's organization.
        token: the token of the link.
        password_hash: the new password's.
        ip_address: where the request came from.

    Raises:
        ApiError: 400, the token works no more, or its user was removed.
    """
    reset = await find_open(session, token)
    user = await user_of(session, reset.user_id)
    if user is None:
        raise ApiError(400, "The user of this link was removed")
    reset.used_at = now(session)
    session.add(reset)
    await session.flush()
    await set_password(session, user, password_hash)
    person = Person(user.id, user.organization_id, ip_address)
    audit.record(session, person, "user.password_reset", user.id)
