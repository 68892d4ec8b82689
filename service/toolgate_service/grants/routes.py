"""HTTP for grants: what is allowed for a while is given with an approval, listed and revoked here."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AnyCaller, FullCaller
from toolgate_service.gateway import GatewayDep
from toolgate_service.grants import desk, service
from toolgate_service.grants.schemas import GrantView
from toolgate_service.openapi.problems import CONFLICT, NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import Reply

router = APIRouter(prefix="/api/grants", tags=["approvals"], route_class=StrictRoute)

Status = Literal["proposed", "active", "exhausted", "expired", "revoked"]


@router.get("", response_model=list[GrantView])
async def list_grants(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[Status | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return what was allowed for a while, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_grants(
            session, caller, environment, page, status=status, agent_id=agent_id
        )
        views = await service.views(session, found.rows, credentials=caller.is_admin)
    return Reply(views, headers=page.headers(found))


@router.get("/{grant_id}", response_model=GrantView, responses=problems(NOT_FOUND))
async def get_grant(
    grant_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one grant."""
    async with gateway.database.reading() as session:
        grant = await service.find_grant(session, caller, environment, grant_id)
        [view] = await service.views(session, [grant], credentials=caller.is_admin)
    return Reply(view)


@router.post("/{grant_id}/revoke", response_model=GrantView, responses=problems(NOT_FOUND, CONFLICT))
async def revoke_grant(
    grant_id: str, caller: FullCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Allow it no longer; the very next check is held again."""
    return Reply(await desk.revoke(gateway, caller, environment, grant_id))
