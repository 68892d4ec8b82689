"""HTTP for webhooks (decisions §3, §10)."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AdminCaller, AnyCaller
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import CONFLICT, NO_FEATURE, NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import NO_STORE, NoContent, Reply
from toolgate_service.webhooks import deliveries, desk, service
from toolgate_service.webhooks.schemas import (
    DeliveryStatus,
    DeliveryView,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"], route_class=StrictRoute)


@router.get("", response_model=list[WebhookView])
async def list_webhooks(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return an environment's webhooks, newest first."""
    async with gateway.database.reading() as session:
        webhooks = await service.list_webhooks(session, caller, environment)
    return Reply([service.view(webhook) for webhook in webhooks])


@router.post("", response_model=NewWebhookView, status_code=201, responses=problems(NO_FEATURE, CONFLICT))
async def create_webhook(
    new: NewWebhook, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Have events of an environment told to a URL; the answer shows the secret, this once."""
    return Reply(await desk.create(gateway, caller, environment, new), 201, NO_STORE)


@router.get("/{webhook_id}", response_model=WebhookView, responses=problems(NOT_FOUND))
async def get_webhook(
    webhook_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one webhook."""
    async with gateway.database.reading() as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id)
    return Reply(service.view(webhook))


@router.put("/{webhook_id}", response_model=WebhookView, responses=problems(NOT_FOUND, NO_FEATURE))
async def change_webhook(
    webhook_id: str,
    change: WebhookChange,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change a webhook, or switch it on again."""
    return Reply(await desk.change(gateway, caller, environment, webhook_id, change))


@router.delete("/{webhook_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_webhook(
    webhook_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """Delete a webhook; what is on its way to it ends."""
    await desk.delete(gateway, caller, environment, webhook_id)
    return NoContent()


@router.post(
    "/{webhook_id}/test",
    response_model=DeliveryView,
    status_code=202,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
)
async def try_webhook(
    webhook_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Have a `webhook.test` event delivered, to this webhook alone and once; the delivery tells what came of it."""
    return Reply(await desk.try_out(gateway, caller, environment, webhook_id), 202)


@router.post(
    "/{webhook_id}/rotate-secret",
    response_model=RotatedSecretView,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
)
async def rotate_secret(
    webhook_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Make a new secret, shown this once; the former one signs beside it for 24 hours."""
    return Reply(await desk.rotate(gateway, caller, environment, webhook_id), headers=NO_STORE)


@router.get("/{webhook_id}/deliveries", response_model=list[DeliveryView], responses=problems(NOT_FOUND))
async def list_deliveries(
    webhook_id: str,
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[DeliveryStatus | None, Query()] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return what became of each event for a webhook, newest first."""
    async with gateway.database.reading() as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id)
        found = await deliveries.list_deliveries(session, webhook, status, page)
    return Reply(found.rows, headers=page.headers(found))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/retry",
    response_model=DeliveryView,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
)
async def retry_delivery(
    webhook_id: str,
    delivery_id: str,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Deliver once more, at once, under the same event id."""
    return Reply(await desk.retry(gateway, caller, environment, webhook_id, delivery_id))
