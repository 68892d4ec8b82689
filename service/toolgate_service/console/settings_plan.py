"""Settings page of the organization's plan: limits, usage and invoices."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.billing import service
from toolgate_service.billing.schemas import InvoiceView, ShareView, SubscriptionView
from toolgate_service.billing.service import share, usage_view
from toolgate_service.console.dependencies import PageContext, page_handler
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import FULL, UNLIMITED, WARN_AT
from toolgate_service.team.invitations import count_users

#: Decimal places of the currencies that do not have two, according to the payment provider's documentation.
_DIGITS = {
    **dict.fromkeys(("bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv"), 0),
    **dict.fromkeys(("xaf", "xof", "xpf"), 0),
    **dict.fromkeys(("bhd", "jod", "kwd", "omr", "tnd"), 3),
}


def format_money(amount: int, currency: str) -> str:
    """Format an amount in minor units, such as cents: ``2900`` and ``eur`` become ``29.00 EUR``."""
    digits = _DIGITS.get(currency.lower(), 2)
    return f"{Decimal(amount).scaleb(-digits):,.{digits}f} {currency.upper()}"


PLAN = "/console/settings/plan"
#: path of the upgrade URL that the API's error responses contain
UPGRADE = "/console/plan"
#: maximum number of invoices on the page; monthly invoices of five years
MAX_INVOICES = 60
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Meter:
    """Bar that shows how much of a plan limit is used.

    Attributes:
        name: Label of the limit.
        used: Current usage and the limit.
        per: Period of the limit, such as "this month"; empty if the limit has no period.
    """

    name: str
    used: ShareView
    per: str = ""

    @property
    def percent(self) -> str:
        """Used share of the limit in percent, as text without the percent sign."""
        return f"{self.used.percentage:g}"

    @property
    def filled(self) -> str:
        """Filled share of the bar in percent, as text: at most 100, and at least 1 if anything is used."""
        return f"{min(FULL, max(self.used.percentage, 1 if self.used.current else 0)):g}"

    @property
    def standing(self) -> str:
        """CSS class: ``full`` if the limit is reached, ``near`` from `WARN_AT` percent, otherwise empty."""
        if self.used.percentage >= FULL:
            return "full"
        return "near" if self.used.percentage >= WARN_AT else ""


async def show_plan(page: PageContext) -> Response:
    """Show the organization's plan, its usage and its invoices."""
    organization_id, plans = page.caller.organization_id, page.gateway.plans
    async with page.gateway.database.reading() as session:
        current = await service.get_current_plan(session, plans, organization_id)
        people = await count_users(session, organization_id)
        bills = await service.list_invoices(session, organization_id, at_most=MAX_INVOICES)
        subscription = await _subscription(service.get_subscription(session, plans, organization_id))
    usage = usage_view(plans[current.current_plan], current.usage)
    invoices = [InvoiceView.model_validate(one, from_attributes=True) for one in bills]
    return await render_page(
        page,
        "settings/plan.html",
        # The page shows prices only if a payment provider is configured.
        is_sold=page.gateway.provider_signature is not None,
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
        invoices=[(one, format_money(one.amount, one.currency)) for one in invoices],
        unlimited=UNLIMITED,
    )


async def redirect_to_plan(page: PageContext) -> Response:
    """Redirect the upgrade URL, which the API's error responses contain, to the plan page."""
    return RedirectResponse(page.url(PLAN), 303)


async def _subscription(reading: Awaitable[SubscriptionView]) -> SubscriptionView | None:
    try:
        return await reading
    except ApiError as error:
        if error.status_code != _NOT_FOUND:
            raise
        return None


ROUTES: Sequence[Route] = (Route(PLAN, page_handler(show_plan), methods=["GET"]),)
