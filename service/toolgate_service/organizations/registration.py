"""Registration: a new organization with its environments, keys and first admin."""

import re
import secrets
import unicodedata

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.models import ADMIN, FULL, User
from toolgate_service.accounts.repository import find_user_by_email
from toolgate_service.accounts.schemas import Registration, TokenView
from toolgate_service.accounts.sessions import open_session
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import new_id
from toolgate_service.core.schemas import MAX_NAME
from toolgate_service.db.database import ACCOUNTS, now
from toolgate_service.db.models import ENVIRONMENTS
from toolgate_service.organizations.keys import mint_key
from toolgate_service.organizations.models import Environment, Organization

REGISTRATION_REFUSALS = {
    "invite": "Registration is by invitation only; ask an admin of your organization for one",
    "closed": "Registration is closed on this gateway; ask its operator",
}


async def register(context: AppContext, registration: Registration, address: str | None) -> TokenView:
    """Create an organization and its first admin, and return a token for the admin.

    Raises:
        ApiError: 403 if the gateway accepts no registrations; 400 if the e-mail is already registered; 429 if too many
            other requests are waiting for a password to be hashed.
    """
    refusal = REGISTRATION_REFUSALS.get(context.settings.registration)
    if refusal is not None:
        raise ApiError(403, refusal)
    attempt = LoginAttempt.of(context.vault, address, registration.email)
    # The password is hashed before the transaction: hashing takes a tenth of a second, during which a transaction would
    # block all other writers.
    password_hash = await context.passwords.hash(registration.password)
    async with context.database.writing(ACCOUNTS) as session:
        user = await create_organization(
            session, context.vault, registration, password_hash, context.settings.default_plan
        )
        return await open_session(session, context.vault, user, FULL, address=attempt.address)


async def create_organization(
    session: AsyncSession, vault: Vault, registration: Registration, password_hash: str, plan: str
) -> User:
    """Create an organization with both environments and their keys, and return its first admin.

    The session must be a write transaction that holds the lock `ACCOUNTS`.

    Raises:
        ApiError: 400 if the e-mail is already registered.
    """
    if await find_user_by_email(session, registration.email) is not None:
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


async def _free_slug(session: AsyncSession, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    # NFKD replaces some characters by several, so the name may have become longer than `MAX_NAME`.
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "organization"
    taken = (await session.exec(select(Organization.id).where(Organization.slug == slug))).first()
    return slug if taken is None else f"{slug}-{secrets.token_hex(4)}"
