"""HTTP routes for billing.

All users of an organization may read its billing data, even if the organization is inactive.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request

from toolgate_service.billing import events, service
from toolgate_service.billing.events import HEADER, ProviderSignature
from toolgate_service.billing.schemas import (
    CurrentPlanView,
    InvoiceView,
    Receipt,
    SubscriptionView,
    UsageView,
    read_event,
)
from toolgate_service.core.errors import ApiError
from toolgate_service.core.strict_json import read_object
from toolgate_service.http.dependencies import AnyCaller, GatewayDep, peer
from toolgate_service.http.openapi import NOT_FOUND, problems
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)


@router.get("/plan", response_model=CurrentPlanView, summary="Get the current plan")
async def get_plan(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's plan and usage, and all available plans."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_current_plan(session, gateway.plans, caller.organization_id))


@router.get("/usage", response_model=UsageView, summary="Get the usage of the plan")
async def get_usage(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the usage of the plan's limits, with a warning for each limit that is nearly reached."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_usage(session, gateway.plans, caller.organization_id))


@router.get(
    "/subscription",
    response_model=SubscriptionView,
    responses=problems(NOT_FOUND),
    summary="Get the subscription",
)
async def get_subscription(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's subscription, even if it has ended. The response is 404 if there is none."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_subscription(session, gateway.plans, caller.organization_id))


@router.get("/invoices", response_model=list[InvoiceView], summary="List invoices")
async def get_invoices(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return all invoices of the organization, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_invoices(session, caller.organization_id)
    return Reply([InvoiceView.model_validate(invoice, from_attributes=True) for invoice in found])


#: Maximum number of JSON values in an event of the payment provider. The gateway rejects an event with more values.
MAX_NODES = 25_000


def provider_routes(signature: ProviderSignature) -> APIRouter:
    """Return the router with the endpoint for events of the payment provider."""
    router = APIRouter(tags=["billing"])

    @router.post("/billing/provider-events", response_model=Receipt)
    async def take_event(request: Request, gateway: GatewayDep) -> Reply:
        """Process an event of the payment provider. The signature is verified before the body is parsed."""
        try:
            header = signature.require(request.headers.get(HEADER))
            body = await request.body()
            signature.verify(body, header)
        except ApiError as error:
            if error.status_code == HTTPStatus.BAD_REQUEST:
                raise await gateway.auth_failures.reject(peer(request), error) from None
            raise
        event = await gateway.parser.run(
            len(body), lambda: read_event(read_object(body, max_nodes=MAX_NODES))
        )
        return Reply(await events.receive_event(gateway, event))

    return router
