"""Who lives in an embedded gateway: its organization, the person at this machine, the agent and its key."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import FULL, User
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.service import open_session, register
from toolgate_service.accounts.users import find_user
from toolgate_service.agents.key_service import create_key
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import NewAgent
from toolgate_service.agents.service import create_agent
from toolgate_service.errors import ApiError, StartError
from toolgate_service.gateway import Gateway
from toolgate_service.organizations.keys import shown_key
from toolgate_service.organizations.models import ApiKey, Organization
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission, PermissionChange
from toolgate_service.permissions.service import change_permission, create_permission, delete_permission
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.storage.database import ACCOUNTS

#: the person at this machine; the domain can never exist
PERSON = "person@embedded.invalid"
ORGANIZATION = "Embedded"


@dataclass(frozen=True, slots=True)
class Household:
    """Who acts, and by which key."""

    user_id: str
    agent_id: str
    api_key: str = field(repr=False)


async def settle_in(gateway: Gateway, agent_name: str, permissions: Sequence[Mapping[str, Any]]) -> Household:
    """Make or find again the organization, the person, the agent and its key; bring its permissions to what is named.

    Args:
        gateway: started.
        agent_name: which agent.
        permissions: what it may do, each as POST /api/agents/{agent_id}/permissions takes it; nothing else.

    Raises:
        StartError: something named cannot be.
    """
    try:
        new_agent = NewAgent(name=agent_name)
        wanted = {one.action: one for one in (NewPermission(**fields) for fields in permissions)}
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where, why = problem["loc"][0], problem["msg"].removeprefix("Value error, ")
        raise StartError(f"{'agent' if where == 'name' else where} {why}: {problem['input']!r}") from None
    # Nobody knows it: `toolgate admin reset-password` gives the person one, should the file be served one day.
    password = await gateway.passwords.hash(secrets.token_urlsafe(32))
    try:
        async with gateway.database.writing(ACCOUNTS) as session:
            caller = await _person(session, gateway, password)
            agent = await _agent(session, gateway, caller, new_agent)
            await _permit(session, caller, agent, wanted)
            key = await _key(session, gateway, caller, agent)
            return Household(caller.user_id, agent.id, key)
    except ApiError as error:
        raise StartError(str(error.reply_detail)) from error


async def token_of(gateway: Gateway, user_id: str) -> str:
    """Return a new token of the person, with which they decide about requests."""
    async with gateway.database.writing(ACCOUNTS) as session:
        user = (await session.exec(select(User).where(User.id == user_id))).one()
        return (await open_session(session, gateway.vault, user, FULL)).access_token


async def _person(session: AsyncSession, gateway: Gateway, password_hash: str) -> Caller:
    if await find_user(session, PERSON) is None:
        registration = Registration(
            email=PERSON, password=secrets.token_urlsafe(32), organization_name=ORGANIZATION
        )
        plan = gateway.settings.default_plan
        await register(session, gateway.vault, registration, password_hash, plan)
    query = select(User, Organization).where(
        User.email == PERSON, col(User.removed_at).is_(None), Organization.id == User.organization_id
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


async def _agent(session: AsyncSession, gateway: Gateway, caller: Caller, new: NewAgent) -> Agent:
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
    # One that was switched off stays so: that was a person's word.
    found = (await session.exec(query)).first()
    if found is not None:
        return found
    agent = await create_agent(session, gateway.plans, caller, PRODUCTION, new)
    await session.flush()
    return agent


async def _permit(
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
        # What is as it should be is left alone, and with it whatever waits for a decision.
        fields = wanted[action].model_dump(exclude={"action"})
        changes = {name: value for name, value in fields.items() if getattr(permission, name) != value}
        if changes:
            await change_permission(session, caller, permission, PermissionChange(**changes))
    for action, new in wanted.items():
        if action not in present:
            await create_permission(session, caller, agent, new)


async def _key(session: AsyncSession, gateway: Gateway, caller: Caller, agent: Agent) -> str:
    query = (
        select(ApiKey)
        .where(
            ApiKey.organization_id == agent.organization_id,
            ApiKey.agent_id == agent.id,
            col(ApiKey.revoked_at).is_(None),
        )
        .order_by(col(ApiKey.created_at), col(ApiKey.id))
    )
    # The same again, if the gateway's secret still opens it: hidden arguments are bound by it.
    for key in (await session.exec(query)).all():
        if text := shown_key(gateway.vault, key):
            return text
    return (await create_key(session, gateway.vault, caller, agent)).api_key
