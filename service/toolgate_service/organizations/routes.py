"""HTTP routes of the organization and its API keys.

A request that returns a full API key uses a write transaction, which also adds an event about the display of the key to
the audit log.
"""

from fastapi import APIRouter

from toolgate_service.db.models import PRODUCTION, TEST
from toolgate_service.http.dependencies import AdminCaller, AnyCaller, GatewayDep
from toolgate_service.http.openapi import NO_FEATURE, problems
from toolgate_service.http.responses import NO_STORE, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.organizations import service
from toolgate_service.organizations.schemas import (
    AllowedNetworks,
    AllowedNetworksChange,
    KeyView,
    OrganizationChange,
    OrganizationView,
)

router = APIRouter(prefix="/api/organization", tags=["organization"], route_class=StrictRoute)


@router.get("", response_model=OrganizationView, summary="Get the organization")
async def get_organization(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the caller's organization.

    The response contains the production API key: in full for admins, which the audit log records, and masked for
    others.
    """
    return Reply(await service.show_organization(gateway, caller), headers=NO_STORE)


@router.put("", response_model=OrganizationView, summary="Rename the organization")
async def rename_organization(change: OrganizationChange, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Change the name of the organization. Its slug does not change."""
    view = await service.rename_organization(gateway, caller, change.name)
    return Reply(view, headers=NO_STORE)


@router.get("/allowed-networks", response_model=AllowedNetworks, summary="Get the allowed networks")
async def get_allowed_networks(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the networks from which clients may use the organization's API keys.

    An empty list allows every address.
    """
    return Reply(await service.get_allowed_networks(gateway, caller))


@router.put(
    "/allowed-networks",
    response_model=AllowedNetworks,
    responses=problems(NO_FEATURE),
    summary="Set the allowed networks",
)
async def set_allowed_networks(
    change: AllowedNetworksChange, caller: AdminCaller, gateway: GatewayDep
) -> Reply:
    """Set the networks from which clients may use the organization's API keys. An empty list allows every address.

    The change applies to the next request. The plan must include this feature (403); of the built-in plans, only
    `enterprise` does. Requests from other addresses are then rejected with 403.
    """
    return Reply(await service.set_allowed_networks(gateway, caller, change))


@router.post("/regenerate-key", response_model=KeyView, summary="Replace the production API key")
async def regenerate_key(caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Replace the API key of the production environment. The old key stops working immediately.

    The response contains the new key in full. API keys of single agents keep working.
    """
    return Reply(await service.regenerate_key(gateway, caller, PRODUCTION), headers=NO_STORE)


@router.get("/test-key", response_model=KeyView, summary="Get the test API key")
async def get_test_key(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the API key of the test environment.

    Admins see the full key, which the audit log records. Other users see the masked key.
    """
    return Reply(await service.show_key(gateway, caller, TEST), headers=NO_STORE)


@router.post("/test-key/regenerate", response_model=KeyView, summary="Replace the test API key")
async def regenerate_test_key(caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Replace the API key of the test environment. The old key stops working immediately.

    The response contains the new key in full. API keys of single agents keep working.
    """
    return Reply(await service.regenerate_key(gateway, caller, TEST), headers=NO_STORE)
