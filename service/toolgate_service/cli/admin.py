"""`toolgate admin`: changes that an operator makes directly in the database.

Each function of this module reads the settings, makes one change and returns the lines to print. If it fails, it raises
`StartError` with a one-line message for the operator.
"""

import secrets
from datetime import timedelta

from pydantic import ValidationError
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import one_time_tokens, password_reset
from toolgate_service.accounts.models import User
from toolgate_service.accounts.repository import find_user_by_email, find_user_by_id
from toolgate_service.accounts.schemas import Registration
from toolgate_service.audit import service as audit
from toolgate_service.billing.events import BillingTerms, apply_waiting_events, customer_lock
from toolgate_service.billing.service import current_subscription, is_entitled, update_activation, waive_debts
from toolgate_service.cli.context import Lines, OperatorSession, display_organization, run_with_database
from toolgate_service.cli.rotate_secret import rotate_secret
from toolgate_service.core.crypto import Passwords, Vault, secret_path
from toolgate_service.core.errors import ApiError, StartError
from toolgate_service.core.plans import MAX_ID, MAX_RATE, plan_name
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import ACCOUNTS
from toolgate_service.jobs.scheduler import RetentionHalted
from toolgate_service.maintenance import prune
from toolgate_service.organizations import lifecycle
from toolgate_service.organizations.models import OPERATOR, PAYMENT, Organization
from toolgate_service.organizations.registration import create_organization as add_organization
from toolgate_service.secret_check import verified_vault

__all__ = [
    "activate",
    "create_organization",
    "deactivate",
    "link_customer",
    "prune_now",
    "reset_password",
    "rotate_secret",
    "set_plan",
    "set_rate",
]


def set_plan(name: str, plan: str) -> Lines:
    """Change the plan of an organization immediately."""
    try:
        chosen = plan_name(plan)
    except ValueError as error:
        raise StartError(str(error)) from None

    async def work(operator: OperatorSession) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before = organization.plan
            plans = operator.settings.plans
            if not lifecycle.change_plan(session, plans, organization, chosen, by="operator"):
                return [f"{display_organization(organization)} was on the plan {chosen} already"]
            lines = [
                f"{display_organization(organization)} is on the plan {chosen} now; before it was {before}"
            ]
            subscription = await current_subscription(session, organization)
            if subscription is not None and is_entitled(subscription):
                lines.append(
                    f"its subscription {subscription.provider_subscription_id!r} goes on: the provider's next event "
                    "about it sets the plan that it buys"
                )
            return lines

        return await operator.change_organization(name, change)

    return run_with_database(work)


def set_rate(name: str, requests_per_minute: int | None) -> Lines:
    """Set the rate limit of an organization in requests per minute; None restores the limit of its plan."""
    if requests_per_minute is not None and not 1 <= requests_per_minute <= MAX_RATE:
        raise StartError(f"{requests_per_minute!r} is no rate; write requests a minute from 1 to {MAX_RATE}")

    async def work(operator: OperatorSession) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before, organization.requests_per_minute = organization.requests_per_minute, requests_per_minute
            changes = {"from": before, "to": requests_per_minute}
            audit.record_outside(session, organization.id, "organization.rate_changed", changes=changes)
            rate = requests_per_minute or operator.settings.plans[organization.plan].requests_per_minute
            whose = "of its own" if requests_per_minute else f"of the plan {organization.plan}"
            return [
                f"{display_organization(organization)} has the rate {whose} now: {rate} requests a minute"
            ]

        return await operator.change_organization(name, change)

    return run_with_database(work)


def activate(name: str) -> Lines:
    """Reactivate an organization, regardless of the reason for its deactivation, and waive its failed payments."""

    async def work(operator: OperatorSession) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            await waive_debts(session, organization)
            if not await lifecycle.reactivate(session, organization, OPERATOR, PAYMENT):
                return [
                    f"{display_organization(organization)} was active already; failed payments until now are forgiven"
                ]
            return [
                f"{display_organization(organization)} is active again; failed payments until now are forgiven"
            ]

        return await operator.change_organization(name, change)

    return run_with_database(work)


def deactivate(name: str) -> Lines:
    """Deactivate an organization immediately. A later payment does not reactivate it; only `activate` does."""

    async def work(operator: OperatorSession) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            if not await lifecycle.deactivate(session, organization, OPERATOR):
                return [f"{display_organization(organization)} was deactivated by an operator already"]
            what = "its keys are refused and its users may only read, until 'toolgate admin activate'"
            return [f"{display_organization(organization)} is not active: {what}"]

        return await operator.change_organization(name, change)

    return run_with_database(work)


def link_customer(name: str, customer_id: str | None, *, replace: bool = False) -> Lines:
    """Link an organization to a customer of the payment provider; None removes the link.

    Events that the gateway received for this customer before the link existed are applied. `replace` allows replacing
    an existing link.
    """
    if customer_id is not None and not _is_customer(customer_id):
        raise StartError(f"{customer_id!r} is no customer of the provider; copy its id, for instance cus_…")

    async def work(operator: OperatorSession) -> Lines:
        grace = timedelta(days=operator.settings.payment_grace_days)
        terms = BillingTerms(operator.settings.plans, grace)

        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before = organization.provider_customer_id
            if customer_id == before:
                return [
                    f"{display_organization(organization)} was linked to {before or 'no customer'} already"
                ]
            await _refuse_taken(session, organization, customer_id, replace=replace)
            organization.provider_customer_id = customer_id
            await session.flush()
            changes = {"from": before, "to": customer_id}
            audit.record_outside(session, organization.id, "organization.customer_linked", changes=changes)
            applied = await apply_waiting_events(session, terms, organization) if customer_id else 0
            await update_activation(session, organization, grace)
            return [
                f"{display_organization(organization)} is linked to {customer_id or 'no customer'} now",
                f"{applied} events that came before were applied; its plan is {organization.plan}, and it is "
                + ("active" if organization.is_active else "not active"),
            ]

        return await operator.change_organization(name, change, customer_lock(customer_id))

    return run_with_database(work)


async def _refuse_taken(
    session: AsyncSession, organization: Organization, customer_id: str | None, *, replace: bool
) -> None:
    if customer_id is None:
        return
    query = select(Organization).where(Organization.provider_customer_id == customer_id)
    other = (await session.exec(query)).first()
    if other is not None:
        raise StartError(
            f"the customer {customer_id!r} is linked to {display_organization(other)}; unlink it there first, with --unlink"
        )
    if organization.provider_customer_id is not None and not replace:
        raise StartError(
            f"{display_organization(organization)} is linked to {organization.provider_customer_id!r}; to link it to "
            f"{customer_id!r} instead, add --replace"
        )


def _is_customer(text: str) -> bool:
    return 1 <= len(text) <= MAX_ID and text.isascii() and text.isprintable() and " " not in text


def create_organization(name: str, email: str) -> Lines:
    """Create an organization and its first admin, and return a link with which the admin chooses a password.

    The organization gets the default plan. ``TOOLGATE_REGISTRATION`` is ignored.
    """

    async def work(operator: OperatorSession) -> Lines:
        registration = _registration(name, email)
        password_hash = await Passwords(threads=1, queue=0).hash(registration.password)
        vault = await _vault(operator)
        async with operator.database.writing(ACCOUNTS) as session:
            try:
                user = await add_organization(
                    session, vault, registration, password_hash, operator.settings.default_plan
                )
            except ApiError as error:
                raise StartError(f"{email!r}: {error.detail}") from None
            link = await _issue_link(session, user, operator.settings)
        plan = operator.settings.default_plan
        return [
            f"created {registration.organization_name!r} on the {plan} plan; its admin is {user.email}",
            *link,
        ]

    return run_with_database(work)


def reset_password(email: str) -> Lines:
    """Return a link with which a user can choose a new password. It works once, within an hour.

    Earlier links of the user become invalid.
    """

    async def work(operator: OperatorSession) -> Lines:
        async with operator.database.reading() as session:
            found = await find_user_by_email(session, email)
        if found is None:
            raise StartError(f"nobody with the e-mail {email!r} is registered here")
        async with operator.database.writing(found.organization_id) as session:
            user = await find_user_by_id(session, found.id)
            if user is None:
                raise StartError(f"the user with the e-mail {email!r} has just been removed")
            return await _issue_link(session, user, operator.settings)

    return run_with_database(work)


async def _vault(operator: OperatorSession) -> Vault:
    vault = await verified_vault(operator.database, operator.settings)
    if vault is None:
        # Do not create a secret: it could not be the secret of the gateway that serves this database.
        raise StartError(
            f"the gateway's secret is not in {str(secret_path())!r}; run this as the user who runs the gateway, or set "
            "TOOLGATE_SECRET"
        )
    return vault


def _registration(name: str, email: str) -> Registration:
    try:
        # The password is random and unknown. The admin chooses a new one with the link.
        return Registration(organization_name=name, email=email, password=secrets.token_urlsafe(32))
    except ValidationError as error:
        problem = error.errors()[0]
        option = {"organization_name": "NAME", "email": "EMAIL"}[str(problem["loc"][0])]
        raise StartError(f"{option}: {problem['msg'].removeprefix('Value error, ')}") from None


async def _issue_link(session: AsyncSession, user: User, settings: Settings) -> Lines:
    token = await password_reset.create_reset(session, user)
    audit.record_outside(session, user.organization_id, "user.password_reset_issued", resource_id=user.id)
    link = one_time_tokens.build_link(settings.public_url or "", one_time_tokens.RESET_PAGE, token)
    hours = int(password_reset.RESET_LIFETIME.total_seconds() // 3600)
    lines = [link, f"works once, for {hours} hour; it sets the password of {user.email}"]
    if settings.public_url is None:
        lines.append("put the gateway's address in front, or set TOOLGATE_PUBLIC_URL to have it there")
    return lines


def prune_now(*, force: bool = False) -> Lines:
    """Delete all rows whose retention has expired; with `force`, also if a clock jump has halted deletion."""

    async def work(operator: OperatorSession) -> Lines:
        settings = operator.settings
        try:
            counts = await prune(operator.database, settings.plans, settings.prune_batch, force=force)
        except RetentionHalted as halted:
            raise StartError(f"{halted}; if the clock is right, add --force") from None
        removed = [f"{count} {table}" for table, count in sorted(counts.items()) if count]
        return [f"removed {', '.join(removed)}" if removed else "nothing is kept for too long"]

    return run_with_database(work)
