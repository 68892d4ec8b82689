"""The pages of the audit log, its stream, and its files."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.console.live import AS_IT_HAPPENS, EVENTS, Live
from toolgate_service.console.logs.asked import (
    AGENT,
    MOST_TEXT,
    NAMES,
    SPAN,
    SPANS,
    TEXT,
    Asked,
    as_field,
    asked_in,
    typed_in,
)
from toolgate_service.console.logs.entry import whole_entry
from toolgate_service.console.logs.rows import rows_of
from toolgate_service.console.logs.tail import Tail, mark, moment_at
from toolgate_service.console.problems import fields_of
from toolgate_service.console.rendering import show
from toolgate_service.console.safety import HEADERS
from toolgate_service.console.visits import Visit, page, visiting
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.logs.export import MEDIA_TYPES, as_file, export
from toolgate_service.logs.lines import Slice, leaf, newest_ids
from toolgate_service.logs.models import STATUSES
from toolgate_service.logs.searching import search
from toolgate_service.storage.database import now
from toolgate_service.web.paging import Page, page_behind
from toolgate_service.web.replies import NO_STORE
from toolgate_service.web.streams import Stream

LOGS = "/console/logs"
ON_A_PAGE = 50
#: agents that are offered as a filter, the newest
MOST_AGENTS = 100


async def log(visit: Visit) -> Response:
    """Show a page of the log, or what was found in a slice of it."""
    typed = typed_in(visit.request.query_params)
    async with visit.gateway.database.reading() as session:
        moment = now(session)
        agents = await _agents(session, visit, typed[AGENT])
        try:
            asked = asked_in(typed, moment)
            wanted = _page(visit, asked)
            found = await _found(session, visit, asked, wanted)
        except FieldErrors as error:
            return await _refused(visit, typed, agents, error)
    here = {**asked.query}
    live = asked.goes_on and wanted.after is None
    return await show(
        visit,
        "logs.html",
        **_form(asked.typed, agents),
        begins=as_field(asked.filters.begins) if not typed[SPAN] and asked.typed["from"] else "",
        ends=as_field(asked.filters.ends),
        asked=asked,
        rows=rows_of(found.lines),
        found=found,
        wrong={},
        at_the_newest=wanted.after is None,
        further=None if found.last is None else visit.url(LOGS, **here, cursor=wanted.cursor(found.last)),
        events=visit.url(f"{LOGS}/events", **here, since=mark(moment)) if live else None,
    )


async def one_entry(visit: Visit) -> Response:
    """Show an entry with everything about it."""
    found = await whole_entry(visit, visit.request.path_params["entry_id"])
    return await show(visit, "entry.html", one=found)


async def events(request: Request) -> Response:
    """Tell an open page what is written, as it is."""
    visit = await visiting(request)
    since = moment_at(request.query_params.get("since", ""))
    if since is None:
        raise FieldErrors({"since": ["must be microseconds since 1970, as the page has them"]})
    async with visit.gateway.database.reading() as session:
        asked = asked_in(typed_in(request.query_params), now(session))
    live: Live = request.app.state.live
    news = live.news(visit.caller, visit.environment, newest_ids, Tail(visit, asked, since).tell)
    return Stream(news, EVENTS, {**HEADERS, **AS_IT_HAPPENS})


async def as_a_file(visit: Visit) -> Response:
    """Send what the filters let through as a file."""
    named = visit.request.query_params.get("format", "jsonl")
    form = next((one for one in MEDIA_TYPES if one == named), None)
    if form is None:
        raise FieldErrors({"format": [f"there is no {named[:40]!r}; there are {', '.join(MEDIA_TYPES)}"]})
    async with visit.gateway.database.reading() as session:
        asked = asked_in(typed_in(visit.request.query_params), now(session))
    if asked.wanted is not None:
        raise FieldErrors(
            {TEXT: ["is for looking, a slice at a time: a file has all that the other filters say"]}
        )
    parts = export(visit.gateway, visit.caller.organization_id, visit.environment, asked.filters, form)
    return Stream(parts, MEDIA_TYPES[form], {**HEADERS, **NO_STORE, **as_file(visit.environment, form)})


async def _found(session: AsyncSession, visit: Visit, asked: Asked, wanted: Page) -> Slice:
    mine = (session, visit.caller.organization_id, visit.environment, asked.filters)
    if asked.wanted is None:
        return await leaf(*mine, wanted.after, ON_A_PAGE)
    return await search(*mine, asked.wanted, wanted.after, ON_A_PAGE)


async def _refused(
    visit: Visit, typed: Mapping[str, str], agents: Mapping[str, str], error: ApiError
) -> Response:
    """Show what was asked for, and what is wrong with it."""
    return await show(
        visit,
        "logs.html",
        error.status_code,
        **_form(typed, agents),
        begins=typed["from"],
        ends=typed["to"],
        asked=None,
        rows=(),
        found=None,
        wrong=fields_of(error),
        at_the_newest=True,
        further=None,
        events=None,
    )


def _form(typed: Mapping[str, str], agents: Mapping[str, str]) -> dict[str, Any]:
    return {
        "typed": typed,
        "agents": agents,
        "statuses": STATUSES,
        "when": SPANS,
        "names": NAMES,
        "most_text": MOST_TEXT,
        "most_agents": MOST_AGENTS,
    }


def _page(visit: Visit, asked: Asked) -> Page:
    filters = {**asked.query, "environment": visit.environment}
    return page_behind(
        visit.request.query_params.get("cursor") or None,
        LOGS,
        filters.items(),
        visit.caller.organization_id,
        visit.gateway.vault.cursor_keys,
        limit=ON_A_PAGE,
    )


async def _agents(session: AsyncSession, visit: Visit, chosen: str) -> Mapping[str, str]:
    """Return the names of agents to choose from by their ids, and of the chosen one, whether or not it is deleted."""
    mine = select(Agent.id, Agent.name).where(
        Agent.organization_id == visit.caller.organization_id, Agent.environment == visit.environment
    )
    newest = mine.where(col(Agent.deleted_at).is_(None)).order_by(
        col(Agent.created_at).desc(), col(Agent.id).desc()
    )
    found = dict((await session.exec(newest.limit(MOST_AGENTS))).all())
    if chosen and chosen not in found:
        found |= dict((await session.exec(mine.where(Agent.id == chosen))).all())
    return found


ROUTES: Sequence[Route] = (
    Route(LOGS, page(log), methods=["GET"]),
    Route(f"{LOGS}/events", events, methods=["GET"]),
    Route(f"{LOGS}/export", page(as_a_file), methods=["GET"]),
    Route(f"{LOGS}/{{entry_id}}", page(one_entry), methods=["GET"]),
)
