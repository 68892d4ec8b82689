"""Agents and their API keys: list, create, change and delete.

A client that authenticates with the API key of an agent cannot send requests for another agent.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, bindparam
from sqlmodel import col, delete, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import ADMIN, User
from toolgate_service.accounts.sessions import Caller, Precondition, no_precondition, transaction_as
from toolgate_service.agents.models import ACTIVE, INACTIVE, Agent
from toolgate_service.agents.schemas import AgentChange, AgentKeyView, AgentView, NewAgent
from toolgate_service.approvals import policy
from toolgate_service.approvals.service import cancel_open
from toolgate_service.audit import service as audit
from toolgate_service.billing.schemas import UsageWarningView
from toolgate_service.billing.service import warning_at
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import UNLIMITED, Plans
from toolgate_service.db.database import now
from toolgate_service.db.models import PRODUCTION
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.organizations.models import ApiKey, Organization
from toolgate_service.organizations.repository import masked_key, mint_key, revoke_keys, shown_key, valid_keys
from toolgate_service.permissions.models import Permission
from toolgate_service.webhooks.events import USAGE_WARNING, emit

_ONE = select(Agent).where(
    col(Agent.id) == bindparam("id"),
    col(Agent.organization_id) == bindparam("organization_id"),
    col(Agent.environment) == bindparam("environment"),
    col(Agent.deleted_at).is_(None),
)

#: maximum number of valid API keys per agent, as a limit for scripts that create keys but never revoke them
MAX_KEYS = 100


async def list_agents(session: AsyncSession, caller: Caller, environment: str, page: Page) -> Found[Agent]:
    """Return the agents of an environment, newest first."""
    query = select(Agent).where(
        Agent.organization_id == caller.organization_id,
        Agent.environment == environment,
        col(Agent.deleted_at).is_(None),
    )
    return await find_page(session, query, Agent, page)


async def get_agent(session: AsyncSession, caller: Caller, environment: str, agent_id: str) -> Agent:
    """Return the agent with this id.

    Raises:
        ApiError: 404 if the caller's organization has no agent with this id in the environment.
    """
    values = {"id": agent_id, "organization_id": caller.organization_id, "environment": environment}
    agent = (await session.exec(_ONE, params=values)).first()
    if agent is None:
        raise not_found("Agent")
    return agent


async def create_agent(context: AppContext, caller: Caller, environment: str, new: NewAgent) -> AgentView:
    """Create an agent. A new agent is active and has no permissions.

    Raises:
        PlanLimitExceeded: The plan allows no further agents in the production environment. Disabled agents also count.
    """
    async with transaction_as(context, caller) as session:
        agent = await add_agent(session, context.plans, caller, environment, new)
        return AgentView.model_validate(agent, from_attributes=True)


async def add_agent(
    session: AsyncSession, plans: Plans, caller: Caller, environment: str, new: NewAgent
) -> Agent:
    """Create an agent as `create_agent` does, but in the open transaction of `session`."""
    warning = await _count_production_agent(session, plans, caller) if environment == PRODUCTION else None
    agent = Agent(
        id=new_id(),
        organization_id=caller.organization_id,
        environment=environment,
        name=new.name,
        description=new.description,
        created_by=caller.user_id,
        created_at=now(session),
    )
    session.add(agent)
    audit.record(
        session, caller, "agent.created", agent.id, environment=environment, changes={"name": new.name}
    )
    await _emit(session, "agent.created", agent)
    if warning is not None:
        await emit(session, agent.organization_id, environment, USAGE_WARNING, warning)
    await session.flush()
    return agent


async def change_agent(
    context: AppContext, caller: Caller, environment: str, agent_id: str, change: AgentChange
) -> AgentView:
    """Change those fields of an agent that the request contains.

    If the request disables the agent, the agent's pending and approved requests are cancelled.

    Raises:
        ApiError: 404 if the agent does not exist; 403 if a user who is not an admin enables an agent that an admin
            disabled.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        await update_agent(session, caller, agent, change)
        return AgentView.model_validate(agent, from_attributes=True)


async def update_agent(session: AsyncSession, caller: Caller, agent: Agent, change: AgentChange) -> None:
    """Change an agent as `change_agent` does, but in the open transaction of `session`."""
    if change.status == ACTIVE and agent.status == INACTIVE:
        await _require_may_enable(session, caller, agent)
        agent.status, agent.switched_off_by = ACTIVE, None
    elif change.status == INACTIVE:
        await _disable(session, caller, agent)
    if "name" in change.model_fields_set and change.name is not None:
        agent.name = change.name
    if "description" in change.model_fields_set:
        agent.description = change.description
    changes = change.model_dump(exclude_unset=True)
    audit.record(session, caller, "agent.updated", agent.id, environment=agent.environment, changes=changes)
    await _emit(session, "agent.updated", agent)


async def delete_agent(context: AppContext, caller: Caller, environment: str, agent_id: str) -> None:
    """Delete an agent with its permissions and API keys. Its log entries are kept.

    Raises:
        ApiError: 404 if the agent does not exist.
    """
    async with transaction_as(context, caller) as session:
        await remove_agent(session, caller, await get_agent(session, caller, environment, agent_id))


async def remove_agent(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    """Delete an agent as `delete_agent` does, but in the open transaction of `session`."""
    await cancel_open(session, agent, "the agent was deleted")
    await session.exec(
        delete(Permission).where(
            col(Permission.organization_id) == agent.organization_id,
            col(Permission.environment) == agent.environment,
            col(Permission.agent_id) == agent.id,
        )
    )
    await revoke_keys(session, agent.organization_id, agent.environment, agent.id)
    agent.deleted_at = now(session)
    audit.record(
        session,
        caller,
        "agent.deleted",
        agent.id,
        environment=agent.environment,
        changes={"name": agent.name},
    )
    await _emit(session, "agent.deleted", agent)


async def clear_denial_block(
    context: AppContext, caller: Caller, environment: str, agent_id: str, action: str
) -> None:
    """Allow an action again that is blocked because approvers repeatedly rejected calls of the agent.

    Raises:
        ApiError: 404 if the agent does not exist, or if the action is not blocked.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        await policy.clear_denial_block(session, context.settings, caller, agent, action)


async def _emit(session: AsyncSession, kind: str, agent: Agent) -> None:
    view = AgentView.model_validate(agent, from_attributes=True)
    await emit(session, agent.organization_id, agent.environment, kind, view)


async def _count_production_agent(
    session: AsyncSession, plans: Plans, caller: Caller
) -> UsageWarningView | None:
    """Raise an error if the plan does not allow one more agent in the production environment.

    Returns:
        The usage warning to send, if the new agent reaches a warning threshold of the plan's limit; otherwise None.

    Raises:
        PlanLimitExceeded: The plan allows no further agents in the production environment.
    """
    # Lock the row of the organization, so that concurrent requests cannot together exceed the limit.
    organization = (
        await session.exec(
            select(Organization).where(Organization.id == caller.organization_id).with_for_update()
        )
    ).one()
    limit = plans[organization.plan].max_agents
    if limit == UNLIMITED:
        return None
    count = select(func.count()).where(
        Agent.organization_id == organization.id,
        Agent.environment == PRODUCTION,
        col(Agent.deleted_at).is_(None),
    )
    used = (await session.exec(count)).one()
    if used >= limit:
        raise PlanLimitExceeded("agents", used, limit, organization.plan)
    return warning_at("agents", organization.plan, used + 1, limit)


async def _disable(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    # An agent that an admin disabled can be enabled only by an admin. If the agent is already disabled, a member must
    # therefore not replace the user in `switched_off_by`, who may be an admin: the member could then enable the agent.
    if agent.status == ACTIVE or caller.is_admin:
        agent.switched_off_by = caller.user_id
    if agent.status == ACTIVE:
        agent.status = INACTIVE
        await cancel_open(session, agent, "the agent was disabled")


async def _require_may_enable(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    if caller.is_admin or agent.switched_off_by is None:
        return
    disabled_by = (await session.exec(select(User).where(User.id == agent.switched_off_by))).first()
    if disabled_by is not None and disabled_by.role == ADMIN:
        raise ApiError(403, "An admin disabled this agent; ask an admin to enable it")


async def list_masked_keys(session: AsyncSession, agent: Agent) -> Sequence[AgentKeyView]:
    """Return the valid API keys of the agent in masked form, newest first."""
    return [_view_key(agent, key) for key in await _find_valid_keys(session, agent)]


async def show_keys(
    context: AppContext, caller: Caller, environment: str, agent_id: str
) -> Sequence[AgentKeyView]:
    """Return the valid API keys of the agent, newest first.

    Admins see the full keys, and the gateway writes an audit event about this. Other users see masked keys.

    Raises:
        ApiError: 404 if the agent does not exist.
    """
    async with transaction_as(context, caller, reads=True) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        keys = await _find_valid_keys(session, agent)
        shown = {key.id: text for key in keys if caller.sees_keys and (text := shown_key(context.vault, key))}
        if shown:
            _record_key_event(session, caller, agent, "agent.keys_shown", keys=list(shown))
        return [_view_key(agent, key, shown.get(key.id)) for key in keys]


async def create_key(
    context: AppContext,
    caller: Caller,
    environment: str,
    agent_id: str,
    *,
    advisory: bool = False,
    first: Precondition = no_precondition,
) -> AgentKeyView:
    """Create an API key for one agent in the agent's environment.

    Checks with an advisory key are dry runs. `first` is an additional check, which runs in the same transaction before
    the key is created.

    Raises:
        ApiError: 404 if the agent does not exist; 409 if it already has the maximum number of keys.
    """
    async with transaction_as(context, caller) as session:
        await first(session)
        agent = await get_agent(session, caller, environment, agent_id)
        return await add_key(session, context.vault, caller, agent, advisory=advisory)


async def add_key(
    session: AsyncSession, vault: Vault, caller: Caller, agent: Agent, *, advisory: bool = False
) -> AgentKeyView:
    """Create an API key as `create_key` does, but in the open transaction of `session`."""
    valid = select(func.count()).where(*_valid_keys(agent))
    if (await session.exec(valid)).one() >= MAX_KEYS:
        raise ApiError(
            409, f"The agent already has {MAX_KEYS} API keys, which is the maximum; revoke one first"
        )
    key = mint_key(
        vault,
        agent.organization_id,
        agent.environment,
        agent_id=agent.id,
        created_at=now(session),
        created_by=caller.user_id,
        advisory=advisory,
    )
    session.add(key)
    # The audit event contains this field only if its value differs from the default.
    changes = {"advisory": True} if advisory else {}
    _record_key_event(session, caller, agent, "agent.key_created", key=key.id, **changes)
    return _view_key(agent, key, shown_key(vault, key))


async def delete_key(
    context: AppContext, caller: Caller, environment: str, agent_id: str, key_id: str
) -> None:
    """Revoke an API key of the agent. The key stops working immediately.

    Raises:
        ApiError: 404 if the agent does not exist or has no valid key with this id.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        key = (await session.exec(select(ApiKey).where(ApiKey.id == key_id, *_valid_keys(agent)))).first()
        if key is None:
            raise not_found("Key")
        key.revoked_at = now(session)
        session.add(key)
        _record_key_event(session, caller, agent, "agent.key_deleted", key=key.id)


async def _find_valid_keys(session: AsyncSession, agent: Agent) -> Sequence[ApiKey]:
    query = (
        select(ApiKey)
        .where(*_valid_keys(agent))
        .order_by(col(ApiKey.created_at).desc(), col(ApiKey.id).desc())
    )
    return (await session.exec(query)).all()


def _valid_keys(agent: Agent) -> tuple[ColumnElement[bool], ...]:
    return valid_keys(agent.organization_id, agent.environment, agent.id)


def _view_key(agent: Agent, key: ApiKey, shown: str | None = None) -> AgentKeyView:
    return AgentKeyView(
        id=key.id,
        agent_id=agent.id,
        api_key=shown or masked_key(key),
        advisory=key.advisory,
        created_at=key.created_at,
        created_by=key.created_by,
    )


def _record_key_event(
    session: AsyncSession, caller: Caller, agent: Agent, kind: str, **changes: object
) -> None:
    audit.record(session, caller, kind, agent.id, environment=agent.environment, changes=changes)
