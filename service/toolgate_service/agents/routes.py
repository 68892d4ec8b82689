"""HTTP for agents (spec §4)."""

from fastapi import APIRouter

from toolgate_service.accounts.caller import AnyCaller, ChangingCaller, acting
from toolgate_service.agents import service
from toolgate_service.agents.schemas import AgentChange, AgentView, NewAgent
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import NOT_FOUND, PLAN_LIMIT, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import WholeOrPageDep
from toolgate_service.web.replies import NoContent, Reply

router = APIRouter(prefix="/api/agents", tags=["agents"], route_class=StrictRoute)


@router.get("", response_model=list[AgentView])
async def list_agents(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: WholeOrPageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return agents, newest first: all of them unless `limit` is sent."""
    async with gateway.database.reading() as session:
        found = await service.list_agents(session, caller, environment, page)
    agents = [AgentView.model_validate(agent, from_attributes=True) for agent in found.rows]
    return Reply(agents, headers=page.headers(found))


@router.post("", response_model=AgentView, status_code=201, responses=problems(PLAN_LIMIT))
async def create_agent(
    new: NewAgent, caller: ChangingCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Register an agent; it starts active and may do nothing."""
    async with acting(gateway, caller) as session:
        agent = await service.create_agent(session, gateway.plans, caller, environment, new)
    return Reply(AgentView.model_validate(agent, from_attributes=True), 201)


@router.get("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND))
async def get_agent(
    agent_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one agent."""
    async with gateway.database.reading() as session:
        agent = await service.get_agent(session, caller, environment, agent_id)
    return Reply(AgentView.model_validate(agent, from_attributes=True))


@router.put("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND))
async def change_agent(
    agent_id: str,
    change: AgentChange,
    caller: ChangingCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Rename, describe, switch off or switch on an agent."""
    async with acting(gateway, caller) as session:
        agent = await service.change_agent(session, caller, environment, agent_id, change)
    return Reply(AgentView.model_validate(agent, from_attributes=True))


@router.delete("/{agent_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_agent(
    agent_id: str, caller: ChangingCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """Remove an agent, its permissions and its keys for good; its log entries stay."""
    async with acting(gateway, caller) as session:
        await service.delete_agent(session, caller, environment, agent_id)
    return NoContent()
