"""HTTP routes of permissions."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.agents.service import get_agent
from toolgate_service.http.dependencies import (
    AdminCaller,
    AgentIdPath,
    AnyCaller,
    AnyKey,
    EnvironmentName,
    FullCaller,
    GatewayDep,
    PermissionIdPath,
    WholeOrPageDep,
)
from toolgate_service.http.openapi import NOT_FOUND, REFUSED, problems
from toolgate_service.http.responses import NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.permissions import service
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView

router = APIRouter(prefix="/api", tags=["permissions"], route_class=StrictRoute)
sdk_router = APIRouter(prefix="/sdk", tags=["permissions"], route_class=StrictRoute)


@router.get(
    "/agents/{agent_id}/permissions",
    response_model=list[PermissionView],
    responses=problems(NOT_FOUND),
    summary="List the permissions of an agent",
)
async def list_permissions(
    agent_id: AgentIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    page: WholeOrPageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the permissions of an agent, newest first. Without the parameter `limit`, all permissions are returned."""
    async with gateway.database.reading() as session:
        agent = await get_agent(session, caller, environment, agent_id)
        found = await service.list_permissions(session, agent, page)
    permissions = [PermissionView.model_validate(one, from_attributes=True) for one in found.rows]
    return Reply(permissions, headers=page.headers(found))


@router.post(
    "/agents/{agent_id}/permissions",
    response_model=PermissionView,
    status_code=201,
    responses=problems(NOT_FOUND, REFUSED),
    summary="Create a permission",
)
async def create_permission(
    agent_id: AgentIdPath,
    new: NewPermission,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Allow an agent to perform an action, with optional conditions: a maximum amount and approvals.

    The response is 400 if the agent already has a permission for the action.
    """
    return Reply(await service.create_permission(gateway, caller, environment, agent_id, new), 201)


@router.delete(
    "/agents/{agent_id}/permissions/{permission_id}",
    status_code=204,
    responses=problems(NOT_FOUND),
    summary="Delete a permission of an agent",
)
async def delete_agent_permission(
    agent_id: AgentIdPath,
    permission_id: PermissionIdPath,
    caller: FullCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete a permission of an agent. Later calls of its action are denied, unless a rule allows them.

    Pending and approved requests of the permission are cancelled.
    """
    await service.delete_permission(gateway, caller, permission_id, agent=(environment, agent_id))
    return NoContent()


@router.put(
    "/permissions/{permission_id}",
    response_model=PermissionView,
    responses=problems(NOT_FOUND),
    summary="Change a permission",
)
async def change_permission(
    permission_id: PermissionIdPath, change: PermissionChange, caller: AdminCaller, gateway: GatewayDep
) -> Reply:
    """Change the conditions of a permission. Fields that the request omits stay unchanged.

    The new conditions apply from the next check on, even to calls that are already approved. The response is 404 if the
    permission belongs to another organization.
    """
    return Reply(await service.change_permission(gateway, caller, permission_id, change))


@router.delete(
    "/permissions/{permission_id}",
    status_code=204,
    responses=problems(NOT_FOUND),
    summary="Delete a permission by its id",
)
async def delete_permission(
    permission_id: PermissionIdPath, caller: FullCaller, gateway: GatewayDep
) -> NoContent:
    """Delete a permission by its id alone. Later calls of its action are denied, unless a rule allows them.

    Pending and approved requests of the permission are cancelled. The response is 404 if the permission does not exist,
    and 403 if it belongs to another organization.
    """
    await service.delete_permission(gateway, caller, permission_id)
    return NoContent()


@sdk_router.get(
    "/permissions",
    response_model=list[PermissionView],
    responses=problems(NOT_FOUND),
    summary="List the actions that an agent may perform",
)
async def list_own_permissions(
    caller: AnyKey,
    gateway: GatewayDep,
    agent_id: Annotated[str, Query(description="Id of the agent, a UUID.")],
) -> Reply:
    """Return the current permissions of an agent, newest first. The list is empty for a disabled agent.

    The response is 404 if the agent does not exist, or if the API key belongs to another agent.
    """
    async with gateway.database.reading() as session:
        permissions = await service.list_by_key(session, caller, agent_id)
    return Reply([PermissionView.model_validate(one, from_attributes=True) for one in permissions])
