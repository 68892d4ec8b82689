"""HTTP for keys that act only as one agent (decisions §3)."""

from fastapi import APIRouter

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, acting
from toolgate_service.agents import key_service
from toolgate_service.agents.key_schemas import AgentKeyView
from toolgate_service.agents.service import get_agent
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import CONFLICT, NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.replies import NO_STORE, NoContent, Reply

router = APIRouter(prefix="/api/agents/{agent_id}/keys", tags=["agents"], route_class=StrictRoute)


@router.get("", response_model=list[AgentKeyView], responses=problems(NOT_FOUND))
async def list_agent_keys(
    agent_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return an agent's own keys, newest first: whole for admins, which is audited, and masked for others."""
    async with acting(gateway, caller, reads=True) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        keys = await key_service.list_keys(session, gateway.vault, caller, agent)
    return Reply(keys, headers=NO_STORE)


@router.post("", response_model=AgentKeyView, status_code=201, responses=problems(NOT_FOUND, CONFLICT))
async def create_agent_key(
    agent_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Make a key that acts only as this agent."""
    async with acting(gateway, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        key = await key_service.create_key(session, gateway.vault, caller, agent)
    return Reply(key, 201, NO_STORE)


@router.delete("/{key_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_agent_key(
    agent_id: str,
    key_id: str,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Revoke one of an agent's keys; it stops working at once."""
    async with acting(gateway, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        await key_service.delete_key(session, caller, agent, key_id)
    return NoContent()
