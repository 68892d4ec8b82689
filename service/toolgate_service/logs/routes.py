"""HTTP for reading the log (spec §4)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.gateway import GatewayDep
from toolgate_service.logs import service
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName, Offset, PageSize
from toolgate_service.web.replies import Reply

router = APIRouter(prefix="/api/logs", tags=["logs"], route_class=StrictRoute)


@router.get("", response_model=list[LogEntryView])
async def list_logs(
    caller: AnyCaller,
    gateway: GatewayDep,
    agent_id: Annotated[str | None, Query()] = None,
    status: Annotated[Literal["success", "failed", "pending", "denied"] | None, Query()] = None,
    action: Annotated[str | None, Query()] = None,
    limit: PageSize = 50,
    offset: Offset = 0,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return log entries, newest first."""
    async with gateway.database.reading() as session:
        entries = await service.list_entries(
            session,
            caller,
            environment,
            agent_id=agent_id,
            status=status,
            action=action,
            limit=limit,
            offset=offset,
        )
    return Reply(entries)
