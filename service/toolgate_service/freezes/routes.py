"""HTTP routes of freezes."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from toolgate_service.freezes import service
from toolgate_service.freezes.schemas import FreezeView, NewFreeze
from toolgate_service.http.dependencies import AdminCaller, AnyCaller, ChangingCaller, GatewayDep, PageDep
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/freeze", tags=["freezes"], route_class=StrictRoute)

Status = Literal["active", "lifted"]
FreezeIdPath = Annotated[str, Path(description="Id of the freeze, a UUID.")]


@router.get("", response_model=list[FreezeView], summary="List freezes")
async def list_freezes(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[Status, Query(description="Status of the returned freezes.")] = "active",
) -> Reply:
    """Return the active or the lifted freezes of the organization, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_freezes(session, caller, page, active=status == "active")
    views = [FreezeView.model_validate(freeze, from_attributes=True) for freeze in found.rows]
    return Reply(views, headers=page.headers(found))


@router.post(
    "", response_model=FreezeView, status_code=201, responses=problems(NOT_FOUND), summary="Create a freeze"
)
async def create_freeze(new: NewFreeze, caller: ChangingCaller, gateway: GatewayDep) -> Reply:
    """Deny all calls of the organization, of an agent or of an action, in both environments, from the next check on.

    Admins and members may freeze; only an admin may lift a freeze.
    """
    return Reply(await service.create_freeze(gateway, caller, new), 201)


@router.get("/{freeze_id}", response_model=FreezeView, responses=problems(NOT_FOUND), summary="Get a freeze")
async def get_freeze(freeze_id: FreezeIdPath, caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the freeze with this id."""
    async with gateway.database.reading() as session:
        freeze = await service.get_freeze(session, caller, freeze_id)
    return Reply(FreezeView.model_validate(freeze, from_attributes=True))


@router.post(
    "/{freeze_id}/lift",
    response_model=FreezeView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Lift a freeze",
)
async def lift_freeze(freeze_id: FreezeIdPath, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """End a freeze. From the next check on, permissions, rules and other freezes decide about the calls again."""
    return Reply(await service.lift_freeze(gateway, caller, freeze_id))
