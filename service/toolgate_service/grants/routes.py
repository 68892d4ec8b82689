"""HTTP routes that list and revoke temporary approvals (grants). The route that approves a request creates them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from toolgate_service.grants import repository, service
from toolgate_service.grants.schemas import GrantView, serialize_grants
from toolgate_service.http.dependencies import (
    AgentFilter,
    AnyCaller,
    EnvironmentName,
    FullCaller,
    GatewayDep,
    GrantIdPath,
    PageDep,
)
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/grants", tags=["approvals"], route_class=StrictRoute)

Status = Literal["proposed", "active", "exhausted", "expired", "revoked"]


@router.get("", response_model=list[GrantView], summary="List temporary approvals")
async def list_grants(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[
        Status | None, Query(description="Return only temporary approvals with this status.")
    ] = None,
    agent_id: AgentFilter = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return temporary approvals (grants), newest first, page by page. Approving a request creates them."""
    async with gateway.database.reading() as session:
        found = await repository.list_grants(
            session, caller, environment, page, status=status, agent_id=agent_id
        )
        views = await serialize_grants(session, found.rows, credentials=caller.is_admin)
    return Reply(views, headers=page.headers(found))


@router.get(
    "/{grant_id}", response_model=GrantView, responses=problems(NOT_FOUND), summary="Get a temporary approval"
)
async def get_grant(
    grant_id: GrantIdPath, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the temporary approval (grant) with this id."""
    async with gateway.database.reading() as session:
        grant = await repository.find_grant(session, caller, environment, grant_id)
        [view] = await serialize_grants(session, [grant], credentials=caller.is_admin)
    return Reply(view)


@router.post(
    "/{grant_id}/revoke",
    response_model=GrantView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Revoke a temporary approval",
)
async def revoke_grant(
    grant_id: GrantIdPath,
    caller: FullCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Revoke a temporary approval (grant). Later calls need an approval again.

    The response is 409 if it was revoked before, is expired or has no uses left.
    """
    return Reply(await service.revoke(gateway, caller, environment, grant_id))
