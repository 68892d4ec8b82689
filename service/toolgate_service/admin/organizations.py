"""An organization's plan, rate, activity and customer, set by the operator."""

from datetime import timedelta

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.admin.desk import Desk, Lines, at_desk, shown
from toolgate_service.audit import service as audit
from toolgate_service.billing.intake import Terms, catch_up, customer_turn
from toolgate_service.billing.overdue import forgive, settle
from toolgate_service.billing.subscriptions import current_subscription, is_entitled
from toolgate_service.errors import StartError
from toolgate_service.organizations import activity, plan_changes
from toolgate_service.organizations.models import OPERATOR, PAYMENT, Organization
from toolgate_service.plan_file import MAX_ID, MAX_RATE
from toolgate_service.plans import plan_name


def set_plan(name: str, plan: str) -> Lines:
    """Put an organization on a plan at once."""
    try:
        chosen = plan_name(plan)
    except ValueError as error:
        raise StartError(str(error)) from None

    async def work(desk: Desk) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before = organization.plan
            plans = desk.settings.plans
            if not plan_changes.change_plan(session, plans, organization, chosen, by="operator"):
                return [f"{shown(organization)} was on the plan {chosen} already"]
            lines = [f"{shown(organization)} is on the plan {chosen} now; before it was {before}"]
            subscription = await current_subscription(session, organization)
            if subscription is not None and is_entitled(subscription):
                lines.append(
                    f"its subscription {subscription.provider_subscription_id!r} goes on: the provider's next event "
                    "about it sets the plan that it buys"
                )
            return lines

        return await desk.on(name, change)

    return at_desk(work)


def set_rate(name: str, requests_per_minute: int | None) -> Lines:
    """Give an organization a rate of its own, or with None its plan's again."""
    if requests_per_minute is not None and not 1 <= requests_per_minute <= MAX_RATE:
        raise StartError(f"{requests_per_minute!r} is no rate; write requests a minute from 1 to {MAX_RATE}")

    async def work(desk: Desk) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before, organization.requests_per_minute = organization.requests_per_minute, requests_per_minute
            changes = {"from": before, "to": requests_per_minute}
            audit.record_outside(session, organization.id, "organization.rate_changed", changes=changes)
            rate = requests_per_minute or desk.settings.plans[organization.plan].requests_per_minute
            whose = "of its own" if requests_per_minute else f"of the plan {organization.plan}"
            return [f"{shown(organization)} has the rate {whose} now: {rate} requests a minute"]

        return await desk.on(name, change)

    return at_desk(work)


def activate(name: str) -> Lines:
    """Let an organization work again, whatever made it inactive; what it owed until now is forgiven."""

    async def work(desk: Desk) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            await forgive(session, organization)
            if not await activity.reactivate(session, organization, OPERATOR, PAYMENT):
                return [f"{shown(organization)} was active already; failed payments until now are forgiven"]
            return [f"{shown(organization)} is active again; failed payments until now are forgiven"]

        return await desk.on(name, change)

    return at_desk(work)


def deactivate(name: str) -> Lines:
    """Stop an organization at once; no payment takes that back."""

    async def work(desk: Desk) -> Lines:
        async def change(session: AsyncSession, organization: Organization) -> Lines:
            if not await activity.deactivate(session, organization, OPERATOR):
                return [f"{shown(organization)} was deactivated by an operator already"]
            what = "its keys are refused and its users may only read, until 'toolgate admin activate'"
            return [f"{shown(organization)} is not active: {what}"]

        return await desk.on(name, change)

    return at_desk(work)


def link_customer(name: str, customer_id: str | None, *, replace: bool = False) -> Lines:
    """Link an organization to the payment provider's customer, or with None to nobody.

    What came for the customer before is applied.
    """
    if customer_id is not None and not _is_customer(customer_id):
        raise StartError(f"{customer_id!r} is no customer of the provider; copy its id, for instance cus_…")

    async def work(desk: Desk) -> Lines:
        grace = timedelta(days=desk.settings.payment_grace_days)
        terms = Terms(desk.settings.plans, grace)

        async def change(session: AsyncSession, organization: Organization) -> Lines:
            before = organization.provider_customer_id
            if customer_id == before:
                return [f"{shown(organization)} was linked to {before or 'no customer'} already"]
            await _refuse_taken(session, organization, customer_id, replace=replace)
            organization.provider_customer_id = customer_id
            await session.flush()
            changes = {"from": before, "to": customer_id}
            audit.record_outside(session, organization.id, "organization.customer_linked", changes=changes)
            applied = await catch_up(session, terms, organization) if customer_id else 0
            await settle(session, organization, grace)
            return [
                f"{shown(organization)} is linked to {customer_id or 'no customer'} now",
                f"{applied} events that came before were applied; its plan is {organization.plan}, and it is "
                + ("active" if organization.is_active else "not active"),
            ]

        return await desk.on(name, change, customer_turn(customer_id))

    return at_desk(work)


async def _refuse_taken(
    session: AsyncSession, organization: Organization, customer_id: str | None, *, replace: bool
) -> None:
    if customer_id is None:
        return
    query = select(Organization).where(Organization.provider_customer_id == customer_id)
    other = (await session.exec(query)).first()
    if other is not None:
        raise StartError(
            f"the customer {customer_id!r} is linked to {shown(other)}; unlink it there first, with --unlink"
        )
    if organization.provider_customer_id is not None and not replace:
        raise StartError(
            f"{shown(organization)} is linked to {organization.provider_customer_id!r}; to link it to "
            f"{customer_id!r} instead, add --replace"
        )


def _is_customer(text: str) -> bool:
    return 1 <= len(text) <= MAX_ID and text.isascii() and text.isprintable() and " " not in text
