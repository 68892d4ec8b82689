"""The pages of agents, and their forms."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import AgentView
from toolgate_service.approvals import denials
from toolgate_service.console.agents.terms import (
    new_agent_in,
    new_name_in,
    new_permission_in,
    permission_change_in,
    switch_in,
)
from toolgate_service.console.agents.trying import SUGGESTED
from toolgate_service.console.forms import Form
from toolgate_service.console.paging import page_of
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_admins, by_changers, deed, page
from toolgate_service.errors import ApiError, not_found
from toolgate_service.grants import service as grants
from toolgate_service.permissions import service as permissions
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import PermissionView

AGENTS = "/console/agents"
ON_A_PAGE = 50
#: permissions that an agent's page shows
MOST_PERMISSIONS = 200


async def all_agents(visit: Visit) -> Response:
    """Show the agents, newest first."""
    return await _list(visit)


async def create_agent(visit: Visit, form: Form) -> Response:
    """Register an agent, and lead on to its page."""
    try:
        new = new_agent_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            agent = await agents.create_agent(
                session, visit.gateway.plans, visit.caller, visit.environment, new
            )
            agent_id = agent.id
    except (ApiError, ValidationError) as error:
        return await _list(visit, status_of(error), said=words_of(error), typed=form)
    return RedirectResponse(visit.url(f"{AGENTS}/{agent_id}"), 303)


async def one_agent(visit: Visit) -> Response:
    """Show an agent and all that it may do."""
    return await _page(visit)


async def switch(visit: Visit, form: Form) -> Response:
    """Switch an agent off, which cancels what waits for it, or on again."""
    try:
        change = switch_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            await agents.change_agent(session, visit.caller, visit.environment, _agent_id(visit), change)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return _back(visit)


async def rename(visit: Visit, form: Form) -> Response:
    """Give an agent another name and description."""
    try:
        change = new_name_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            await agents.change_agent(session, visit.caller, visit.environment, _agent_id(visit), change)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return _back(visit)


async def delete(visit: Visit, _form: Form) -> Response:
    """Remove an agent with its permissions and keys; its log entries stay."""
    async with acting(visit.gateway, visit.caller) as session:
        await agents.delete_agent(session, visit.caller, visit.environment, _agent_id(visit))
    return RedirectResponse(visit.url(AGENTS), 303)


async def unblock(visit: Visit, form: Form) -> Response:
    """Let an action be asked about again that was denied again and again."""
    async with acting(visit.gateway, visit.caller) as session:
        agent = await agents.get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        await denials.clear(session, visit.gateway.settings, visit.caller, agent, form["action"])
    return _back(visit)


async def grant(visit: Visit, form: Form) -> Response:
    """Let an agent do an action."""
    try:
        new = new_permission_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            agent = await agents.get_agent(session, visit.caller, visit.environment, _agent_id(visit))
            await permissions.create_permission(session, visit.caller, agent, new)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return _back(visit)


async def change(visit: Visit, form: Form) -> Response:
    """Change the terms of a permission."""
    try:
        terms = permission_change_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            agent = await agents.get_agent(session, visit.caller, visit.environment, _agent_id(visit))
            found = await permissions.find_permission(session, visit.request.path_params["permission_id"])
            await permissions.change_permission(session, visit.caller, _of(found, agent), terms)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return _back(visit)


async def take_away(visit: Visit, _form: Form) -> Response:
    """Take an action from an agent; the very next check is refused."""
    async with acting(visit.gateway, visit.caller) as session:
        agent = await agents.get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        found = await permissions.find_permission(session, visit.request.path_params["permission_id"])
        await permissions.delete_permission(session, visit.caller, _of(found, agent))
    return _back(visit)


async def _list(
    visit: Visit, status: int = 200, *, said: str | None = None, typed: Form | None = None
) -> Response:
    wanted = page_of(visit, ON_A_PAGE)
    async with visit.gateway.database.reading() as session:
        found = await agents.list_agents(session, visit.caller, visit.environment, wanted)
    return await show(
        visit,
        "agents.html",
        status,
        agents=[AgentView.model_validate(one, from_attributes=True) for one in found.rows],
        total=found.total,
        said=said,
        typed=typed or Form([]),
        offset=wanted.offset,
        next_offset=wanted.offset + ON_A_PAGE if found.last else None,
    )


async def _page(
    visit: Visit, status: int = 200, *, said: str | None = None, typed: Form | None = None
) -> Response:
    wanted = page_of(visit, MOST_PERMISSIONS)
    async with visit.gateway.database.reading() as session:
        agent = await agents.get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        found = await permissions.list_permissions(session, agent, wanted)
        actions = sorted(one.action for one in found.rows)
        whose = (agent.organization_id, agent.environment, agent.id)
        blocked = await denials.blocks(session, visit.gateway.settings, whose)
        allowed = await grants.in_force(session, agent, actions)
    return await show(
        visit,
        "agent.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        permissions=sorted(
            (PermissionView.model_validate(one, from_attributes=True) for one in found.rows),
            key=lambda one: one.action,
        ),
        actions=actions[:SUGGESTED],
        blocked=blocked,
        allowed=allowed,
        said=said,
        typed=typed,
        untyped=Form([]),
        offset=wanted.offset,
        next_offset=wanted.offset + MOST_PERMISSIONS if found.last else None,
    )


def _of(permission: Permission, agent: Agent) -> Permission:
    if permission.agent_id != agent.id:
        raise not_found("Permission")
    return permission


def _agent_id(visit: Visit) -> str:
    agent_id: str = visit.request.path_params["agent_id"]
    return agent_id


def _back(visit: Visit) -> Response:
    return RedirectResponse(visit.url(f"{AGENTS}/{_agent_id(visit)}"), 303)


_ONE = f"{AGENTS}/{{agent_id}}"
_PERMISSIONS = f"{_ONE}/permissions"

ROUTES: Sequence[Route] = (
    Route(AGENTS, page(all_agents), methods=["GET"]),
    Route(AGENTS, deed(create_agent, by=by_changers), methods=["POST"]),
    Route(_ONE, page(one_agent), methods=["GET"]),
    Route(f"{_ONE}/switch", deed(switch, by=by_changers), methods=["POST"]),
    Route(f"{_ONE}/name", deed(rename, by=by_changers), methods=["POST"]),
    Route(f"{_ONE}/delete", deed(delete, by=by_changers), methods=["POST"]),
    Route(f"{_ONE}/unblock", deed(unblock, by=by_admins), methods=["POST"]),
    Route(_PERMISSIONS, deed(grant, by=by_admins), methods=["POST"]),
    Route(f"{_PERMISSIONS}/{{permission_id}}", deed(change, by=by_admins), methods=["POST"]),
    Route(f"{_PERMISSIONS}/{{permission_id}}/delete", deed(take_away), methods=["POST"]),
)
