"""HTTP for the organization and its keys (spec §4, decisions §3).

Reading a key writes: every showing is audited in the same transaction.
"""

from fastapi import APIRouter

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, acting
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import NO_FEATURE, problems
from toolgate_service.organizations import service
from toolgate_service.organizations.schemas import (
    AllowedNetworks,
    AllowedNetworksChange,
    KeyView,
    OrganizationChange,
    OrganizationView,
)
from toolgate_service.storage.base import PRODUCTION, TEST
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, Reply

router = APIRouter(prefix="/api/organization", tags=["organization"], route_class=StrictRoute)


@router.get("", response_model=OrganizationView)
async def get_organization(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the caller's organization; its key is whole for admins, which is audited, and masked for others."""
    async with acting(gateway, caller, reads=True) as session:
        view = await service.view(session, gateway.vault, caller)
    return Reply(view, headers=NO_STORE)


@router.put("", response_model=OrganizationView)
async def rename_organization(change: OrganizationChange, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Change the organization's name; the slug stays."""
    async with acting(gateway, caller) as session:
        await service.rename(session, caller, change.name)
        view = await service.view(session, gateway.vault, caller)
    return Reply(view, headers=NO_STORE)


@router.get("/allowed-networks", response_model=AllowedNetworks)
async def get_allowed_networks(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the networks from which the organization's API keys work; none means everywhere."""
    async with gateway.database.reading() as session:
        shown = await service.allowed_networks(session, caller)
    return Reply(shown)


@router.put("/allowed-networks", response_model=AllowedNetworks, responses=problems(NO_FEATURE))
async def set_allowed_networks(
    change: AllowedNetworksChange, caller: AdminCaller, gateway: GatewayDep
) -> Reply:
    """Have API keys work from these networks alone, from the very next request on; an empty list: from everywhere."""
    async with acting(gateway, caller) as session:
        shown = await service.allow_networks(session, gateway.plans, caller, change)
    return Reply(shown)


@router.post("/regenerate-key", response_model=KeyView)
async def regenerate_key(caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Replace the production key; the old one stops working at once."""
    async with acting(gateway, caller) as session:
        view = await service.regenerate_key(session, gateway.vault, caller, PRODUCTION)
    return Reply(view, headers=NO_STORE)


@router.get("/test-key", response_model=KeyView)
async def get_test_key(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the key to the test environment: whole for admins, which is audited, and masked for others."""
    async with acting(gateway, caller, reads=True) as session:
        view = await service.key_view(session, gateway.vault, caller, TEST)
    return Reply(view, headers=NO_STORE)


@router.post("/test-key/regenerate", response_model=KeyView)
async def regenerate_test_key(caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Replace the key to the test environment; the old one stops working at once."""
    async with acting(gateway, caller) as session:
        view = await service.regenerate_key(session, gateway.vault, caller, TEST)
    return Reply(view, headers=NO_STORE)
