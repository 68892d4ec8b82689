"""Console pages of agents and their permissions."""

from collections.abc import Sequence

from pydantic import JsonValue, ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.sessions import transaction_as
from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import AgentChange, AgentView, NewAgent
from toolgate_service.approvals import denial_blocks
from toolgate_service.console.dependencies import (
    PageContext,
    form_handler,
    page_handler,
    require_admin,
    require_editor,
)
from toolgate_service.console.forms import Form, error_message, error_status, read_number
from toolgate_service.console.simulator import MAX_SUGGESTED_ACTIONS
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.core.strict_json import Json
from toolgate_service.grants import repository as grants
from toolgate_service.permissions import service as permissions
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView

AGENTS = "/console/agents"
PAGE_SIZE = 50
PERMISSIONS_PAGE_SIZE = 200


def read_new_agent(form: Form) -> NewAgent:
    """Convert a submitted form to a new agent.

    Raises:
        ValidationError: The values violate the API's schema.
    """
    return NewAgent(name=form["name"], description=form.text("description"))


def read_status_change(form: Form) -> AgentChange:
    """Convert a submitted form to a change that enables or disables an agent.

    Raises:
        ValidationError: The form's status is unknown.
    """
    asked: JsonValue = form["status"]
    return AgentChange.model_validate({"status": asked})


def read_name_change(form: Form) -> AgentChange:
    """Convert a submitted form to a change of an agent's name and description.

    Raises:
        ValidationError: The values violate the API's schema.
    """
    return AgentChange(name=form["name"], description=form.text("description"))


def read_new_permission(form: Form) -> NewPermission:
    """Convert a submitted form to a new permission.

    Raises:
        FieldErrors: A field that requires a number contains other text.
        ValidationError: The values violate the API's schema.
    """
    return NewPermission.model_validate({"action": form["action"].strip(), **_terms(form)})


def read_permission_change(form: Form) -> PermissionChange:
    """Convert a submitted form to a change of a permission. The change replaces all terms of the permission.

    Raises:
        FieldErrors: A field that requires a number contains other text.
        ValidationError: The values violate the API's schema.
    """
    return PermissionChange.model_validate(_terms(form))


def _terms(form: Form) -> dict[str, Json]:
    maximum = read_number(form, "max_amount")
    # Browsers do not submit unchecked checkboxes, so a missing field means that the checkbox is unchecked.
    return {
        "requires_approval": "requires_approval" in form,
        "max_amount": maximum,
        "amount_required": maximum is not None and "amount_required" in form,
        "required_approvals": read_number(form, "required_approvals") or 1,
        "separation_of_duties": "separation_of_duties" in form,
    }


async def show_agents(page: PageContext) -> Response:
    """Show the list of agents, newest first."""
    return await _render_agents(page)


async def create_agent(page: PageContext, form: Form) -> Response:
    """Create an agent and redirect to its page."""
    try:
        new = read_new_agent(form)
        async with transaction_as(page.gateway, page.caller) as session:
            agent = await agents.create_agent(session, page.gateway.plans, page.caller, page.environment, new)
            agent_id = agent.id
    except (ApiError, ValidationError) as error:
        return await _render_agents(page, error_status(error), message=error_message(error), typed=form)
    return RedirectResponse(page.url(f"{AGENTS}/{agent_id}"), 303)


async def show_agent(page: PageContext) -> Response:
    """Show an agent with its permissions."""
    return await _render_agent(page)


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable an agent, or disable it and cancel its pending approval requests."""
    try:
        change = read_status_change(form)
        await agents.change_agent(page.gateway, page.caller, page.environment, _agent_id(page), change)
    except (ApiError, ValidationError) as error:
        return await _render_agent(page, error_status(error), message=error_message(error))
    return _redirect_to_agent(page)


async def rename_agent(page: PageContext, form: Form) -> Response:
    """Change the name and description of an agent."""
    try:
        change = read_name_change(form)
        await agents.change_agent(page.gateway, page.caller, page.environment, _agent_id(page), change)
    except (ApiError, ValidationError) as error:
        return await _render_agent(page, error_status(error), message=error_message(error))
    return _redirect_to_agent(page)


async def delete_agent(page: PageContext, _form: Form) -> Response:
    """Delete an agent, its permissions and its API keys. The agent's log entries are kept."""
    await agents.delete_agent(page.gateway, page.caller, page.environment, _agent_id(page))
    return RedirectResponse(page.url(AGENTS), 303)


async def unblock_action(page: PageContext, form: Form) -> Response:
    """Unblock an action of an agent that the gateway blocked because approvers rejected it repeatedly."""
    async with transaction_as(page.gateway, page.caller) as session:
        agent = await agents.get_agent(session, page.caller, page.environment, _agent_id(page))
        await denial_blocks.clear_denial_block(
            session, page.gateway.settings, page.caller, agent, form["action"]
        )
    return _redirect_to_agent(page)


async def create_permission(page: PageContext, form: Form) -> Response:
    """Create a permission for an agent."""
    try:
        new = read_new_permission(form)
        async with transaction_as(page.gateway, page.caller) as session:
            agent = await agents.get_agent(session, page.caller, page.environment, _agent_id(page))
            await permissions.create_permission(session, page.caller, agent, new)
    except (ApiError, ValidationError) as error:
        return await _render_agent(page, error_status(error), message=error_message(error), typed=form)
    return _redirect_to_agent(page)


async def change_permission(page: PageContext, form: Form) -> Response:
    """Change the terms of a permission, such as its largest amount."""
    try:
        terms = read_permission_change(form)
        async with transaction_as(page.gateway, page.caller) as session:
            agent = await agents.get_agent(session, page.caller, page.environment, _agent_id(page))
            found = await permissions.find_permission(session, page.request.path_params["permission_id"])
            await permissions.change_permission(session, page.caller, _check_agent(found, agent), terms)
    except (ApiError, ValidationError) as error:
        return await _render_agent(page, error_status(error), message=error_message(error))
    return _redirect_to_agent(page)


async def delete_permission(page: PageContext, _form: Form) -> Response:
    """Delete a permission. The gateway denies further checks of its action immediately."""
    async with transaction_as(page.gateway, page.caller) as session:
        agent = await agents.get_agent(session, page.caller, page.environment, _agent_id(page))
        found = await permissions.find_permission(session, page.request.path_params["permission_id"])
        await permissions.delete_permission(session, page.caller, _check_agent(found, agent))
    return _redirect_to_agent(page)


async def _render_agents(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    pagination = read_pagination(page, PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        found = await agents.list_agents(session, page.caller, page.environment, pagination)
    return await render_page(
        page,
        "agents.html",
        status,
        agents=[AgentView.model_validate(one, from_attributes=True) for one in found.rows],
        total=found.total,
        message=message,
        typed=typed or Form([]),
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last else None,
    )


async def _render_agent(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    pagination = read_pagination(page, PERMISSIONS_PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        agent = await agents.get_agent(session, page.caller, page.environment, _agent_id(page))
        found = await permissions.list_permissions(session, agent, pagination)
        actions = sorted(one.action for one in found.rows)
        whose = (agent.organization_id, agent.environment, agent.id)
        blocked = await denial_blocks.load_denial_blocks(session, page.gateway.settings, whose)
        allowed = await grants.list_active(session, agent, actions)
    return await render_page(
        page,
        "agent.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        permissions=sorted(
            (PermissionView.model_validate(one, from_attributes=True) for one in found.rows),
            key=lambda one: one.action,
        ),
        actions=actions[:MAX_SUGGESTED_ACTIONS],
        blocked=blocked,
        allowed=allowed,
        message=message,
        typed=typed,
        untyped=Form([]),
        offset=pagination.offset,
        next_offset=pagination.offset + PERMISSIONS_PAGE_SIZE if found.last else None,
    )


def _check_agent(permission: Permission, agent: Agent) -> Permission:
    if permission.agent_id != agent.id:
        raise not_found("Permission")
    return permission


def _agent_id(page: PageContext) -> str:
    agent_id: str = page.request.path_params["agent_id"]
    return agent_id


def _redirect_to_agent(page: PageContext) -> Response:
    return RedirectResponse(page.url(f"{AGENTS}/{_agent_id(page)}"), 303)


_ONE = f"{AGENTS}/{{agent_id}}"
_PERMISSIONS = f"{_ONE}/permissions"

ROUTES: Sequence[Route] = (
    Route(AGENTS, page_handler(show_agents), methods=["GET"]),
    Route(AGENTS, form_handler(create_agent, authorize=require_editor), methods=["POST"]),
    Route(_ONE, page_handler(show_agent), methods=["GET"]),
    Route(f"{_ONE}/switch", form_handler(change_status, authorize=require_editor), methods=["POST"]),
    Route(f"{_ONE}/name", form_handler(rename_agent, authorize=require_editor), methods=["POST"]),
    Route(f"{_ONE}/delete", form_handler(delete_agent, authorize=require_editor), methods=["POST"]),
    Route(f"{_ONE}/unblock", form_handler(unblock_action, authorize=require_admin), methods=["POST"]),
    Route(_PERMISSIONS, form_handler(create_permission, authorize=require_admin), methods=["POST"]),
    Route(
        f"{_PERMISSIONS}/{{permission_id}}",
        form_handler(change_permission, authorize=require_admin),
        methods=["POST"],
    ),
    Route(f"{_PERMISSIONS}/{{permission_id}}/delete", form_handler(delete_permission), methods=["POST"]),
)
