"""HTTP routes of agents and their API keys."""

from fastapi import APIRouter

from toolgate_service.agents import service
from toolgate_service.agents.schemas import AgentChange, AgentKeyView, AgentView, NewAgent
from toolgate_service.http.dependencies import (
    AdminCaller,
    AnyCaller,
    ChangingCaller,
    EnvironmentName,
    GatewayDep,
    WholeOrPageDep,
)
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, PLAN_LIMIT, problems
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/agents", tags=["agents"], route_class=StrictRoute)


@router.get("", response_model=list[AgentView])
async def list_agents(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: WholeOrPageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the agents of an environment, newest first. Without the parameter `limit`, all agents are returned."""
    async with gateway.database.reading() as session:
        found = await service.list_agents(session, caller, environment, page)
    agents = [AgentView.model_validate(agent, from_attributes=True) for agent in found.rows]
    return Reply(agents, headers=page.headers(found))


@router.post("", response_model=AgentView, status_code=201, responses=problems(PLAN_LIMIT))
async def create_agent(
    new: NewAgent, caller: ChangingCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create an agent. A new agent is active and has no permissions."""
    return Reply(await service.create_agent(gateway, caller, environment, new), 201)


@router.get("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND))
async def get_agent(
    agent_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the agent with this id."""
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
    """Change the name, the description or the status of an agent."""
    return Reply(await service.change_agent(gateway, caller, environment, agent_id, change))


@router.delete("/{agent_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_agent(
    agent_id: str, caller: ChangingCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """Delete an agent with its permissions and API keys. Its log entries are kept."""
    await service.delete_agent(gateway, caller, environment, agent_id)
    return NoContent()


keys_router = APIRouter(prefix="/api/agents/{agent_id}/keys", tags=["agents"], route_class=StrictRoute)


@keys_router.get("", response_model=list[AgentKeyView], responses=problems(NOT_FOUND))
async def list_agent_keys(
    agent_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the valid API keys of an agent, newest first.

    Admins see the full keys, which the audit log records. Other users see masked keys.
    """
    return Reply(await service.show_keys(gateway, caller, environment, agent_id), headers=NO_STORE)


@keys_router.post("", response_model=AgentKeyView, status_code=201, responses=problems(NOT_FOUND, CONFLICT))
async def create_agent_key(
    agent_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create an API key with which only this agent can authenticate."""
    return Reply(await service.create_key(gateway, caller, environment, agent_id), 201, NO_STORE)


@keys_router.delete("/{key_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_agent_key(
    agent_id: str,
    key_id: str,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Revoke an API key of an agent. The key stops working immediately."""
    await service.delete_key(gateway, caller, environment, agent_id, key_id)
    return NoContent()
