"""Create the initial database rows of an embedded gateway.

The rows are one organization, one local user, and one agent with its permissions and API key.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import FULL, User
from toolgate_service.accounts.repository import find_user_by_email
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.sessions import Caller, open_session
from toolgate_service.agents.keys import create_key
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import NewAgent
from toolgate_service.agents.service import create_agent
from toolgate_service.core.errors import ApiError, StartError
from toolgate_service.db.database import ACCOUNTS
from toolgate_service.db.models import PRODUCTION
from toolgate_service.gateway import Gateway
from toolgate_service.organizations.keys import shown_key
from toolgate_service.organizations.models import ApiKey, Organization
from toolgate_service.organizations.registration import create_organization
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission, PermissionChange
from toolgate_service.permissions.service import change_permission, create_permission, delete_permission

#: e-mail address of the local user; its domain can never exist, because the top-level domain `invalid` is reserved
LOCAL_USER = "person@embedded.invalid"
ORGANIZATION = "Embedded"


@dataclass(frozen=True, slots=True)
class EmbeddedIdentity:
    """The local user, the agent, and the agent's API key."""

    user_id: str
    agent_id: str
    api_key: str = field(repr=False)


async def bootstrap(
    gateway: Gateway, agent_name: str, permissions: Sequence[Mapping[str, Any]]
) -> EmbeddedIdentity:
    """Create the organization, user, agent and key unless they exist, and set the agent's permissions.

    Args:
        gateway: A started gateway.
        agent_name: Name of the agent.
        permissions: All permissions of the agent, each in the format of POST /api/agents/{agent_id}/permissions.
            All other permissions of the agent are deleted.

    Raises:
        StartError: The name or a permission is invalid, or a limit of the plan is exceeded.
    """
    try:
        new_agent = NewAgent(name=agent_name)
        wanted = {one.action: one for one in (NewPermission(**fields) for fields in permissions)}
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where, why = problem["loc"][0], problem["msg"].removeprefix("Value error, ")
        raise StartError(f"{'agent' if where == 'name' else where} {why}: {problem['input']!r}") from None
    # Only the hash of this random password is stored, so nobody can sign in with it. An operator can set a new password
    # with `toolgate admin reset-password`.
    password = await gateway.passwords.hash(secrets.token_urlsafe(32))
    try:
        async with gateway.database.writing(ACCOUNTS) as session:
            caller = await _get_or_create_user(session, gateway, password)
            agent = await _get_or_create_agent(session, gateway, caller, new_agent)
            await _set_permissions(session, caller, agent, wanted)
            key = await _get_or_create_key(session, gateway, caller, agent)
            return EmbeddedIdentity(caller.user_id, agent.id, key)
    except ApiError as error:
        raise StartError(str(error.detail)) from error


async def create_token(gateway: Gateway, user_id: str) -> str:
    """Return a new access token of the local user, with which a client can decide approval requests."""
    async with gateway.database.writing(ACCOUNTS) as session:
        user = (await session.exec(select(User).where(User.id == user_id))).one()
        return (await open_session(session, gateway.vault, user, FULL)).access_token


async def _get_or_create_user(session: AsyncSession, gateway: Gateway, password_hash: str) -> Caller:
    if await find_user_by_email(session, LOCAL_USER) is None:
        registration = Registration(
            email=LOCAL_USER, password=secrets.token_urlsafe(32), organization_name=ORGANIZATION
        )
        plan = gateway.settings.default_plan
        await create_organization(session, gateway.vault, registration, password_hash, plan)
    query = select(User, Organization).where(
        User.email == LOCAL_USER, col(User.removed_at).is_(None), Organization.id == User.organization_id
    )
    user, organization = (await session.exec(query)).one()
    return Caller(
        user_id=user.id,
        organization_id=organization.id,
        session_id="",
        version=user.version,
        role=user.role,
        scope=FULL,
        plan=organization.plan,
        organization_is_active=organization.is_active,
        ip_address=None,
    )


async def _get_or_create_agent(
    session: AsyncSession, gateway: Gateway, caller: Caller, new: NewAgent
) -> Agent:
    query = (
        select(Agent)
        .where(
            Agent.organization_id == caller.organization_id,
            Agent.environment == PRODUCTION,
            Agent.name == new.name,
            col(Agent.deleted_at).is_(None),
        )
        .order_by(col(Agent.created_at), col(Agent.id))
    )
    # Do not enable a disabled agent, because a person disabled it.
    found = (await session.exec(query)).first()
    if found is not None:
        return found
    agent = await create_agent(session, gateway.plans, caller, PRODUCTION, new)
    await session.flush()
    return agent


async def _set_permissions(
    session: AsyncSession, caller: Caller, agent: Agent, wanted: Mapping[str, NewPermission]
) -> None:
    query = select(Permission).where(
        Permission.agent_id == agent.id, Permission.organization_id == agent.organization_id
    )
    present = {one.action: one for one in (await session.exec(query)).all()}
    for action, permission in present.items():
        if action not in wanted:
            await delete_permission(session, caller, permission)
            continue
        # Update the permission only if it differs, because each update adds an audit event and a webhook event.
        fields = wanted[action].model_dump(exclude={"action"})
        changes = {name: value for name, value in fields.items() if getattr(permission, name) != value}
        if changes:
            await change_permission(session, caller, permission, PermissionChange(**changes))
    for action, new in wanted.items():
        if action not in present:
            await create_permission(session, caller, agent, new)


async def _get_or_create_key(session: AsyncSession, gateway: Gateway, caller: Caller, agent: Agent) -> str:
    query = (
        select(ApiKey)
        .where(
            ApiKey.organization_id == agent.organization_id,
            ApiKey.agent_id == agent.id,
            col(ApiKey.revoked_at).is_(None),
        )
        .order_by(col(ApiKey.created_at), col(ApiKey.id))
    )
    # Reuse an existing key, because the fingerprints of redacted arguments depend on the key. A key that was encrypted
    # with another secret cannot be read and is skipped.
    for key in (await session.exec(query)).all():
        if text := shown_key(gateway.vault, key):
            return text
    return (await create_key(session, gateway.vault, caller, agent)).api_key
