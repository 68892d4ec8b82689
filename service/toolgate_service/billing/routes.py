"""HTTP for billing (spec §4, decisions §3). Every role may read; an inactive organization too."""

from fastapi import APIRouter

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.billing import service
from toolgate_service.billing.schemas import CurrentPlanView, InvoiceView, SubscriptionView, UsageView
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import Reply

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)


@router.get("/plan", response_model=CurrentPlanView)
async def get_plan(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's plan, what of it is used, and all plans."""
    async with gateway.database.reading() as session:
        return Reply(await service.current_plan(session, gateway.plans, caller.organization_id))


@router.get("/usage", response_model=UsageView)
async def get_usage(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return how much of the plan is used, with warnings."""
    async with gateway.database.reading() as session:
        return Reply(await service.usage(session, gateway.plans, caller.organization_id))


@router.get("/subscription", response_model=SubscriptionView, responses=problems(NOT_FOUND))
async def get_subscription(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's subscription."""
    async with gateway.database.reading() as session:
        return Reply(await service.subscription(session, gateway.plans, caller.organization_id))


@router.get("/invoices", response_model=list[InvoiceView])
async def get_invoices(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return all invoices, newest first."""
    async with gateway.database.reading() as session:
        found = await service.invoices(session, caller.organization_id)
    return Reply([InvoiceView.model_validate(invoice, from_attributes=True) for invoice in found])
