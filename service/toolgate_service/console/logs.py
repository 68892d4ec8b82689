"""Console pages of the activity log, the event stream with new log entries, and the export of log entries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.console.dependencies import PageContext, field_errors, load_page_context, page_route
from toolgate_service.console.log_views import (
    AGENT,
    MAX_TEXT_LENGTH,
    NAMES,
    SPAN,
    SPANS,
    TEXT,
    LogQuery,
    build_rows,
    format_for_input,
    load_entry_detail,
    parse_query,
    read_params,
)
from toolgate_service.console.security import HEADERS
from toolgate_service.console.streams import EVENT_STREAM, STREAM_HEADERS, EventStreams, format_event
from toolgate_service.console.templates import render, render_page
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.db.database import now
from toolgate_service.db.health import STORAGE_FAULTS
from toolgate_service.db.pagination import Page, page_behind
from toolgate_service.http.responses import NO_STORE, Stream
from toolgate_service.logs.models import STATUSES
from toolgate_service.logs.repository import LogLine, LogPage, list_newest_ids, list_page
from toolgate_service.logs.schemas import FORMATS, download_headers
from toolgate_service.logs.service import export_entries, search

LOGS = "/console/logs"
PAGE_SIZE = 50
#: Maximum number of agents in the list from which the user selects a filter. The newest agents are listed.
MAX_AGENTS = 100


#: Maximum number of log entries in one server-sent event.
EVENT_SIZE = 50
#: Maximum number of text searches for one server-sent event. Each search scans only a limited number of entries, so
#: several searches may be needed to find `EVENT_SIZE` matching entries.
_MAX_SEARCHES = 10
#: Time by which each read of new log entries overlaps the previous read. The overlap finds entries that were committed
#: late: if several gateways write log entries, the page may already have received an entry with a later timestamp.
_OVERLAP = timedelta(seconds=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class LogTail:
    """Reader of new log entries that match the filters of one open console page.

    Args:
        page: Request with which the page opened its event stream.
        query: Filters of the page.
        since: Time from which on entries count as new.
    """

    def __init__(self, page: PageContext, query: LogQuery, since: datetime) -> None:
        self._page = page
        self._query = query
        self._from = since
        self._sent: dict[str, datetime] = {}

    async def make_event(self, _state: object) -> bytes | None:
        """Return an event with the matching log entries that are new since the previous event; None if none are."""
        try:
            async with self._page.gateway.database.reading() as session:
                found = await self._read(session)
        except STORAGE_FAULTS:
            # The database is unavailable. Send nothing now: the first event after the outage contains the entries that
            # are missing.
            return None
        fresh = [line for line in found.lines if line.id not in self._sent]
        if not fresh:
            return None
        # An event contains at most `EVENT_SIZE` matching entries, newest first. If all of them are new and further
        # entries match, some of the further entries may also be new. `missed` is then True, because the browser may not
        # receive them.
        missed = found.last is not None and len(fresh) == len(found.lines)
        self._remember(fresh)
        html = render(
            "part_log_rows.html", page=self._page, query=self._query, rows=build_rows(fresh), missed=missed
        )
        return format_event("entries", {"count": len(fresh), "rows": html})

    async def _read(self, session: AsyncSession) -> LogPage:
        begins = self._query.filters.begins
        filters = replace(self._query.filters, begins=max(begins, self._from) if begins else self._from)
        scope = (session, self._page.caller.organization_id, self._page.environment, filters)
        if self._query.matcher is None:
            return await list_page(*scope, None, EVENT_SIZE)
        lines: list[LogLine] = []
        after = None
        for _ in range(_MAX_SEARCHES):
            found = await search(*scope, self._query.matcher, after, EVENT_SIZE - len(lines))
            lines += found.lines
            after = found.last
            if after is None or len(lines) == EVENT_SIZE:
                break
        return LogPage(lines, after)

    def _remember(self, fresh: Sequence[LogLine]) -> None:
        self._sent |= {line.id: line.created_at for line in fresh}
        self._from = max(self._from, max(self._sent.values()) - _OVERLAP)
        self._sent = {one: moment for one, moment in self._sent.items() if moment >= self._from}


def encode_moment(moment: datetime) -> int:
    """Return the value of the ``since`` parameter for an event stream that starts 10 seconds before `moment`.

    The value is in microseconds since the Unix epoch. Because of the early start, the stream also contains log entries
    from before `moment` that are committed after it.
    """
    return (moment - _OVERLAP - _EPOCH) // _MICROSECOND


def decode_moment(since: str) -> datetime | None:
    """Return the time in a ``since`` parameter, which `encode_moment` has created; None if the parameter is invalid."""
    if not (since.isascii() and since.isdecimal()):
        return None
    try:
        return _EPOCH + int(since) * _MICROSECOND
    except (OverflowError, ValueError):
        return None


async def show_log(page: PageContext) -> Response:
    """Show the activity log: one page of the entries that match the filters, or the first matches of a text search."""
    typed = read_params(page.request.query_params)
    async with page.gateway.database.reading() as session:
        moment = now(session)
        agents = await list_agents(session, page, typed[AGENT])
        try:
            query = parse_query(typed, moment)
            cursor_page = _read_cursor(page, query)
            found = await _load_page(session, page, query, cursor_page)
        except FieldErrors as error:
            return await _render_refused(page, typed, agents, error)
    here = {**query.params}
    live = query.is_open_ended and cursor_page.after is None
    return await render_page(
        page,
        "logs.html",
        **_form_values(query.typed, agents),
        begins=format_for_input(query.filters.begins) if not typed[SPAN] and query.typed["from"] else "",
        ends=format_for_input(query.filters.ends),
        query=query,
        rows=build_rows(found.lines),
        found=found,
        wrong={},
        at_the_newest=cursor_page.after is None,
        further=None if found.last is None else page.url(LOGS, **here, cursor=cursor_page.cursor(found.last)),
        events=page.url(f"{LOGS}/events", **here, since=encode_moment(moment)) if live else None,
    )


async def show_entry(page: PageContext) -> Response:
    """Show the page of one log entry with all its arguments."""
    found = await load_entry_detail(page, page.param("entry_id"))
    return await render_page(page, "entry.html", one=found)


async def stream_events(request: Request) -> Response:
    """Send new log entries to an open log page as server-sent events."""
    page = await load_page_context(request)
    since = decode_moment(request.query_params.get("since", ""))
    if since is None:
        raise FieldErrors({"since": ["must be a time in microseconds since 1970; reload the page"]})
    async with page.gateway.database.reading() as session:
        query = parse_query(read_params(request.query_params), now(session))
    live: EventStreams = request.app.state.live
    events = live.subscribe(
        page.caller, page.environment, list_newest_ids, LogTail(page, query, since).make_event
    )
    return Stream(events, EVENT_STREAM, {**HEADERS, **STREAM_HEADERS})


async def export_log(page: PageContext) -> Response:
    """Return a file for download with the log entries that match the filters."""
    named = page.request.query_params.get("format", "jsonl")
    form = next((one for one in FORMATS if one == named), None)
    if form is None:
        raise FieldErrors(
            {"format": [f"unknown format {named[:40]!r}: expected one of {', '.join(FORMATS)}"]}
        )
    async with page.gateway.database.reading() as session:
        query = parse_query(read_params(page.request.query_params), now(session))
    if query.matcher is not None:
        raise FieldErrors(
            {TEXT: ["cannot be used for an export; remove the text and filter by other fields"]}
        )
    parts = export_entries(page.gateway, page.caller.organization_id, page.environment, query.filters, form)
    return Stream(
        parts, FORMATS[form].media_type, {**HEADERS, **NO_STORE, **download_headers(page.environment, form)}
    )


async def _load_page(session: AsyncSession, page: PageContext, query: LogQuery, cursor_page: Page) -> LogPage:
    scope = (session, page.caller.organization_id, page.environment, query.filters)
    if query.matcher is None:
        return await list_page(*scope, cursor_page.after, PAGE_SIZE)
    return await search(*scope, query.matcher, cursor_page.after, PAGE_SIZE)


async def _render_refused(
    page: PageContext, typed: Mapping[str, str], agents: Mapping[str, str], error: ApiError
) -> Response:
    """Show the log page with the filters that the user entered and an error message for each invalid filter."""
    return await render_page(
        page,
        "logs.html",
        error.status_code,
        **_form_values(typed, agents),
        begins=typed["from"],
        ends=typed["to"],
        query=None,
        rows=(),
        found=None,
        wrong=field_errors(error),
        at_the_newest=True,
        further=None,
        events=None,
    )


def _form_values(typed: Mapping[str, str], agents: Mapping[str, str]) -> dict[str, Any]:
    return {
        "typed": typed,
        "agents": agents,
        "statuses": STATUSES,
        "when": SPANS,
        "names": NAMES,
        "most_text": MAX_TEXT_LENGTH,
        "most_agents": MAX_AGENTS,
    }


def _read_cursor(page: PageContext, query: LogQuery) -> Page:
    filters = {**query.params, "environment": page.environment}
    return page_behind(
        page.request.query_params.get("cursor") or None,
        LOGS,
        filters.items(),
        page.caller.organization_id,
        page.gateway.vault.cursor_keys,
        limit=PAGE_SIZE,
    )


async def list_agents(session: AsyncSession, page: PageContext, chosen: str) -> Mapping[str, str]:
    """Return names by agent id for the list from which the user selects an agent as a filter.

    The list contains the newest agents, and the selected agent even if it is older or deleted.
    """
    agents = select(Agent.id, Agent.name).where(
        Agent.organization_id == page.caller.organization_id, Agent.environment == page.environment
    )
    newest = agents.where(col(Agent.deleted_at).is_(None)).order_by(
        col(Agent.created_at).desc(), col(Agent.id).desc()
    )
    found = dict((await session.exec(newest.limit(MAX_AGENTS))).all())
    if chosen and chosen not in found:
        found |= dict((await session.exec(agents.where(Agent.id == chosen))).all())
    return found


ROUTES: Sequence[Route] = (
    page_route(LOGS, show_log),
    Route(f"{LOGS}/events", stream_events, methods=["GET"]),
    page_route(f"{LOGS}/export", export_log),
    page_route(f"{LOGS}/{{entry_id}}", show_entry),
)
