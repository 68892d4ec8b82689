"""The keys that act only as one agent: listed masked, shown when asked for, made and revoked."""

from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.agents import key_service
from toolgate_service.agents.key_schemas import AgentKeyView
from toolgate_service.agents.schemas import AgentView
from toolgate_service.agents.service import get_agent
from toolgate_service.console.forms import Form
from toolgate_service.console.inbox.similar import emails
from toolgate_service.console.once import refuse_repeated
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_admins, by_key_readers, deed, page
from toolgate_service.errors import ApiError

KEYS = "/console/agents/{agent_id}/keys"


async def keys(visit: Visit) -> Response:
    """List them masked."""
    return await _page(visit)


async def show_keys(visit: Visit, _form: Form) -> Response:
    """List them whole, which is audited."""
    async with acting(visit.gateway, visit.caller, reads=True) as session:
        agent = await get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        whole = await key_service.list_keys(session, visit.gateway.vault, visit.caller, agent)
    return await _page(visit, whole=whole)


async def create(visit: Visit, form: Form) -> Response:
    """Make one, and show it."""
    try:
        async with acting(visit.gateway, visit.caller) as session:
            agent = await get_agent(session, visit.caller, visit.environment, _agent_id(visit))
            there = await key_service.list_keys(
                session, visit.gateway.vault, visit.caller, agent, whole=False
            )
            refuse_repeated(form, there[0].id if there else None)
            made = await key_service.create_key(session, visit.gateway.vault, visit.caller, agent)
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return await _page(visit, whole=[made], made=made.id)


async def revoke(visit: Visit, _form: Form) -> Response:
    """Revoke one; it stops working at once."""
    async with acting(visit.gateway, visit.caller) as session:
        agent = await get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        await key_service.delete_key(session, visit.caller, agent, visit.request.path_params["key_id"])
    return RedirectResponse(visit.url(f"/console/agents/{agent.id}/keys"), 303)


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    whole: Sequence[AgentKeyView] = (),
    made: str | None = None,
) -> Response:
    async with visit.gateway.database.reading() as session:
        agent = await get_agent(session, visit.caller, visit.environment, _agent_id(visit))
        found = await key_service.list_keys(session, visit.gateway.vault, visit.caller, agent, whole=False)
        makers = await emails(session, {one.created_by for one in found if one.created_by})
    return await show(
        visit,
        "agent_keys.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        keys=found,
        whole={one.id: one.api_key for one in whole if "…" not in one.api_key},
        shown=bool(whole),
        made=made,
        makers=makers,
        newest=found[0].id if found else "",
        most=key_service.MAX_KEYS,
        said=said,
    )


def _agent_id(visit: Visit) -> str:
    agent_id: str = visit.request.path_params["agent_id"]
    return agent_id


ROUTES: Sequence[Route] = (
    Route(KEYS, page(keys), methods=["GET"]),
    Route(KEYS, deed(create, by=by_admins), methods=["POST"]),
    Route(f"{KEYS}/show", deed(show_keys, by=by_key_readers), methods=["POST"]),
    Route(f"{KEYS}/{{key_id}}/delete", deed(revoke, by=by_admins), methods=["POST"]),
)
