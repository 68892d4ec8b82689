"""HTTP for reading the log (spec §4)."""

from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.gateway import GatewayDep
from toolgate_service.logs import service
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.logs.service import Filters
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import Reply

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
