"""The page that leads to the first guarded call, and its forms."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.agents import service as agents
from toolgate_service.console.agents.terms import new_agent_in, new_permission_in
from toolgate_service.console.forms import Form
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import part, show
from toolgate_service.console.start.finding import Progress, arrival, progress
from toolgate_service.console.start.snippet import Snippet
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.organizations import keys
from toolgate_service.organizations import service as organizations
from toolgate_service.permissions import service as permissions

START = "/console/start"

#: what the form has before anybody has typed: one press makes an agent that may do something
SUGGESTED = Form(
    [
        ("name", "refund-bot"),
        ("action", "stripe.refund"),
        ("max_amount", "100"),
        ("amount_required", "on"),
    ]
)


async def start(visit: Visit) -> Response:
    """Show how far it has come, and what comes next."""
    return await _page(visit)


async def begin(visit: Visit, form: Form) -> Response:
    """Create an agent and permit it an action, both or neither."""
    try:
        new, may = new_agent_in(form), new_permission_in(form)
        async with acting(visit.gateway, visit.caller) as session:
            agent = await agents.create_agent(
                session, visit.gateway.plans, visit.caller, visit.environment, new
            )
            # The permission's row names the agent's.
            await session.flush()
            await permissions.create_permission(session, visit.caller, agent, may)
            agent_id = agent.id
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return RedirectResponse(visit.url(START, agent=agent_id), 303)


async def show_key(visit: Visit, _form: Form) -> Response:
    """Show the lines with the key in them, which is audited; without lines there is nothing to show it in."""
    async with visit.gateway.database.reading() as session:
        found = await progress(session, visit)
    if found.permission is None:
        return await _page(visit)
    async with acting(visit.gateway, visit.caller) as session:
        shown = await organizations.key_view(session, visit.gateway.vault, visit.caller, visit.environment)
    answer = await _page(visit, api_key=shown.api_key)
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def arrived(visit: Visit) -> Response:
    """Return, for our own script, whether the first call has arrived."""
    async with visit.gateway.database.reading() as session:
        found = await arrival(session, visit)
    return part("part_arrival.html", visit=visit, arrival=found)


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    typed: Form = SUGGESTED,
    api_key: str | None = None,
) -> Response:
    async with visit.gateway.database.reading() as session:
        found = await progress(session, visit)
        key = await keys.organization_key(session, visit.caller.organization_id, visit.environment)
    masked = keys.masked_key(key)
    return await show(
        visit,
        "start.html",
        status,
        agent=found.agent,
        permission=found.permission,
        arrival=found.arrival,
        snippet=_snippet(visit, found, api_key or masked),
        # A key that was sealed under a secret that is gone comes masked: such lines would not work.
        key_is_shown=api_key not in {None, masked},
        key_is_unreadable=api_key == masked,
        said=said,
        typed=typed,
    )


def _snippet(visit: Visit, found: Progress, api_key: str) -> Snippet | None:
    if found.agent is None or found.permission is None:
        return None
    return Snippet(
        url=(visit.gateway.settings.public_url or str(visit.request.base_url)).rstrip("/"),
        api_key=api_key,
        agent_id=found.agent.id,
        action=found.permission.action,
        max_amount=found.permission.max_amount,
        held=found.permission.requires_approval,
    )


ROUTES: Sequence[Route] = (
    Route(START, page(start), methods=["GET"]),
    Route(START, deed(begin, by=by_admins), methods=["POST"]),
    # Where the answer to the form below leads on to: reloaded, or seen in the other environment.
    Route(f"{START}/key", page(start), methods=["GET"]),
    Route(f"{START}/key", deed(show_key, by=by_admins), methods=["POST"]),
    Route(f"{START}/arrived", page(arrived), methods=["GET"]),
)
