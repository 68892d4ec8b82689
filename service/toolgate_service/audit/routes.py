"""HTTP routes of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.audit import repository
from toolgate_service.audit.schemas import AuditEntryView
from toolgate_service.http.dependencies import AnyCaller, EnvironmentName, GatewayDep, PageDep
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

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
    """Return the audit events of the organization, newest first.

    An event contains the user, the change, the time and the IP address.
    """
    async with gateway.database.reading() as session:
        found = await repository.list_audit(
            session, caller.organization_id, environment, page, kind=kind, user_id=user_id
        )
    return Reply(found.rows, headers=page.headers(found))
