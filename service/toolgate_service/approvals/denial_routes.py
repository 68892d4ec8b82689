"""HTTP for denial blocks: which actions of an agent nobody is asked about for a while (decisions §5)."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, acting
from toolgate_service.agents.service import get_agent
from toolgate_service.approvals import denials
from toolgate_service.approvals.schemas import DenialBlockView
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import Action, EnvironmentName
from toolgate_service.web.replies import NoContent, Reply

router = APIRouter(prefix="/api/agents/{agent_id}/denial-blocks", tags=["approvals"], route_class=StrictRoute)


@router.get("", response_model=list[DenialBlockView], responses=problems(NOT_FOUND))
async def list_denial_blocks(
    agent_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the actions that are blocked because people denied them again and again."""
    async with gateway.database.reading() as session:
        agent = await get_agent(session, caller, environment, agent_id)
        whose = (agent.organization_id, agent.environment, agent.id)
        blocks = await denials.blocks(session, gateway.settings, whose)
    return Reply([DenialBlockView(action=action, blocked_until=until) for action, until in blocks.items()])


@router.delete("", status_code=204, responses=problems(NOT_FOUND))
async def clear_denial_block(
    agent_id: str,
    action: Annotated[Action, Query()],
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Let an action be asked about again, at once."""
    async with acting(gateway, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        await denials.clear(session, gateway.settings, caller, agent, action)
    return NoContent()
