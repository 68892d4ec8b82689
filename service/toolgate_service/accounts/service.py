"""The rules of registration and login."""

import re
import secrets
import unicodedata

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import tokens
from toolgate_service.accounts.models import ADMIN, FULL, Session, User
from toolgate_service.accounts.schemas import Registration, TokenView, UserView
from toolgate_service.errors import ApiError
from toolgate_service.ids import new_id
from toolgate_service.organizations.keys import mint_key
from toolgate_service.organizations.models import Environment, Organization
from toolgate_service.storage.base import ENVIRONMENTS
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault
from toolgate_service.web.fields import MAX_NAME


async def find_user(session: AsyncSession, email: str) -> User | None:
    """Return the user with an e-mail address, unless removed."""
    query = select(User).where(User.email == email.strip().lower(), col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def register(
    session: AsyncSession, vault: Vault, registration: Registration, password_hash: str, plan: str
) -> TokenView:
    """Create an organization with both environments, its keys, and its first admin.

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
    return await open_session(session, vault, user, FULL)


async def open_session(session: AsyncSession, vault: Vault, user: User, scope: str) -> TokenView:
    """Begin a session and write its token."""
    moment = now(session)
    login = Session(
        id=new_id(),
        organization_id=user.organization_id,
        user_id=user.id,
        scope=scope,
        created_at=moment,
        expires_at=moment + tokens.LIFETIME,
    )
    session.add(login)
    await session.flush()
    claims = tokens.Claims(user.id, login.id, user.version)
    token = tokens.issue(vault.token_key, claims, scope=scope, issued_at=moment)
    view = UserView(id=user.id, email=user.email, organization_id=user.organization_id)
    return TokenView(access_token=token, user=view)


async def _free_slug(session: AsyncSession, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    # Cut: some single characters decompose into many.
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "organization"
    taken = (await session.exec(select(Organization.id).where(Organization.slug == slug))).first()
    return slug if taken is None else f"{slug}-{secrets.token_hex(4)}"
