"""HTTP for the management audit (decisions §3)."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.audit import listing
from toolgate_service.audit.schemas import AuditEntryView
from toolgate_service.gateway import GatewayDep
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import Reply

router = APIRouter(prefix="/api/audit", tags=["audit"], route_class=StrictRoute)


@router.get("", response_model=list[AuditEntryView])
async def list_audit(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    kind: Annotated[str | None, Query()] = None,
    user_id: Annotated[str | None, Query()] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return who changed what, when and from where, newest first; every role reads."""
    async with gateway.database.reading() as session:
        found = await listing.list_audit(session, caller, environment, page, kind=kind, user_id=user_id)
    return Reply(found.rows, headers=page.headers(found))
