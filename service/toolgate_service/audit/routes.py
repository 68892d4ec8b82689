"""HTTP routes of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.audit import repository
from toolgate_service.audit.schemas import AuditEntryView
from toolgate_service.http.dependencies import AnyCaller, EnvironmentName, GatewayDep, PageDep
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/audit", tags=["audit"], route_class=StrictRoute)


@router.get("", response_model=list[AuditEntryView], summary="List audit events")
async def list_audit(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    event_type: Annotated[
        str | None,
        Query(alias="type", description="Return only events of this type, such as `permission.created`."),
    ] = None,
    kind: Annotated[
        str | None,
        Query(description=("Former name of `type`. If the request contains both, `type` is used.")),
    ] = None,
    user_id: Annotated[str | None, Query(description="Return only events of the user with this id.")] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the audit events of the organization, newest first, page by page.

    An event contains the user, the change, the time and the IP address. Events that belong to no environment, such as
    changes of the team, are listed with the production environment.
    """
    async with gateway.database.reading() as session:
        found = await repository.list_audit(
            session, caller.organization_id, environment, page, kind=event_type or kind, user_id=user_id
        )
    return Reply(found.rows, headers=page.headers(found))
