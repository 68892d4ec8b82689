"""HTTP routes of billing. Users of every role may read the data, even in an inactive organization."""

import logging
from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import BaseModel

from toolgate_service.billing import events, service
from toolgate_service.billing.events import HEADER, ProviderSignature
from toolgate_service.billing.schemas import (
    CurrentPlanView,
    EventFacts,
    InvoiceView,
    SubscriptionView,
    UsageView,
    read_event,
)
from toolgate_service.core.errors import ApiError
from toolgate_service.core.strict_json import read_object
from toolgate_service.gateway import Gateway
from toolgate_service.http.dependencies import AnyCaller, GatewayDep, peer
from toolgate_service.http.openapi import NOT_FOUND, problems
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)


@router.get("/plan", response_model=CurrentPlanView)
async def get_plan(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's plan and usage, and all plans."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_current_plan(session, gateway.plans, caller.organization_id))


@router.get("/usage", response_model=UsageView)
async def get_usage(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the usage of the plan, with warnings."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_usage(session, gateway.plans, caller.organization_id))


@router.get("/subscription", response_model=SubscriptionView, responses=problems(NOT_FOUND))
async def get_subscription(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's subscription."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_subscription(session, gateway.plans, caller.organization_id))


@router.get("/invoices", response_model=list[InvoiceView])
async def get_invoices(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return all invoices, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_invoices(session, caller.organization_id)
    return Reply([InvoiceView.model_validate(invoice, from_attributes=True) for invoice in found])


logger = logging.getLogger("toolgate.gateway")

#: maximum number of JSON values in an event
MAX_NODES = 25_000


class Receipt(BaseModel):
    """Response to an event. The provider reads only the status; operators see the body in the provider's dashboard."""

    received: bool = True
    outcome: str
    detail: str | None = None


def provider_routes(signature: ProviderSignature) -> APIRouter:
    """Return the routes that receive the payment provider's events."""
    router = APIRouter(tags=["billing"])

    @router.post("/billing/provider-events", response_model=Receipt)
    async def take_event(request: Request, gateway: GatewayDep) -> Reply:
        """Receive an event. Its signature is verified before the body is parsed."""
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
        return Reply(await _receipt(gateway, event))

    return router


async def _receipt(gateway: Gateway, event: EventFacts) -> Receipt:
    expected = gateway.settings.provider_livemode
    if event.livemode != expected:
        # The event is acknowledged: otherwise the provider would retry for three days and then disable the endpoint.
        logger.warning(
            "event %r has livemode %s and is ignored; this gateway takes livemode %s (TOOLGATE_PROVIDER_LIVEMODE)",
            event.id,
            event.livemode,
            expected,
        )
        detail = f"livemode is {event.livemode}; this gateway takes {expected} (TOOLGATE_PROVIDER_LIVEMODE)"
        return Receipt(outcome="ignored", detail=detail)
    if event.subscription is None and event.invoice is None:
        return Receipt(outcome="ignored", detail=f"events of kind {event.kind!r} have no effect here")
    terms = events.BillingTerms(gateway.plans, timedelta(days=gateway.settings.payment_grace_days))
    return Receipt(outcome=await events.apply_event(gateway.database, terms, event))
