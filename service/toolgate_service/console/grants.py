"""Console page of temporary approvals (`grants` in the API)."""

from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.arguments import MAX_CARD_LENGTH, lay_out
from toolgate_service.console.dependencies import PageContext, form_handler, page_handler
from toolgate_service.console.filters import describe_action
from toolgate_service.console.forms import Form
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core.strict_json import dumps
from toolgate_service.grants import repository, service
from toolgate_service.grants.schemas import serialize_grants

GRANTS = "/console/grants"
PAGE_SIZE = 20


async def show_grants(page: PageContext) -> Response:
    """Show the list of temporary approvals, newest first."""
    pagination = read_pagination(page, PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        found = await repository.list_grants(
            session, page.caller, page.environment, pagination, status=None, agent_id=None
        )
        views = await serialize_grants(session, found.rows)
    shown = [
        (
            view,
            describe_action(view.action),
            lay_out(view.context, len(dumps(view.context)), at_most=MAX_CARD_LENGTH),
        )
        for view in views
    ]
    return await render_page(
        page,
        "grants.html",
        grants=shown,
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last else None,
    )


async def revoke_grant(page: PageContext, form: Form) -> Response:
    """Revoke a temporary approval, and redirect to the page that contained the form: the list or the agent's page."""
    grant_id = page.request.path_params["grant_id"]
    ended = await service.revoke(page.gateway, page.caller, page.environment, grant_id)
    then = f"/console/agents/{ended.agent_id}" if "then" in form else GRANTS
    return RedirectResponse(page.url(then), 303)


ROUTES: Sequence[Route] = (
    Route(GRANTS, page_handler(show_grants), methods=["GET"]),
    Route(f"{GRANTS}/{{grant_id}}/revoke", form_handler(revoke_grant), methods=["POST"]),
)
