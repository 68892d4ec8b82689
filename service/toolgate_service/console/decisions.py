"""Console pages of the decision log: the filtered list, one decision, and the export."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.approvals.models import Approval
from toolgate_service.console.dependencies import PageContext, field_errors, page_route
from toolgate_service.console.log_views import FROM, TO, format_for_input, parse_moment
from toolgate_service.console.logs import MAX_AGENTS, list_agents
from toolgate_service.console.security import HEADERS
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import FieldErrors
from toolgate_service.db.pagination import Page, page_behind
from toolgate_service.decisions.models import OUTCOMES, Decision
from toolgate_service.decisions.repository import Filters, get_decision, list_page
from toolgate_service.decisions.service import export_decisions, load_views
from toolgate_service.http.responses import NO_STORE, Stream
from toolgate_service.logs.schemas import FORMATS, download_headers
from toolgate_service.organizations.models import ApiKey
from toolgate_service.organizations.repository import masked_key
from toolgate_service.rules.models import Rule

DECISIONS = "/console/decisions"
PAGE_SIZE = 50

AGENT, ACTION, OUTCOME, REASON, RUN, RULE = (
    "agent_id",
    "action",
    "outcome",
    "reason_code",
    "run_id",
    "rule_id",
)
NAMES = (AGENT, ACTION, OUTCOME, REASON, RUN, RULE, FROM, TO)


def read_filters(typed: Mapping[str, str]) -> Filters:
    """Parse the filter parameters of the page's URL.

    Raises:
        FieldErrors: At least one parameter is invalid. The error contains the messages of all invalid parameters.
    """
    wrong: dict[str, list[str]] = {}
    begins, ends = (parse_moment(typed[name], name, wrong) for name in (FROM, TO))
    if begins is not None and ends is not None and ends <= begins:
        wrong.setdefault(TO, []).append("must be later than 'from'")
    if typed[OUTCOME] and typed[OUTCOME] not in OUTCOMES:
        unknown = f"unknown outcome {typed[OUTCOME][:40]!r}: expected one of {', '.join(OUTCOMES)}"
        wrong.setdefault(OUTCOME, []).append(unknown)
    if wrong:
        raise FieldErrors(wrong)
    values = {name: typed[name] or None for name in (AGENT, ACTION, OUTCOME, REASON, RUN, RULE)}
    return Filters(**values, begins=begins, ends=ends)


async def show_decisions(page: PageContext) -> Response:
    """Show one page of the decisions that match the filters, newest first."""
    typed = {name: page.request.query_params.get(name, "").strip() for name in NAMES}
    params = {name: value for name, value in typed.items() if value}
    async with page.gateway.database.reading() as session:
        agents = await list_agents(session, page, typed[AGENT])
        try:
            filters = read_filters(typed)
            cursor_page = _read_cursor(page, params)
            found = await list_page(
                session, page.caller.organization_id, page.environment, filters, cursor_page
            )
        except FieldErrors as error:
            return await _render(
                page, typed, agents, error.status_code, begins=typed[FROM], ends=typed[TO], error=error
            )
        views = await load_views(session, found.rows)
    last = found.last
    return await _render(
        page,
        typed,
        agents,
        begins=format_for_input(filters.begins),
        ends=format_for_input(filters.ends),
        rows=views,
        params=params,
        at_the_newest=cursor_page.after is None,
        further=None if last is None else page.url(DECISIONS, **params, cursor=cursor_page.cursor(last)),
    )


async def _render(
    page: PageContext,
    typed: Mapping[str, str],
    agents: Mapping[str, str],
    status: int = 200,
    *,
    error: FieldErrors | None = None,
    **values: Any,
) -> Response:
    empty: dict[str, Any] = {"rows": (), "params": {}, "at_the_newest": True, "further": None}
    return await render_page(
        page,
        "decisions.html",
        status,
        typed=typed,
        agents=agents,
        outcomes=OUTCOMES,
        most_agents=MAX_AGENTS,
        wrong=field_errors(error) if error else {},
        **empty | values,
    )


def _read_cursor(page: PageContext, params: Mapping[str, str]) -> Page:
    filters = {**params, "environment": page.environment}
    return page_behind(
        page.request.query_params.get("cursor") or None,
        DECISIONS,
        filters.items(),
        page.caller.organization_id,
        page.gateway.vault.cursor_keys,
        limit=PAGE_SIZE,
    )


async def show_decision(page: PageContext) -> Response:
    """Show the page of one decision."""
    async with page.gateway.database.reading() as session:
        decision = await get_decision(
            session, page.caller.organization_id, page.environment, page.param("decision_id")
        )
        (view,) = await load_views(session, [decision])
        key = (await session.exec(select(ApiKey).where(ApiKey.id == decision.key_id))).first()
        has_approval = await _exists(session, Approval, decision, decision.approval_id)
        has_rule = await _exists(session, Rule, decision, decision.rule_id)
    return await render_page(
        page,
        "decision.html",
        one=view,
        key="" if key is None else masked_key(key),
        has_approval=has_approval,
        has_rule=has_rule,
    )


async def _exists(
    session: AsyncSession, table: type[Approval | Rule], decision: Decision, row_id: str | None
) -> bool:
    """Return whether an approval request or a rule that a decision names still exists."""
    if row_id is None:
        return False
    query = select(table.id).where(
        table.id == row_id,
        table.organization_id == decision.organization_id,
        table.environment == decision.environment,
    )
    return (await session.exec(query)).first() is not None


async def export_page(page: PageContext) -> Response:
    """Return a file for download with the decisions that match the filters."""
    query = page.request.query_params
    named = query.get("format", "jsonl")
    form = next((one for one in FORMATS if one == named), None)
    if form is None:
        raise FieldErrors(
            {"format": [f"unknown format {named[:40]!r}: expected one of {', '.join(FORMATS)}"]}
        )
    filters = read_filters({name: query.get(name, "").strip() for name in NAMES})
    parts = export_decisions(page.gateway, page.caller.organization_id, page.environment, filters, form)
    headers = download_headers(page.environment, form, "decisions")
    return Stream(parts, FORMATS[form].media_type, {**HEADERS, **NO_STORE, **headers})


ROUTES: Sequence[Route] = (
    page_route(DECISIONS, show_decisions),
    page_route(f"{DECISIONS}/export", export_page),
    page_route(f"{DECISIONS}/{{decision_id}}", show_decision),
)
