"""Organization settings: name, IP allowlist and API keys."""

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, Precondition, no_precondition, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import feature_not_available
from toolgate_service.db.models import PRODUCTION
from toolgate_service.organizations import ip_allowlist, keys
from toolgate_service.organizations.models import Organization
from toolgate_service.organizations.schemas import (
    AllowedNetworks,
    AllowedNetworksChange,
    KeylessOrganizationView,
    KeyView,
    OrganizationView,
)
from toolgate_service.webhooks.events import emit

#: name of the plan feature in error messages
NETWORKS_FEATURE = "ip_allow_list"


async def get_organization(session: AsyncSession, caller: Caller) -> Organization:
    """Return the caller's organization."""
    query = select(Organization).where(Organization.id == caller.organization_id)
    return (await session.exec(query)).one()


async def show_organization(context: AppContext, caller: Caller) -> OrganizationView:
    """Return the organization with its production key.

    Admins see the full key, and an audit event records this. Other users see the masked key.
    """
    async with transaction_as(context, caller, reads=True) as session:
        return await _view_organization(session, context.vault, caller)


async def rename_organization(context: AppContext, caller: Caller, name: str) -> OrganizationView:
    """Change the organization's name; the slug stays."""
    async with transaction_as(context, caller) as session:
        organization = await get_organization(session, caller)
        organization.name = name
        audit.record(session, caller, "organization.updated", organization.id, changes={"name": name})
        return await _view_organization(session, context.vault, caller)


async def get_allowed_networks(context: AppContext, caller: Caller) -> AllowedNetworks:
    """Return the networks from which the organization's API keys may be used."""
    async with context.database.reading() as session:
        organization = await get_organization(session, caller)
    return AllowedNetworks(networks=ip_allowlist.load_networks(organization.ip_allow_list))


async def set_allowed_networks(
    context: AppContext, caller: Caller, change: AllowedNetworksChange
) -> AllowedNetworks:
    """Set the networks from which the organization's API keys may be used; an empty list allows every address.

    The change applies from the next request on.

    Raises:
        ApiError: 403 if the plan does not include an IP allowlist and the list is not empty. After a change of plan,
            existing networks apply until an admin removes them, which every plan allows.
    """
    async with transaction_as(context, caller) as session:
        organization = await get_organization(session, caller)
        if change.networks and not context.plans[organization.plan].ip_allow_list:
            raise feature_not_available(NETWORKS_FEATURE, organization.plan)
        organization.ip_allow_list = ip_allowlist.serialize_networks(change.networks)
        changes = {"networks": change.networks}
        audit.record(session, caller, "organization.networks_changed", organization.id, changes=changes)
    return AllowedNetworks(networks=change.networks)


async def show_key(context: AppContext, caller: Caller, environment: str) -> KeyView:
    """Return the organization's key for an environment.

    Admins see the full key, and an audit event records this. Other users see the masked key.
    """
    async with transaction_as(context, caller, reads=True) as session:
        organization = await get_organization(session, caller)
        return _view_of_key(organization, await _key_for(session, context.vault, caller, environment))


async def regenerate_key(
    context: AppContext, caller: Caller, environment: str, *, first: Precondition = no_precondition
) -> KeyView:
    """Replace the organization's key for an environment; the old key stops working immediately."""
    async with transaction_as(context, caller) as session:
        await first(session)
        organization = await get_organization(session, caller)
        key = await keys.replace_organization_key(
            session, context.vault, organization.id, environment, created_by=caller.user_id
        )
        audit.record(session, caller, "organization.key_regenerated", key.id, environment=environment)
        keyless = KeylessOrganizationView.model_validate(organization, from_attributes=True)
        await emit(session, organization.id, environment, "organization.key_regenerated", keyless)
        return _view_of_key(organization, keys.shown_key(context.vault, key) or keys.masked_key(key))


async def _view_organization(session: AsyncSession, vault: Vault, caller: Caller) -> OrganizationView:
    organization = await get_organization(session, caller)
    return OrganizationView(
        id=organization.id,
        name=organization.name,
        slug=organization.slug,
        plan=organization.plan,
        api_key=await _key_for(session, vault, caller, PRODUCTION),
        is_active=organization.is_active,
        created_at=organization.created_at,
    )


async def _key_for(session: AsyncSession, vault: Vault, caller: Caller, environment: str) -> str:
    key = await keys.organization_key(session, caller.organization_id, environment)
    shown = keys.shown_key(vault, key) if caller.sees_keys else None
    if shown is None:
        return keys.masked_key(key)
    audit.record(session, caller, "organization.key_shown", key.id, environment=environment)
    return shown


def _view_of_key(organization: Organization, api_key: str) -> KeyView:
    return KeyView(
        id=organization.id, name=organization.name, api_key=api_key, created_at=organization.created_at
    )
