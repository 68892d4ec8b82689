"""Console pages of agent keys: API keys that are valid for one agent only."""

from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.sessions import transaction_as
from toolgate_service.agents import keys as agent_keys
from toolgate_service.agents.schemas import AgentKeyView, AgentView
from toolgate_service.agents.service import get_agent
from toolgate_service.console.dependencies import (
    PageContext,
    form_handler,
    page_handler,
    require_admin,
    require_key_reader,
)
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.queries import load_emails
from toolgate_service.console.security import check_not_repeated
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import ApiError

KEYS = "/console/agents/{agent_id}/keys"


async def show_masked_keys(page: PageContext) -> Response:
    """Show the agent's API keys in masked form."""
    return await _render_keys(page)


async def show_keys(page: PageContext, _form: Form) -> Response:
    """Show the agent's API keys in full. The audit log records this."""
    async with transaction_as(page.gateway, page.caller, reads=True) as session:
        agent = await get_agent(session, page.caller, page.environment, _agent_id(page))
        whole = await agent_keys.list_keys(session, page.gateway.vault, page.caller, agent)
    return await _render_keys(page, whole=whole)


async def create_key(page: PageContext, form: Form) -> Response:
    """Create an API key for an agent and show the key in full."""
    try:
        async with transaction_as(page.gateway, page.caller) as session:
            agent = await get_agent(session, page.caller, page.environment, _agent_id(page))
            there = await agent_keys.list_keys(session, page.gateway.vault, page.caller, agent, whole=False)
            check_not_repeated(form, there[0].id if there else None)
            made = await agent_keys.create_key(session, page.gateway.vault, page.caller, agent)
    except ApiError as error:
        return await _render_keys(page, error_status(error), message=error_message(error))
    return await _render_keys(page, whole=[made], made=made.id)


async def revoke_key(page: PageContext, _form: Form) -> Response:
    """Revoke an API key of an agent. The key stops working immediately."""
    async with transaction_as(page.gateway, page.caller) as session:
        agent = await get_agent(session, page.caller, page.environment, _agent_id(page))
        await agent_keys.delete_key(session, page.caller, agent, page.request.path_params["key_id"])
    return RedirectResponse(page.url(f"/console/agents/{agent.id}/keys"), 303)


async def _render_keys(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    whole: Sequence[AgentKeyView] = (),
    made: str | None = None,
) -> Response:
    async with page.gateway.database.reading() as session:
        agent = await get_agent(session, page.caller, page.environment, _agent_id(page))
        found = await agent_keys.list_keys(session, page.gateway.vault, page.caller, agent, whole=False)
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
        most=agent_keys.MAX_KEYS,
        message=message,
    )


def _agent_id(page: PageContext) -> str:
    agent_id: str = page.request.path_params["agent_id"]
    return agent_id


ROUTES: Sequence[Route] = (
    Route(KEYS, page_handler(show_masked_keys), methods=["GET"]),
    Route(KEYS, form_handler(create_key, authorize=require_admin), methods=["POST"]),
    Route(f"{KEYS}/show", form_handler(show_keys, authorize=require_key_reader), methods=["POST"]),
    Route(f"{KEYS}/{{key_id}}/delete", form_handler(revoke_key, authorize=require_admin), methods=["POST"]),
)
