"""Organizations: registration, settings, API keys, plan changes, deactivation and reactivation."""

import re
import secrets
import unicodedata
from datetime import datetime
from typing import Literal

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.login_throttle import LoginAttempt
from toolgate_service.accounts.models import ADMIN, FULL, User
from toolgate_service.accounts.repository import find_user_by_email
from toolgate_service.accounts.schemas import Registration, TokenView
from toolgate_service.accounts.sessions import (
    Caller,
    Precondition,
    no_precondition,
    open_session,
    transaction_as,
)
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError, feature_not_available
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import RETENTION_GRACE, PlanName, Plans, longest
from toolgate_service.core.schemas import MAX_NAME
from toolgate_service.db.database import ACCOUNTS, now
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION
from toolgate_service.organizations import ip_allowlist, repository
from toolgate_service.organizations.models import (
    OPERATOR,
    PAYMENT,
    Cause,
    Deactivation,
    Environment,
    Organization,
)
from toolgate_service.organizations.repository import mint_key
from toolgate_service.organizations.schemas import (
    AllowedNetworks,
    AllowedNetworksChange,
    KeylessOrganizationView,
    KeyView,
    OrganizationView,
)
from toolgate_service.webhooks.events import emit

#: name of the IP allowlist in the error message for plans that do not include it
NETWORKS_FEATURE = "ip_allow_list"
REGISTRATION_REFUSALS = {
    "invite": "Registration is by invitation only; ask an admin of your organization for an invitation",
    "closed": "Registration is closed on this gateway; ask its operator for an account",
}


async def get_organization(session: AsyncSession, caller: Caller) -> Organization:
    """Return the caller's organization."""
    query = select(Organization).where(Organization.id == caller.organization_id)
    return (await session.exec(query)).one()


async def show_organization(context: AppContext, caller: Caller) -> OrganizationView:
    """Return the organization with its production API key.

    Admins see the full key, and the gateway writes an audit event about this. Other users see the masked key.
    """
    async with transaction_as(context, caller, reads=True) as session:
        return await _view_organization(session, context.vault, caller)


async def rename_organization(context: AppContext, caller: Caller, name: str) -> OrganizationView:
    """Change the name of the organization. Its slug does not change."""
    async with transaction_as(context, caller) as session:
        organization = await get_organization(session, caller)
        organization.name = name
        audit.record(session, caller, "organization.updated", organization.id, changes={"name": name})
        return await _view_organization(session, context.vault, caller)


async def get_allowed_networks(context: AppContext, caller: Caller) -> AllowedNetworks:
    """Return the networks from which clients may use the organization's API keys."""
    async with context.database.reading() as session:
        organization = await get_organization(session, caller)
    return AllowedNetworks(networks=ip_allowlist.load_networks(organization.ip_allow_list))


async def set_allowed_networks(
    context: AppContext, caller: Caller, change: AllowedNetworksChange
) -> AllowedNetworks:
    """Set the networks from which clients may use the organization's API keys. An empty list allows every address.

    The change applies to the next request. If the organization later changes to a plan without an IP allowlist, the
    networks still apply until an admin sets an empty list.

    Raises:
        ApiError: 403 if the list is not empty and the plan does not include an IP allowlist.
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
    """Return the organization's API key for an environment.

    Admins see the full key, and the gateway writes an audit event about this. Other users see the masked key.
    """
    async with transaction_as(context, caller, reads=True) as session:
        organization = await get_organization(session, caller)
        return _view_of_key(organization, await _key_for(session, context.vault, caller, environment))


async def regenerate_key(
    context: AppContext, caller: Caller, environment: str, *, first: Precondition = no_precondition
) -> KeyView:
    """Replace the organization's API key for an environment. The old key stops working immediately.

    `first` is an additional check in the same transaction, before the key is replaced.
    """
    async with transaction_as(context, caller) as session:
        await first(session)
        organization = await get_organization(session, caller)
        key = await repository.replace_organization_key(
            session, context.vault, organization.id, environment, created_by=caller.user_id
        )
        audit.record(session, caller, "organization.key_regenerated", key.id, environment=environment)
        keyless = KeylessOrganizationView.model_validate(organization, from_attributes=True)
        await emit(session, organization.id, environment, "organization.key_regenerated", keyless)
        return _view_of_key(
            organization, repository.shown_key(context.vault, key) or repository.masked_key(key)
        )


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
    key = await repository.organization_key(session, caller.organization_id, environment)
    shown = repository.shown_key(vault, key) if caller.sees_keys else None
    if shown is None:
        return repository.masked_key(key)
    audit.record(session, caller, "organization.key_shown", key.id, environment=environment)
    return shown


def _view_of_key(organization: Organization, api_key: str) -> KeyView:
    return KeyView(
        id=organization.id, name=organization.name, api_key=api_key, created_at=organization.created_at
    )


async def deactivate(session: AsyncSession, organization: Organization, cause: Cause) -> bool:
    """Deactivate the organization for a cause: `operator` or `payment`. Return False if this cause is already stored.

    The organization is inactive as long as at least one cause is stored. A payment removes only the cause `payment`.
    """
    found = await _causes(session, organization)
    if any(one.cause == cause for one in found):
        return False
    if cause == PAYMENT and not (organization.is_active or found):
        # The operator deactivated the organization without a stored cause. Store one now, because otherwise a payment
        # would reactivate the organization.
        session.add(_deactivation(session, organization, OPERATOR))
    session.add(_deactivation(session, organization, cause))
    organization.is_active = False
    audit.record_outside(session, organization.id, "organization.deactivated", changes={"cause": cause})
    return True


async def reactivate(session: AsyncSession, organization: Organization, *causes: Cause) -> bool:
    """Remove causes for which the organization is inactive. Return True if this makes it active again.

    It becomes active if no stored cause is left. If no cause was stored at all, it becomes active only if `causes`
    contains `OPERATOR`.
    """
    found = await _causes(session, organization)
    removed = [one for one in found if one.cause in causes]
    for one in removed:
        await session.delete(one)
    # The operator may also reactivate an organization that was deactivated without a stored cause.
    has_no_cause = not found and OPERATOR in causes
    if organization.is_active or len(removed) < len(found) or not (removed or has_no_cause):
        return False
    organization.is_active = True
    changes = {"causes": [one.cause for one in removed]}
    audit.record_outside(session, organization.id, "organization.activated", changes=changes)
    return True


async def causes_of(session: AsyncSession, organization: Organization) -> list[str]:
    """Return the causes for which the organization is inactive: `operator`, `payment` or both."""
    return [one.cause for one in await _causes(session, organization)]


async def _causes(session: AsyncSession, organization: Organization) -> list[Deactivation]:
    query = select(Deactivation).where(Deactivation.organization_id == organization.id)
    return list((await session.exec(query)).all())


def _deactivation(session: AsyncSession, organization: Organization, cause: Cause) -> Deactivation:
    return Deactivation(organization_id=organization.id, cause=cause, created_at=now(session))


def change_plan(
    session: AsyncSession,
    plans: Plans,
    organization: Organization,
    plan: PlanName,
    *,
    by: Literal["operator", "provider"],
) -> bool:
    """Change the plan of the organization immediately. Return False if the organization already has this plan.

    If the new plan keeps log entries for a shorter time, the retention of the old plan applies for 30 more days.
    """
    before = organization.plan
    if plan == before:
        return False
    _extend_retention(organization, plans, plan, now(session))
    organization.plan = plan
    changes = {"from": before, "to": plan, "by": by}
    audit.record_outside(session, organization.id, "organization.plan_changed", changes=changes)
    return True


def _extend_retention(organization: Organization, plans: Plans, plan: PlanName, moment: datetime) -> None:
    old, new = plans[organization.plan].log_retention_days, plans[plan].log_retention_days
    changed_at, running = organization.plan_changed_at, organization.retention_days_before
    if changed_at is None or moment >= changed_at + RETENTION_GRACE:
        running = None
    if longest(old, new) != new:
        # The row can store only one former retention. If two changes within 30 days shorten the retention, the longer
        # of the former values applies until 30 days after the second change, so that no log entry is deleted too early.
        organization.retention_days_before = old if running is None else longest(old, running)
        organization.plan_changed_at = moment
    elif running is None:
        organization.retention_days_before = None
        organization.plan_changed_at = moment


async def register(context: AppContext, registration: Registration, address: str | None) -> TokenView:
    """Create an organization and its first admin, and return a session token for the admin.

    Raises:
        ApiError: 403 if the gateway accepts no registrations; 400 if the e-mail address is already registered; 429 if
            too many other requests are waiting for a password to be hashed.
    """
    refusal = REGISTRATION_REFUSALS.get(context.settings.registration)
    if refusal is not None:
        raise ApiError(403, refusal)
    attempt = LoginAttempt.of(context.vault, address, registration.email)
    # Hash the password before the transaction: hashing takes a tenth of a second, during which the transaction would
    # block all other writers.
    password_hash = await context.passwords.hash(registration.password)
    async with context.database.writing(ACCOUNTS) as session:
        user = await create_organization(
            session, context.vault, registration, password_hash, context.settings.default_plan
        )
        return await open_session(session, context.vault, user, FULL, address=attempt.address)


async def create_organization(
    session: AsyncSession, vault: Vault, registration: Registration, password_hash: str, plan: str
) -> User:
    """Create an organization with its two environments and their API keys, and return its first admin.

    `session` must be a write transaction that holds the lock `ACCOUNTS`, which prevents a concurrent registration of
    the same e-mail address.

    Raises:
        ApiError: 400 if the e-mail address is already registered.
    """
    if await find_user_by_email(session, registration.email) is not None:
        raise ApiError(400, "E-mail already registered")
    moment = now(session)
    organization = Organization(
        id=new_id(),
        name=registration.organization_name,
        slug=await _free_slug(session, registration.organization_name),
        plan=plan,
        created_at=moment,
    )
    session.add(organization)
    await session.flush()
    for environment in ENVIRONMENTS:
        session.add(Environment(organization_id=organization.id, name=environment))
    user = User(
        id=new_id(),
        organization_id=organization.id,
        email=registration.email,
        password_hash=password_hash,
        role=ADMIN,
        created_at=moment,
    )
    session.add(user)
    await session.flush()
    for environment in ENVIRONMENTS:
        session.add(mint_key(vault, organization.id, environment, created_at=moment, created_by=user.id))
    return user


async def _free_slug(session: AsyncSession, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    # Cut the slug off at `MAX_NAME`: NFKD replaces some characters by several, so the slug may be longer than the name.
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "organization"
    existing = (await session.exec(select(Organization.id).where(Organization.slug == slug))).first()
    return slug if existing is None else f"{slug}-{secrets.token_hex(4)}"
