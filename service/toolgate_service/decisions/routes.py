"""HTTP routes of the decision log."""

from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Path, Query

from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import Moment
from toolgate_service.decisions.repository import Filters, get_decision, list_page
from toolgate_service.decisions.schemas import DecisionView
from toolgate_service.decisions.service import export_decisions, load_views
from toolgate_service.http.dependencies import (
    ActionFilter,
    AgentFilter,
    AnyCaller,
    EnvironmentName,
    GatewayDep,
    PageDep,
)
from toolgate_service.http.openapi import NOT_FOUND, PARTLY_COUNTED, problems
from toolgate_service.http.responses import NO_STORE, Reply, Stream
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.logs.schemas import FORMATS, Format, download_headers

router = APIRouter(prefix="/api/decisions", tags=["decisions"], route_class=StrictRoute)

Outcome = Literal["allowed", "denied", "approval_required"]
DecisionIdPath = Annotated[
    str, Path(description="Id of the decision, a UUID: the header `X-Decision-ID` of the check.")
]


# The function is async, although it awaits nothing, because FastAPI runs synchronous dependencies in a thread.
async def _filters(
    agent_id: AgentFilter = None,
    action: ActionFilter = None,
    outcome: Annotated[Outcome | None, Query(description="Return only decisions with this outcome.")] = None,
    reason_code: Annotated[
        str | None, Query(description="Return only decisions with this reason code, such as `no_permission`.")
    ] = None,
    run_id: Annotated[str | None, Query(description="Return only decisions of this agent run.")] = None,
    rule_id: Annotated[
        str | None, Query(description="Return only decisions that the rule with this id made.")
    ] = None,
    begins: Annotated[
        Moment | None,
        Query(
            alias="from",
            description="Return only decisions made at or after this time (ISO 8601; without an offset, UTC).",
        ),
    ] = None,
    ends: Annotated[
        Moment | None,
        Query(
            alias="to",
            description="Return only decisions made before this time (ISO 8601; without an offset, UTC).",
        ),
    ] = None,
) -> Filters:
    if begins is not None and ends is not None and ends <= begins:
        raise FieldErrors({"to": ["must be later than the parameter from"]})
    return Filters(agent_id, run_id, outcome, action, reason_code, rule_id, begins, ends)


FiltersDep: TypeAlias = Annotated[Filters, Depends(_filters)]


@router.get("", response_model=list[DecisionView], responses={200: PARTLY_COUNTED}, summary="List decisions")
async def list_decisions(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    page: PageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the decisions about checks, newest first, page by page.

    A record appears within about a second after the check. Records and log entries are deleted at the same age.

    One request reads at most 10,000 records. If only some of these records match, a page can contain fewer decisions
    than `limit`, or none, even though `Link` contains a next page. The response then has no `X-Total-Count` header.
    """
    async with gateway.database.reading() as session:
        found = await list_page(session, caller.organization_id, environment, filters, page)
        views = await load_views(session, found.rows)
    return Reply(views, headers=page.headers(found))


@router.get(
    "/export",
    response_model=None,
    responses={
        200: {
            "description": "The file.",
            "content": {form.media_type: {"schema": {"type": "string"}} for form in FORMATS.values()},
        }
    },
    summary="Export decisions as a file",
)
async def export_decision_log(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    form: Annotated[
        Format, Query(alias="format", description="Format of the file: `jsonl` (JSON lines) or `csv`.")
    ] = "jsonl",
    environment: EnvironmentName = "production",
) -> Stream:
    """Return decisions as a file, newest first; `from` is inclusive, `to` exclusive.

    The response is streamed and has no page limit. In CSV files, cells that a spreadsheet could take for a formula
    begin with an apostrophe. The response is 400 if `to` is not later than `from`.
    """
    headers = NO_STORE | download_headers(environment, form, "decisions")
    parts = export_decisions(gateway, caller.organization_id, environment, filters, form)
    return Stream(parts, FORMATS[form].media_type, headers)


@router.get(
    "/{decision_id}", response_model=DecisionView, responses=problems(NOT_FOUND), summary="Get a decision"
)
async def get_decision_record(
    decision_id: DecisionIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the decision with this id."""
    async with gateway.database.reading() as session:
        decision = await get_decision(session, caller.organization_id, environment, decision_id)
        (view,) = await load_views(session, [decision])
    return Reply(view)
