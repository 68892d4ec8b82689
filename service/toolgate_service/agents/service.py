"""Agents: listing, creation, changes and deletion."""

from sqlalchemy import bindparam
from sqlmodel import col, delete, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import ADMIN, User
from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.agents.models import ACTIVE, INACTIVE, Agent
from toolgate_service.agents.schemas import AgentChange, AgentView, NewAgent
from toolgate_service.approvals.service import cancel_open
from toolgate_service.audit import service as audit
from toolgate_service.billing.schemas import UsageWarningView
from toolgate_service.billing.service import warning_at
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import UNLIMITED, Plans
from toolgate_service.db.database import now
from toolgate_service.db.models import PRODUCTION
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.organizations.keys import revoke_agent_keys
from toolgate_service.organizations.models import Organization
from toolgate_service.permissions.models import Permission
from toolgate_service.webhooks.events import USAGE_WARNING, emit

_ONE = select(Agent).where(
    col(Agent.id) == bindparam("id"),
    col(Agent.organization_id) == bindparam("organization_id"),
    col(Agent.environment) == bindparam("environment"),
    col(Agent.deleted_at).is_(None),
)


async def list_agents(session: AsyncSession, caller: Caller, environment: str, page: Page) -> Found[Agent]:
    """Return the agents of an environment, newest first."""
    query = select(Agent).where(
        Agent.organization_id == caller.organization_id,
        Agent.environment == environment,
        col(Agent.deleted_at).is_(None),
    )
    return await find_page(session, query, Agent, page)


async def get_agent(session: AsyncSession, caller: Caller, environment: str, agent_id: str) -> Agent:
    """Return one agent.

    Raises:
        ApiError: 404 if the caller's organization has no such agent in the environment.
    """
    values = {"id": agent_id, "organization_id": caller.organization_id, "environment": environment}
    agent = (await session.exec(_ONE, params=values)).first()
    if agent is None:
        raise not_found("Agent")
    return agent


async def create_agent(
    session: AsyncSession, plans: Plans, caller: Caller, environment: str, new: NewAgent
) -> Agent:
    """Create an active agent.

    Raises:
        PlanLimitExceeded: The plan allows no further production agents; inactive agents count.
    """
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
    return agent


async def change_agent(
    context: AppContext, caller: Caller, environment: str, agent_id: str, change: AgentChange
) -> AgentView:
    """Change the fields that the request contains. Disabling an agent cancels its pending approval requests.

    Raises:
        ApiError: 404 if there is no such agent; 403 if a member enables an agent that an admin disabled.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
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
        audit.record(session, caller, "agent.updated", agent.id, environment=environment, changes=changes)
        await _emit(session, "agent.updated", agent)
        return AgentView.model_validate(agent, from_attributes=True)


async def delete_agent(context: AppContext, caller: Caller, environment: str, agent_id: str) -> None:
    """Delete an agent with its permissions and keys; its log entries stay.

    Raises:
        ApiError: 404 if there is no such agent.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        await cancel_open(session, agent, "the agent was deleted")
        await session.exec(
            delete(Permission).where(
                col(Permission.organization_id) == agent.organization_id,
                col(Permission.environment) == agent.environment,
                col(Permission.agent_id) == agent.id,
            )
        )
        await revoke_agent_keys(session, agent.organization_id, agent.environment, agent.id)
        agent.deleted_at = now(session)
        audit.record(
            session, caller, "agent.deleted", agent.id, environment=environment, changes={"name": agent.name}
        )
        await _emit(session, "agent.deleted", agent)


async def _emit(session: AsyncSession, kind: str, agent: Agent) -> None:
    view = AgentView.model_validate(agent, from_attributes=True)
    await emit(session, agent.organization_id, agent.environment, kind, view)


async def _count_production_agent(
    session: AsyncSession, plans: Plans, caller: Caller
) -> UsageWarningView | None:
    """Require that the plan allows one more production agent. Return the usage warning that the new agent triggers.

    Raises:
        PlanLimitExceeded: The plan allows no further production agents.
    """
    # Lock the organization's row, so that concurrent requests cannot exceed the limit together.
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
    # If the agent is disabled already, only an admin replaces the stored user. Otherwise a member could replace an
    # admin and then enable the agent.
    if agent.status == ACTIVE or caller.is_admin:
        agent.switched_off_by = caller.user_id
    if agent.status == ACTIVE:
        agent.status = INACTIVE
        await cancel_open(session, agent, "the agent was switched off")


async def _require_may_enable(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    if caller.is_admin or agent.switched_off_by is None:
        return
    disabled_by = (await session.exec(select(User).where(User.id == agent.switched_off_by))).first()
    if disabled_by is not None and disabled_by.role == ADMIN:
        raise ApiError(403, "An admin switched this agent off; ask an admin to switch it on")
