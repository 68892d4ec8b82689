"""How far the first run has come."""

from dataclasses import dataclass

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.console.paging import first_page
from toolgate_service.console.visits import Visit
from toolgate_service.errors import ApiError
from toolgate_service.logs.models import LogEntry
from toolgate_service.permissions import service as permissions
from toolgate_service.permissions.models import Permission


@dataclass(frozen=True, slots=True)
class Arrival:
    """The newest call that has arrived in an environment.

    Attributes:
        action: what was called.
        status: what became of it, as its entry has it; ``pending`` for what waits for a person.
        agent: the agent's name.
    """

    action: str
    status: str
    agent: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it has come.

    Attributes:
        agent: the newest agent, or the one that was asked for.
        permission: its newest one.
        arrival: the newest call.
    """

    agent: Agent | None
    permission: Permission | None
    arrival: Arrival | None


async def progress(session: AsyncSession, visit: Visit) -> Progress:
    """Return how far it has come in a visit's environment."""
    agent = await _agent(session, visit)
    newest = (
        None if agent is None else await permissions.list_permissions(session, agent, first_page(visit, 1))
    )
    permission = newest.rows[0] if newest is not None and newest.rows else None
    return Progress(agent, permission, await arrival(session, visit))


async def has_begun(session: AsyncSession, visit: Visit) -> bool:
    """Say whether any call has arrived in a visit's environment."""
    return await arrival(session, visit) is not None


async def arrival(session: AsyncSession, visit: Visit) -> Arrival | None:
    """Return the newest call that has left something behind: an entry, or a request for approval."""
    where = (visit.caller.organization_id, visit.environment)
    entries = select(LogEntry.action, LogEntry.status, LogEntry.agent_id).where(
        LogEntry.organization_id == where[0], LogEntry.environment == where[1]
    )
    newest = entries.order_by(col(LogEntry.created_at).desc(), col(LogEntry.id).desc()).limit(1)
    found = (await session.exec(newest)).first()
    if found is None:
        asked = select(Approval.action, Approval.agent_id).where(
            Approval.organization_id == where[0], Approval.environment == where[1]
        )
        first = asked.order_by(col(Approval.created_at).desc(), col(Approval.id).desc()).limit(1)
        request = (await session.exec(first)).first()
        if request is None:
            return None
        found = (request[0], PENDING, request[1])
    action, status, agent_id = found
    name = (await session.exec(select(Agent.name).where(Agent.id == agent_id))).one()
    return Arrival(action, status, name)


async def _agent(session: AsyncSession, visit: Visit) -> Agent | None:
    wanted = visit.request.query_params.get("agent")
    if wanted:
        try:
            return await agents.get_agent(session, visit.caller, visit.environment, wanted)
        except ApiError:
            # Deleted meanwhile: the newest takes its place.
            pass
    found = await agents.list_agents(session, visit.caller, visit.environment, first_page(visit, 1))
    return found.rows[0] if found.rows else None
