"""HTTP routes of agents and their API keys."""

from typing import Annotated

from fastapi import APIRouter, Path

from toolgate_service.agents import service
from toolgate_service.agents.schemas import AgentChange, AgentKeyView, AgentView, NewAgent, NewAgentKey
from toolgate_service.http.dependencies import (
    AdminCaller,
    AgentIdPath,
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


@router.get("", response_model=list[AgentView], summary="List agents")
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


@router.post(
    "", response_model=AgentView, status_code=201, responses=problems(PLAN_LIMIT), summary="Create an agent"
)
async def create_agent(
    new: NewAgent, caller: ChangingCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create an agent. A new agent is active and has no permissions: only rules can allow its calls.

    The response is 403 if the number of agents of the production environment, including disabled ones, has reached the
    limit of the plan. The test environment has no limit.
    """
    return Reply(await service.create_agent(gateway, caller, environment, new), 201)


@router.get("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND), summary="Get an agent")
async def get_agent(
    agent_id: AgentIdPath, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the agent with this id."""
    async with gateway.database.reading() as session:
        agent = await service.get_agent(session, caller, environment, agent_id)
    return Reply(AgentView.model_validate(agent, from_attributes=True))


@router.put("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND), summary="Change an agent")
async def change_agent(
    agent_id: AgentIdPath,
    change: AgentChange,
    caller: ChangingCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change the name, the description or the status of an agent. Fields that the request omits stay unchanged.

    Disabling an agent cancels its pending and approved requests. Only an admin can enable an agent that an admin has
    disabled; for other users the response is 403.
    """
    return Reply(await service.change_agent(gateway, caller, environment, agent_id, change))


@router.delete("/{agent_id}", status_code=204, responses=problems(NOT_FOUND), summary="Delete an agent")
async def delete_agent(
    agent_id: AgentIdPath,
    caller: ChangingCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete an agent with its permissions and API keys. Its log entries are kept.

    The deletion cannot be undone, and it cancels the pending and approved requests of the agent.
    """
    await service.delete_agent(gateway, caller, environment, agent_id)
    return NoContent()


KeyIdPath = Annotated[str, Path(description="Id of the API key, a UUID; not the key itself.")]

keys_router = APIRouter(prefix="/api/agents/{agent_id}/keys", tags=["agents"], route_class=StrictRoute)


@keys_router.get(
    "",
    response_model=list[AgentKeyView],
    responses=problems(NOT_FOUND),
    summary="List the API keys of an agent",
)
async def list_agent_keys(
    agent_id: AgentIdPath, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the valid API keys of an agent, newest first.

    Admins see the full keys, which the audit log records. Other users see masked keys.
    """
    return Reply(await service.show_keys(gateway, caller, environment, agent_id), headers=NO_STORE)


@keys_router.post(
    "",
    response_model=AgentKeyView,
    status_code=201,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Create an API key for an agent",
)
async def create_agent_key(
    agent_id: AgentIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    new: NewAgentKey | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Create an API key with which only this agent can authenticate. The response is the full key.

    The response is 409 if the agent already has 100 valid keys.
    """
    advisory = new is not None and new.advisory
    made = await service.create_key(gateway, caller, environment, agent_id, advisory=advisory)
    return Reply(made, 201, NO_STORE)


@keys_router.delete(
    "/{key_id}", status_code=204, responses=problems(NOT_FOUND), summary="Revoke an API key of an agent"
)
async def delete_agent_key(
    agent_id: AgentIdPath,
    key_id: KeyIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Revoke an API key of an agent. The key stops working immediately."""
    await service.delete_key(gateway, caller, environment, agent_id, key_id)
    return NoContent()
