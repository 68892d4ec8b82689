"""HTTP for the payment provider's events (decisions §11)."""

import logging
from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import BaseModel

from toolgate_service.accounts.caller import peer
from toolgate_service.billing import intake
from toolgate_service.billing.facts import EventFacts, read_event
from toolgate_service.billing.signature import HEADER, ProviderSignature
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway, GatewayDep
from toolgate_service.web.bodies import read_object
from toolgate_service.web.replies import Reply

logger = logging.getLogger("toolgate.gateway")

#: JSON values of an event, which the provider signed
MAX_NODES = 25_000


class Receipt(BaseModel):
    """The answer to an event. The provider reads the status alone; an operator finds the rest in its dashboard."""

    received: bool = True
    outcome: str
    detail: str | None = None


def provider_routes(signature: ProviderSignature) -> APIRouter:
    """Return the routes of a gateway that takes the provider's events."""
    router = APIRouter(tags=["billing"])

    @router.post("/billing/provider-events", response_model=Receipt)
    async def take_event(request: Request, gateway: GatewayDep) -> Reply:
        """Take an event that the provider signed. The signature is judged before a word of the body is read."""
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
        # Acknowledged, or the provider would send it for three days and then give the endpoint up.
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
    terms = intake.Terms(gateway.plans, timedelta(days=gateway.settings.payment_grace_days))
    return Receipt(outcome=await intake.take(gateway.database, terms, event))
