"""The rules of agents (spec §2-4, decisions §7)."""

from sqlalchemy import bindparam
from sqlmodel import col, delete, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import ADMIN, User
from toolgate_service.agents.models import ACTIVE, INACTIVE, Agent
from toolgate_service.agents.schemas import AgentChange, AgentView, NewAgent
from toolgate_service.approvals.ending import cancel_open
from toolgate_service.audit import service as audit
from toolgate_service.billing.schemas import UsageWarningView
from toolgate_service.billing.usage import warning_at
from toolgate_service.errors import ApiError, PlanLimitExceeded, not_found
from toolgate_service.ids import new_id
from toolgate_service.organizations.keys import revoke_agent_keys
from toolgate_service.organizations.models import Organization
from toolgate_service.permissions.models import Permission
from toolgate_service.plans import UNLIMITED, Plans
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.storage.database import now
from toolgate_service.web.paging import Found, Page, find_page
from toolgate_service.webhooks.kinds import USAGE_WARNING
from toolgate_service.webhooks.outbox import emit

_ONE = select(Agent).where(
    col(Agent.id) == bindparam("id"),
    col(Agent.organization_id) == bindparam("organization_id"),
    col(Agent.environment) == bindparam("environment"),
    col(Agent.deleted_at).is_(None),
)


async def list_agents(session: AsyncSession, caller: Caller, environment: str, page: Page) -> Found[Agent]:
    """Return an environment's agents, newest first."""
    query = select(Agent).where(
        Agent.organization_id == caller.organization_id,
        Agent.environment == environment,
        col(Agent.deleted_at).is_(None),
    )
    return await find_page(session, query, Agent, page)


async def get_agent(session: AsyncSession, caller: Caller, environment: str, agent_id: str) -> Agent:
    """Return one agent.

    Raises:
        ApiError: 404, there is none of that id in the caller's organization and environment.
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
        PlanLimitExceeded: the plan's production agents are used up; inactive ones count.
    """
    warning = await _count_in(session, plans, caller) if environment == PRODUCTION else None
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
    await _tell(session, "agent.created", agent)
    if warning is not None:
        await emit(session, agent.organization_id, environment, USAGE_WARNING, warning)
    return agent


async def change_agent(
    session: AsyncSession, caller: Caller, environment: str, agent_id: str, change: AgentChange
) -> Agent:
    """Change what was sent. Switching an agent off cancels what it was waiting for, for good.

    Raises:
        ApiError: 404 unknown; 403 a member re-activates an agent that an admin switched off.
    """
    agent = await get_agent(session, caller, environment, agent_id)
    if change.status == ACTIVE and agent.status == INACTIVE:
        await _may_switch_on(session, caller, agent)
        agent.status, agent.switched_off_by = ACTIVE, None
    elif change.status == INACTIVE:
        await _switch_off(session, caller, agent)
    if "name" in change.model_fields_set and change.name is not None:
        agent.name = change.name
    if "description" in change.model_fields_set:
        agent.description = change.description
    changes = change.model_dump(exclude_unset=True)
    audit.record(session, caller, "agent.updated", agent.id, environment=environment, changes=changes)
    await _tell(session, "agent.updated", agent)
    return agent


async def delete_agent(session: AsyncSession, caller: Caller, environment: str, agent_id: str) -> None:
    """Remove an agent with its permissions and keys; its log entries stay.

    Raises:
        ApiError: 404 unknown.
    """
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
    await _tell(session, "agent.deleted", agent)


async def _tell(session: AsyncSession, kind: str, agent: Agent) -> None:
    view = AgentView.model_validate(agent, from_attributes=True)
    await emit(session, agent.organization_id, agent.environment, kind, view)


async def _count_in(session: AsyncSession, plans: Plans, caller: Caller) -> UsageWarningView | None:
    """Count one more production agent, and return the warning that it sets off.

    Raises:
        PlanLimitExceeded: there is no room for it.
    """
    # The row is locked before counting, so that parallel creations count one after the other.
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


async def _switch_off(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    # An admin's word takes the place of a member's, and not the other way round.
    if agent.status == ACTIVE or caller.is_admin:
        agent.switched_off_by = caller.user_id
    if agent.status == ACTIVE:
        agent.status = INACTIVE
        await cancel_open(session, agent, "the agent was switched off")


async def _may_switch_on(session: AsyncSession, caller: Caller, agent: Agent) -> None:
    if caller.is_admin or agent.switched_off_by is None:
        return
    switcher = (await session.exec(select(User).where(User.id == agent.switched_off_by))).first()
    if switcher is not None and switcher.role == ADMIN:
        raise ApiError(403, "An admin switched this agent off; ask an admin to switch it on")
