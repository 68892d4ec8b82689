"""HTTP for the organization and its keys (spec §4, decisions §3)."""

from fastapi import APIRouter
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, Caller
from toolgate_service.accounts.models import FULL
from toolgate_service.audit import service as audit
from toolgate_service.gateway import Gateway, GatewayDep
from toolgate_service.organizations import keys
from toolgate_service.organizations.models import Organization
from toolgate_service.organizations.schemas import KeyView, OrganizationChange, OrganizationView
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, Reply

router = APIRouter(prefix="/api/organization", tags=["organization"], route_class=StrictRoute)


@router.get("", response_model=OrganizationView)
async def get_organization(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the caller's organization. Showing the key is an event of its own, so it is audited."""
    async with gateway.database.writing(caller.organization_id) as session:
        view = await _view(session, gateway, caller)
    return Reply(view, headers=NO_STORE)


@router.put("", response_model=OrganizationView)
async def rename_organization(change: OrganizationChange, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Change the organization's name; the slug stays."""
    async with gateway.database.writing(caller.organization_id) as session:
        organization = await _organization(session, caller)
        organization.name = change.name
        audit.record(session, caller, "organization.updated", organization.id, changes={"name": change.name})
        view = await _view(session, gateway, caller)
    return Reply(view, headers=NO_STORE)


@router.post("/regenerate-key", response_model=KeyView)
async def regenerate_key(caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Replace the production key; the old one stops working at once."""
    async with gateway.database.writing(caller.organization_id) as session:
        organization = await _organization(session, caller)
        key = await keys.replace_organization_key(
            session, gateway.vault, organization.id, PRODUCTION, created_by=caller.user_id
        )
        audit.record(session, caller, "organization.key_regenerated", key.id, environment=PRODUCTION)
    view = KeyView(
        id=organization.id,
        name=organization.name,
        api_key=keys.shown_key(gateway.vault, key) or keys.masked_key(key),
        created_at=organization.created_at,
    )
    return Reply(view, headers=NO_STORE)


async def _organization(session: AsyncSession, caller: Caller) -> Organization:
    query = select(Organization).where(Organization.id == caller.organization_id)
    return (await session.exec(query)).one()


async def _view(session: AsyncSession, gateway: Gateway, caller: Caller) -> OrganizationView:
    organization = await _organization(session, caller)
    key = await keys.organization_key(session, organization.id, PRODUCTION)
    shown = None
    if caller.is_admin and caller.scope == FULL:
        shown = keys.shown_key(gateway.vault, key)
    if shown is not None:
        audit.record(session, caller, "organization.key_shown", key.id, environment=PRODUCTION)
    return OrganizationView(
        id=organization.id,
        name=organization.name,
        slug=organization.slug,
        plan=organization.plan,
        api_key=shown or keys.masked_key(key),
        is_active=organization.is_active,
        created_at=organization.created_at,
    )
