"""Pages of the web console that manage agents, their permissions, and API keys that are valid for one agent only."""

from collections.abc import Sequence

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.agents import service as agents
from toolgate_service.agents.schemas import AgentChange, AgentKeyView, AgentView, NewAgent
from toolgate_service.approvals import policy
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    check_not_repeated,
    form_route,
    page_route,
    read_number,
    require_admin,
    require_editor,
    require_key_reader,
)
from toolgate_service.console.queries import load_emails
from toolgate_service.console.simulator import MAX_SUGGESTED_ACTIONS
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core.strict_json import Json
from toolgate_service.grants import repository as grants
from toolgate_service.permissions import service as permissions
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView
from toolgate_service.permissions.service import AgentPath

AGENTS = "/console/agents"
PAGE_SIZE = 50
PERMISSIONS_PAGE_SIZE = 200


def read_new_agent(form: Form) -> NewAgent:
    """Parse the form that creates an agent.

    Raises:
        ValidationError: A field is missing or invalid.
    """
    return NewAgent(name=form["name"], description=form.text("description"))


def read_new_permission(form: Form) -> NewPermission:
    """Parse the form that creates a permission.

    Raises:
        FieldErrors: A numeric field contains text that is not a number.
        ValidationError: Another field is missing or invalid.
    """
    return NewPermission.model_validate({"action": form["action"].strip(), **_terms(form)})


def _terms(form: Form) -> dict[str, Json]:
    maximum = read_number(form, "max_amount")
    # Browsers do not submit unchecked checkboxes, so a missing field means an unchecked checkbox.
    return {
        "requires_approval": "requires_approval" in form,
        "max_amount": maximum,
        "amount_required": maximum is not None and "amount_required" in form,
        "required_approvals": read_number(form, "required_approvals") or 1,
        "separation_of_duties": "separation_of_duties" in form,
    }


async def create_agent(page: PageContext, form: Form) -> Response:
    """Create an agent and redirect to its page."""
    new = read_new_agent(form)
    agent = await agents.create_agent(page.gateway, page.caller, page.environment, new)
    return RedirectResponse(page.url(f"{AGENTS}/{agent.id}"), 303)


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable an agent, or disable it and cancel its pending and approved requests."""
    return await _change_agent(page, AgentChange.model_validate({"status": form["status"]}))


async def rename_agent(page: PageContext, form: Form) -> Response:
    """Change the name and description of an agent."""
    return await _change_agent(page, AgentChange(name=form["name"], description=form.text("description")))


async def _change_agent(page: PageContext, change: AgentChange) -> Response:
    await agents.change_agent(page.gateway, page.caller, page.environment, page.param("agent_id"), change)
    return _redirect_to_agent(page)


async def delete_agent(page: PageContext, _form: Form) -> Response:
    """Delete an agent, its permissions and its API keys. The agent's log entries are kept."""
    await agents.delete_agent(page.gateway, page.caller, page.environment, page.param("agent_id"))
    return RedirectResponse(page.url(AGENTS), 303)


async def unblock_action(page: PageContext, form: Form) -> Response:
    """End the denial block of an agent's action, so that new calls of this action can be approved again.

    The gateway blocks an action of an agent after approvers have repeatedly rejected its calls.
    """
    await agents.clear_denial_block(page.gateway, page.caller, *_agent_path(page), form["action"])
    return _redirect_to_agent(page)


async def create_permission(page: PageContext, form: Form) -> Response:
    """Create a permission for an agent."""
    new = read_new_permission(form)
    await permissions.create_permission(page.gateway, page.caller, *_agent_path(page), new)
    return _redirect_to_agent(page)


async def change_permission(page: PageContext, form: Form) -> Response:
    """Change the terms of a permission to those in the form. The expiry time of its approval requests is unchanged."""
    terms = PermissionChange.model_validate(_terms(form))
    await permissions.change_permission(
        page.gateway, page.caller, page.param("permission_id"), terms, agent=_agent_path(page)
    )
    return _redirect_to_agent(page)


async def delete_permission(page: PageContext, _form: Form) -> Response:
    """Delete a permission. From then on, only a rule can allow the agent the action of the permission."""
    await permissions.delete_permission(
        page.gateway, page.caller, page.param("permission_id"), agent=_agent_path(page)
    )
    return _redirect_to_agent(page)


async def show_agents(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    """Show the page that lists all agents, newest first."""
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


async def show_agent(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    """Show the page of one agent with its permissions."""
    pagination = read_pagination(page, PERMISSIONS_PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        agent = await agents.get_agent(session, page.caller, page.environment, page.param("agent_id"))
        found = await permissions.list_permissions(session, agent, pagination)
        actions = sorted(one.action for one in found.rows)
        key = (agent.organization_id, agent.environment, agent.id)
        blocked = await policy.load_denial_blocks(session, page.gateway.settings, key)
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


def _agent_path(page: PageContext) -> AgentPath:
    return page.environment, page.param("agent_id")


def _redirect_to_agent(page: PageContext) -> Response:
    return RedirectResponse(page.url(f"{AGENTS}/{page.param('agent_id')}"), 303)


async def show_agent_keys(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    whole: Sequence[AgentKeyView] = (),
    made: str | None = None,
) -> Response:
    """Show the page that lists an agent's API keys.

    The page shows the keys in `whole` in full and masks all others.
    """
    async with page.gateway.database.reading() as session:
        agent = await agents.get_agent(session, page.caller, page.environment, page.param("agent_id"))
        found = await agents.list_masked_keys(session, agent)
        makers = await load_emails(session, {one.created_by for one in found if one.created_by})
    return await render_page(
        page,
        "agent_keys.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        keys=found,
        whole={one.id: one.api_key for one in whole if "…" not in one.api_key},
        shown=bool(whole),
        made=made,
        makers=makers,
        newest=found[0].id if found else "",
        most=agents.MAX_KEYS,
        message=message,
    )


async def show_full_agent_keys(page: PageContext, _form: Form) -> Response:
    """Show the page with the agent's API keys in full, and write an audit event about the display."""
    whole = await agents.show_keys(page.gateway, page.caller, *_agent_path(page))
    return await show_agent_keys(page, whole=whole)


async def create_agent_key(page: PageContext, form: Form) -> Response:
    """Create an API key for an agent. The page with the agent's keys then shows the new key in full."""

    async def refuse_repetition(session: AsyncSession) -> None:
        agent = await agents.get_agent(session, page.caller, *_agent_path(page))
        keys = await agents.list_masked_keys(session, agent)
        check_not_repeated(form, keys[0].id if keys else None)

    made = await agents.create_key(
        page.gateway,
        page.caller,
        *_agent_path(page),
        advisory="advisory" in form,
        first=refuse_repetition,
    )
    return await show_agent_keys(page, whole=[made], made=made.id)


async def revoke_agent_key(page: PageContext, _form: Form) -> Response:
    """Revoke an API key of an agent. The key stops working immediately."""
    await agents.delete_key(page.gateway, page.caller, *_agent_path(page), page.param("key_id"))
    return RedirectResponse(page.url(f"{AGENTS}/{page.param('agent_id')}/keys"), 303)


_ONE = f"{AGENTS}/{{agent_id}}"
_KEYS = f"{_ONE}/keys"
_PERMISSIONS = f"{_ONE}/permissions"
_PERMISSION = f"{_PERMISSIONS}/{{permission_id}}"

ROUTES: Sequence[Route] = (
    page_route(AGENTS, show_agents),
    form_route(AGENTS, create_agent, authorize=require_editor, on_error=show_agents, keeps_input=True),
    page_route(_ONE, show_agent),
    form_route(f"{_ONE}/switch", change_status, authorize=require_editor, on_error=show_agent),
    form_route(f"{_ONE}/name", rename_agent, authorize=require_editor, on_error=show_agent),
    form_route(f"{_ONE}/delete", delete_agent, authorize=require_editor),
    form_route(f"{_ONE}/unblock", unblock_action, authorize=require_admin),
    form_route(
        _PERMISSIONS, create_permission, authorize=require_admin, on_error=show_agent, keeps_input=True
    ),
    form_route(_PERMISSION, change_permission, authorize=require_admin, on_error=show_agent),
    form_route(f"{_PERMISSION}/delete", delete_permission),
    page_route(_KEYS, show_agent_keys),
    form_route(_KEYS, create_agent_key, authorize=require_admin, on_error=show_agent_keys),
    form_route(f"{_KEYS}/show", show_full_agent_keys, authorize=require_key_reader),
    form_route(f"{_KEYS}/{{key_id}}/delete", revoke_agent_key, authorize=require_admin),
)
