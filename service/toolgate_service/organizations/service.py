"""The rules of the organization's own affairs: its name, its two keys, and who may see them (decisions §3, §9)."""

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.audit import service as audit
from toolgate_service.errors import feature_not_available
from toolgate_service.organizations import keys, networks
from toolgate_service.organizations.models import Organization
from toolgate_service.organizations.schemas import (
    AllowedNetworks,
    AllowedNetworksChange,
    KeylessOrganizationView,
    KeyView,
    OrganizationView,
)
from toolgate_service.plans import Plans
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.vault import Vault
from toolgate_service.webhooks.outbox import emit

#: what a plan that does not have it is told
NETWORKS_FEATURE = "ip_allow_list"


async def get_organization(session: AsyncSession, caller: Caller) -> Organization:
    """Return the caller's organization."""
    query = select(Organization).where(Organization.id == caller.organization_id)
    return (await session.exec(query)).one()


async def rename(session: AsyncSession, caller: Caller, name: str) -> None:
    """Change the organization's name; the slug stays."""
    organization = await get_organization(session, caller)
    organization.name = name
    audit.record(session, caller, "organization.updated", organization.id, changes={"name": name})


async def allowed_networks(session: AsyncSession, caller: Caller) -> AllowedNetworks:
    """Return where the organization's API keys work."""
    organization = await get_organization(session, caller)
    return AllowedNetworks(networks=networks.listed(organization.ip_allow_list))


async def allow_networks(
    session: AsyncSession, plans: Plans, caller: Caller, change: AllowedNetworksChange
) -> AllowedNetworks:
    """Bind the organization's API keys to networks, from the very next request on; none for everywhere.

    Raises:
        ApiError: 403, the plan does not include it. What was set under another plan stays until it is removed, which
            every plan allows.
    """
    organization = await get_organization(session, caller)
    if change.networks and not plans[organization.plan].ip_allow_list:
        raise feature_not_available(NETWORKS_FEATURE, organization.plan)
    organization.ip_allow_list = networks.stored(change.networks)
    changes = {"networks": change.networks}
    audit.record(session, caller, "organization.networks_changed", organization.id, changes=changes)
    return AllowedNetworks(networks=change.networks)


async def view(session: AsyncSession, vault: Vault, caller: Caller) -> OrganizationView:
    """Show the organization with its production key, whole or masked."""
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


async def key_view(session: AsyncSession, vault: Vault, caller: Caller, environment: str) -> KeyView:
    """Show the organization's key to an environment, whole or masked."""
    return _view_of_key(
        await get_organization(session, caller), await _key_for(session, vault, caller, environment)
    )


async def regenerate_key(session: AsyncSession, vault: Vault, caller: Caller, environment: str) -> KeyView:
    """Replace the organization's key to an environment; the old one stops working at once."""
    organization = await get_organization(session, caller)
    key = await keys.replace_organization_key(
        session, vault, organization.id, environment, created_by=caller.user_id
    )
    audit.record(session, caller, "organization.key_regenerated", key.id, environment=environment)
    keyless = KeylessOrganizationView.model_validate(organization, from_attributes=True)
    await emit(session, organization.id, environment, "organization.key_regenerated", keyless)
    return _view_of_key(organization, keys.shown_key(vault, key) or keys.masked_key(key))


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
