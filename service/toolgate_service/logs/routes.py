"""HTTP for reading the log (spec §4)."""

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.errors import FieldErrors
from toolgate_service.gateway import GatewayDep
from toolgate_service.logs import service
from toolgate_service.logs.export import MEDIA_TYPES, Form, as_file, export
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.logs.service import Filters
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName, Moment
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import NO_STORE, Reply
from toolgate_service.web.streams import Stream

router = APIRouter(prefix="/api/logs", tags=["logs"], route_class=StrictRoute)


# Async although nothing is awaited: FastAPI sends other dependencies through a thread each.
async def _filters(
    agent_id: Annotated[str | None, Query()] = None,
    status: Annotated[Literal["success", "failed", "pending", "denied"] | None, Query()] = None,
    action: Annotated[str | None, Query()] = None,
) -> Filters:
    return Filters(agent_id, status, action)


FiltersDep: TypeAlias = Annotated[Filters, Depends(_filters)]


@router.get("", response_model=list[LogEntryView])
async def list_logs(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    page: PageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return log entries, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_entries(session, caller, environment, filters, page)
    return Reply(found.rows, headers=page.headers(found))


@router.get(
    "/export",
    response_model=None,
    responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()}}},
)
async def export_logs(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    form: Annotated[Form, Query(alias="format")] = "jsonl",
    begins: Annotated[Moment | None, Query(alias="from")] = None,
    ends: Annotated[Moment | None, Query(alias="to")] = None,
    environment: EnvironmentName = "production",
) -> Stream:
    """Return log entries as a file, newest first: those from a moment on, up to before another."""
    if begins is not None and ends is not None and ends <= begins:
        raise FieldErrors({"to": ["must be later than from"]})
    span = replace(filters, begins=begins, ends=ends)
    headers = NO_STORE | as_file(environment, form)
    parts = export(gateway, caller.organization_id, environment, span, form)
    return Stream(parts, MEDIA_TYPES[form], headers)
