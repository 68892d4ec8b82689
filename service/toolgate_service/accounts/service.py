"""The rules of registration, login, and one's own password."""

import re
import secrets
import unicodedata

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import tokens
from toolgate_service.accounts.caller import Caller, own_row
from toolgate_service.accounts.models import ADMIN, FULL, Session, User
from toolgate_service.accounts.schemas import Registration, TokenView, UserView
from toolgate_service.accounts.users import find_user, set_password, user_of
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, bad_credentials
from toolgate_service.ids import new_id
from toolgate_service.organizations.keys import mint_key
from toolgate_service.organizations.models import Environment, Organization
from toolgate_service.storage.base import ENVIRONMENTS
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault
from toolgate_service.web.fields import MAX_NAME


async def register(
    session: AsyncSession,
    vault: Vault,
    registration: Registration,
    password_hash: str,
    plan: str,
    *,
    address: str | None = None,
) -> TokenView:
    """Create an organization as `create_organization` does, and open a session for its first admin.

    Args:
        session: a write transaction with the turn `ACCOUNTS`.
        vault: seals the keys and signs the token.
        registration: the request's body.
        password_hash: the hash of its password.
        plan: the plan of the new organization.
        address: where it came from, as `slowing.Attempt` hashes it.

    Raises:
        ApiError: 400, the e-mail is registered already.
    """
    user = await create_organization(session, vault, registration, password_hash, plan)
    return await open_session(session, vault, user, FULL, address=address)


async def create_organization(
    session: AsyncSession, vault: Vault, registration: Registration, password_hash: str, plan: str
) -> User:
    """Create an organization with both environments and its keys, and return its first admin.

    Args:
        session: a write transaction with the turn `ACCOUNTS`.
        vault: seals the keys.
        registration: e-mail and organization name.
        password_hash: the hash of the admin's password.
        plan: the plan of the new organization.

    Raises:
        ApiError: 400, the e-mail is registered already.
    """
    if await find_user(session, registration.email) is not None:
        raise ApiError(400, "E-mail already registered")
    moment = now(session)
    organization = Organization(
        id=new_id(),
        name=registration.organization_name,
        slug=await _free_slug(session, registration.organization_name),
        plan=plan,
        created_at=moment,
    )
    session.add(organization)
    await session.flush()
    for environment in ENVIRONMENTS:
        session.add(Environment(organization_id=organization.id, name=environment))
    user = User(
        id=new_id(),
        organization_id=organization.id,
        email=registration.email,
        password_hash=password_hash,
        role=ADMIN,
        created_at=moment,
    )
    session.add(user)
    await session.flush()
    for environment in ENVIRONMENTS:
        session.add(mint_key(vault, organization.id, environment, created_at=moment, created_by=user.id))
    return user


async def log_in(session: AsyncSession, vault: Vault, user: User, scope: str, *, address: str) -> TokenView:
    """Begin a session for a user whose password was verified before this transaction.

    Raises:
        ApiError: 401, the user was removed or has got another password meanwhile.
    """
    current = await user_of(session, user.id)
    if current is None or current.password_hash != user.password_hash:
        raise wrong_login()
    return await open_session(session, vault, current, scope, address=address)


async def change_password(
    session: AsyncSession, vault: Vault, caller: Caller, verified: User, password_hash: str, *, address: str
) -> TokenView:
    """Change the caller's password and begin a new session in place of all others.

    Args:
        session: a write transaction with the turn of the caller's organization.
        vault: signs the token.
        caller: whose password it is; the new session has the scope of the old.
        verified: the user whose current password was verified.
        password_hash: the new password's.
        address: where the request came from, as `slowing.Attempt` hashes it.

    Raises:
        ApiError: 401, the token or the password has stopped working meanwhile.
    """
    user = await own_row(session, caller)
    if user.password_hash != verified.password_hash:
        raise bad_credentials()
    await set_password(session, user, password_hash)
    await end_session(session, caller)
    audit.record(session, caller, "user.password_changed", user.id)
    return await open_session(session, vault, user, caller.scope, address=address)


async def end_session(session: AsyncSession, caller: Caller) -> None:
    """Let the caller's token work no more."""
    await session.exec(
        update(Session)
        .where(
            col(Session.organization_id) == caller.organization_id,
            col(Session.id) == caller.session_id,
            col(Session.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )


def wrong_login() -> ApiError:
    """Return the 401 that an unknown e-mail and a wrong password have in common (spec §7)."""
    return ApiError(401, "Invalid e-mail or password")


async def open_session(
    session: AsyncSession, vault: Vault, user: User, scope: str, *, address: str | None = None
) -> TokenView:
    """Begin a session and write its token."""
    moment = now(session)
    login = Session(
        id=new_id(),
        organization_id=user.organization_id,
        user_id=user.id,
        scope=scope,
        address=address,
        created_at=moment,
        expires_at=moment + tokens.LIFETIME,
    )
    session.add(login)
    await session.flush()
    claims = tokens.Claims(user.id, login.id, user.version)
    token = tokens.issue(vault.token_keys[0], claims, scope=scope, issued_at=moment)
    view = UserView(id=user.id, email=user.email, organization_id=user.organization_id)
    return TokenView(access_token=token, user=view)


async def _free_slug(session: AsyncSession, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    # Cut: some single characters decompose into many.
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "organization"
    taken = (await session.exec(select(Organization.id).where(Organization.slug == slug))).first()
    return slug if taken is None else f"{slug}-{secrets.token_hex(4)}"
