"""HTTP routes of budgets."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from toolgate_service.budgets import service
from toolgate_service.budgets.schemas import (
    BudgetChange,
    BudgetUsage,
    BudgetView,
    NewBudget,
    ReservationView,
    State,
)
from toolgate_service.http.dependencies import AdminCaller, AnyCaller, EnvironmentName, GatewayDep, PageDep
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/budgets", tags=["budgets"], route_class=StrictRoute)

BudgetIdPath = Annotated[str, Path(description="Id of the budget, a UUID.")]


@router.get("", response_model=list[BudgetView], summary="List budgets")
async def list_budgets(
    caller: AnyCaller, gateway: GatewayDep, page: PageDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the budgets of the environment, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_budgets(session, caller, environment, page)
    return Reply([service.serialize_budget(budget) for budget in found.rows], headers=page.headers(found))


@router.post(
    "", response_model=BudgetView, status_code=201, responses=problems(CONFLICT), summary="Create a budget"
)
async def create_budget(
    new: NewBudget, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create a budget. Calls that are allowed from the next check on count towards it.

    The response is 409 if a budget with this name exists. An environment can have at most 200 budgets.
    """
    return Reply(await service.create_budget(gateway, caller, environment, new), 201)


# This route is declared before `/{budget_id}`, because the first matching route handles a request.
@router.get("/reservations", response_model=list[ReservationView], summary="List reservations of budgets")
async def list_reservations(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    state: Annotated[
        State | None,
        Query(
            description="Return only reservations in this state. `unsettled`: no log entry has reported the outcome "
            "of the call yet."
        ),
    ] = None,
    budget_id: Annotated[str | None, Query(description="Return only reservations of this budget.")] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the reservations of allowed calls, newest first."""
    async with gateway.database.reading() as session:
        views, found = await service.list_reservations(
            session, caller, environment, page, state=state, budget_id=budget_id
        )
    return Reply(views, headers=page.headers(found))


@router.get("/{budget_id}", response_model=BudgetView, responses=problems(NOT_FOUND), summary="Get a budget")
async def get_budget(
    budget_id: BudgetIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the budget with this id."""
    async with gateway.database.reading() as session:
        budget = await service.get_budget(session, caller, environment, budget_id)
    return Reply(service.serialize_budget(budget))


@router.get(
    "/{budget_id}/usage",
    response_model=list[BudgetUsage],
    responses=problems(NOT_FOUND),
    summary="Get the usage of a budget",
)
async def get_budget_usage(
    budget_id: BudgetIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the totals of the budget in its current window: one for each subject and currency that was used."""
    async with gateway.database.reading() as session:
        usage, found = await service.list_usage(session, caller, environment, budget_id, page)
    return Reply(usage, headers=page.headers(found))


@router.put(
    "/{budget_id}",
    response_model=BudgetView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Change a budget",
)
async def change_budget(
    budget_id: BudgetIdPath,
    change: BudgetChange,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change a budget. Fields that the request omits stay unchanged. The change applies from the next check on."""
    return Reply(await service.change_budget(gateway, caller, environment, budget_id, change))


@router.delete("/{budget_id}", status_code=204, responses=problems(NOT_FOUND), summary="Delete a budget")
async def delete_budget(
    budget_id: BudgetIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete a budget. From the next check on, it limits no calls. Its totals and reservations are deleted later."""
    await service.delete_budget(gateway, caller, environment, budget_id)
    return NoContent()
