"""Console page that lists, creates, enables, disables and deletes budgets."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.budgets import service
from toolgate_service.budgets.schemas import BudgetChange, BudgetUsage, BudgetView, NewBudget
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    form_route,
    page_route,
    read_number,
    require_admin,
)
from toolgate_service.console.templates import first_page, read_pagination, render_page
from toolgate_service.core.strict_json import plain_number
from toolgate_service.logs.repository import agent_names

BUDGETS = "/console/budgets"
#: Maximum number of budgets on one page.
PAGE_SIZE = 25
#: Maximum number of totals of each budget that the page shows. The API returns all of them.
MAX_TOTALS = 5
#: Percentage of the limit from which the bar of a total has the color of a warning.
NEAR = 80


@dataclass(frozen=True, slots=True)
class TotalBar:
    """Total of a budget, and the progress bar that displays it.

    Attributes:
        name: Agent or run, and currency, of the total; an empty string if the budget has only one total.
        percent: Used and reserved amount in percent of the limit, 0-100.
        standing: `full` if nothing is left, `near` if at least `NEAR` percent is used or reserved, otherwise an empty
            string.
    """

    name: str
    used: str
    reserved: str
    left: str
    percent: int
    standing: str


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """Budget with the newest totals of its current window.

    Attributes:
        more: Number of further totals that the page does not show.
    """

    budget: BudgetView
    limit: str
    totals: Sequence[TotalBar]
    more: int


async def show_budgets(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    """Show the budgets page: the budgets with their newest totals, and a form that creates a budget."""
    pagination, rows = read_pagination(page, PAGE_SIZE), []
    async with page.gateway.database.reading() as session:
        found = await service.list_budgets(session, page.caller, page.environment, pagination)
        for budget in found.rows:
            usage, totals = await service.list_usage(
                session, page.caller, page.environment, budget.id, first_page(page, MAX_TOTALS)
            )
            subjects = {one.subject for one in usage if one.subject} if budget.scope == "agent" else set()
            names = await agent_names(session, subjects) if subjects else {}
            view = service.serialize_budget(budget)
            bars = [_bar(one, names.get(one.subject or "", one.subject or "")) for one in usage]
            rows.append(BudgetRow(view, plain_number(budget.maximum), bars, totals.total - len(bars)))
    return await render_page(
        page,
        "budgets.html",
        status,
        rows=rows,
        message=message,
        typed=typed or Form([]),
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last else None,
    )


def _bar(usage: BudgetUsage, subject: str) -> TotalBar:
    percent = _percent(usage.limit - usage.left, usage.limit)
    standing = "full" if usage.left <= 0 else "near" if percent >= NEAR else ""
    name = " ".join(one for one in (subject, usage.currency) if one)
    used, reserved, left = (plain_number(one) for one in (usage.used, usage.reserved, usage.left))
    return TotalBar(name, used, reserved, left, percent, standing)


def _percent(part: Decimal, whole: Decimal) -> int:
    if part >= whole:
        return 100
    return max(0, int(part * 100 / whole))


async def create_budget(page: PageContext, form: Form) -> Response:
    """Create the budget that the form describes."""
    new = NewBudget.model_validate(
        {
            "name": form["name"].strip(),
            "actions": form["actions"].replace(",", " ").split(),
            "measure": form["measure"].strip(),
            "currency_arg": form.text("currency_arg"),
            "window": form["window"].strip(),
            "limit": read_number(form, "limit"),
            "scope": form["scope"],
            "at_limit": form["at_limit"],
        }
    )
    await service.create_budget(page.gateway, page.caller, page.environment, new)
    return RedirectResponse(page.url(BUDGETS), 303)


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable or disable a budget."""
    enabled: object = {"on": True, "off": False}.get(form["status"], form["status"])
    change = BudgetChange.model_validate({"enabled": enabled})
    await service.change_budget(page.gateway, page.caller, page.environment, page.param("budget_id"), change)
    return RedirectResponse(page.url(BUDGETS), 303)


async def delete_budget(page: PageContext, _form: Form) -> Response:
    """Delete a budget."""
    await service.delete_budget(page.gateway, page.caller, page.environment, page.param("budget_id"))
    return RedirectResponse(page.url(BUDGETS), 303)


ROUTES: Sequence[Route] = (
    page_route(BUDGETS, show_budgets),
    form_route(BUDGETS, create_budget, authorize=require_admin, on_error=show_budgets, keeps_input=True),
    form_route(f"{BUDGETS}/{{budget_id}}/status", change_status, authorize=require_admin),
    form_route(f"{BUDGETS}/{{budget_id}}/delete", delete_budget, authorize=require_admin),
)
