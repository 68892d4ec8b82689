"""What was allowed for a while: looked at, and ended."""

from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.arguments import ON_A_CARD, laid_out
from toolgate_service.console.forms import Form
from toolgate_service.console.paging import page_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, deed, page
from toolgate_service.console.words import action_in_words
from toolgate_service.exact_json import dumps
from toolgate_service.grants import desk, service

GRANTS = "/console/grants"
ON_A_PAGE = 20


async def grants(visit: Visit) -> Response:
    """Show what was allowed for a while, newest first."""
    wanted = page_of(visit, ON_A_PAGE)
    async with visit.gateway.database.reading() as session:
        found = await service.list_grants(
            session, visit.caller, visit.environment, wanted, status=None, agent_id=None
        )
        views = await service.views(session, found.rows)
    shown = [
        (
            view,
            action_in_words(view.action),
            laid_out(view.context, len(dumps(view.context)), at_most=ON_A_CARD),
        )
        for view in views
    ]
    return await show(
        visit,
        "grants.html",
        grants=shown,
        offset=wanted.offset,
        next_offset=wanted.offset + ON_A_PAGE if found.last else None,
    )


async def revoke(visit: Visit, form: Form) -> Response:
    """End one at once, and lead back to the list, or to its agent's page."""
    grant_id = visit.request.path_params["grant_id"]
    ended = await desk.revoke(visit.gateway, visit.caller, visit.environment, grant_id)
    then = f"/console/agents/{ended.agent_id}" if "then" in form else GRANTS
    return RedirectResponse(visit.url(then), 303)


ROUTES: Sequence[Route] = (
    Route(GRANTS, page(grants), methods=["GET"]),
    Route(f"{GRANTS}/{{grant_id}}/revoke", deed(revoke), methods=["POST"]),
)
