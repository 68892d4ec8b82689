"""The plan: what it allows, how much of it is used, and what was paid. Nothing is bought here."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.billing import service
from toolgate_service.billing.schemas import InvoiceView, ShareView, SubscriptionView
from toolgate_service.billing.usage import share, usage_view
from toolgate_service.console.rendering import show
from toolgate_service.console.settings.money import money
from toolgate_service.console.visits import Visit, page
from toolgate_service.errors import ApiError
from toolgate_service.plans import FULL, UNLIMITED, WARN_AT
from toolgate_service.team.service import count_users

PLAN = "/console/settings/plan"
#: where the API's refusals lead (decisions §7)
UPGRADE = "/console/plan"
#: five years of them
MOST_INVOICES = 60
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Meter:
    """How much of a limit is used.

    Attributes:
        name: of what.
        used: how much, and of how much.
        per: for how long it counts; empty where it does not begin anew.
    """

    name: str
    used: ShareView
    per: str = ""

    @property
    def percent(self) -> str:
        """How much of the limit is used, in percent."""
        return f"{self.used.percentage:g}"

    @property
    def filled(self) -> str:
        """How much of its bar is filled, in percent; whatever is used can be seen."""
        return f"{min(FULL, max(self.used.percentage, 1 if self.used.current else 0)):g}"

    @property
    def standing(self) -> str:
        """How near it is: `near`, `full`, or neither."""
        if self.used.percentage >= FULL:
            return "full"
        return "near" if self.used.percentage >= WARN_AT else ""


async def plan(visit: Visit) -> Response:
    """Show it."""
    organization_id, plans = visit.caller.organization_id, visit.gateway.plans
    async with visit.gateway.database.reading() as session:
        current = await service.current_plan(session, plans, organization_id)
        people = await count_users(session, organization_id)
        bills = await service.invoices(session, organization_id, at_most=MOST_INVOICES)
        subscription = await _subscription(service.subscription(session, plans, organization_id))
    usage = usage_view(plans[current.current_plan], current.usage)
    invoices = [InvoiceView.model_validate(one, from_attributes=True) for one in bills]
    return await show(
        visit,
        "settings/plan.html",
        # Without a payment provider this gateway's plans are not sold, and their prices mean nothing.
        is_sold=visit.gateway.provider_signature is not None,
        plan=current.plan_details,
        all_plans=current.all_plans,
        rates={name: one.requests_per_minute for name, one in plans.items()},
        meters=(
            Meter("Agents", usage.agents),
            Meter("Log entries", usage.logs, "this month"),
            Meter("People in the team", share(people, current.plan_details.limits.max_team_members)),
        ),
        warnings=usage.warnings,
        subscription=subscription,
        invoices=[(one, money(one.amount, one.currency)) for one in invoices],
        unlimited=UNLIMITED,
    )


async def upgrade(visit: Visit) -> Response:
    """Lead on from where the API's refusals lead."""
    return RedirectResponse(visit.url(PLAN), 303)


async def _subscription(reading: Awaitable[SubscriptionView]) -> SubscriptionView | None:
    try:
        return await reading
    except ApiError as error:
        if error.status_code != _NOT_FOUND:
            raise
        return None


ROUTES: Sequence[Route] = (Route(PLAN, page(plan), methods=["GET"]),)
