"""HTTP for webhooks (decisions §3, §10)."""

from typing import Annotated

from fastapi import APIRouter, Query

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, acting
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import CONFLICT, NO_FEATURE, NOT_FOUND, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import NO_STORE, NoContent, Reply
from toolgate_service.webhooks import deliveries, service
from toolgate_service.webhooks.schemas import (
    DeliveryStatus,
    DeliveryView,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)
from toolgate_service.webhooks.secrets import rotate_secret as rotate

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
    async with acting(gateway, caller) as session:
        webhook, secret = await service.create_webhook(session, gateway, caller, environment, new)
        made = NewWebhookView(**service.view(webhook).model_dump(), secret=secret)
    return Reply(made, 201, NO_STORE)


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
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        webhook = await service.change_webhook(session, gateway, caller, webhook, change)
    return Reply(service.view(webhook))


@router.delete("/{webhook_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_webhook(
    webhook_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """Delete a webhook; what is on its way to it ends."""
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.delete_webhook(session, caller, webhook)
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
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.demand_feature(session, gateway, caller)
        delivery = await deliveries.try_out(session, webhook)
        service.record(session, caller, "webhook.tested", webhook, delivery=delivery.id)
    return Reply(delivery, 202)


@router.post(
    "/{webhook_id}/rotate-secret",
    response_model=RotatedSecretView,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
)
async def rotate_secret(
    webhook_id: str, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Make a new secret, shown this once; the former one signs beside it for 24 hours."""
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.demand_feature(session, gateway, caller)
        service.demand_own_secret(webhook)
        secret, ends = await rotate(session, gateway.vault, webhook)
        service.record(session, caller, "webhook.secret_rotated", webhook)
    rotated = RotatedSecretView(id=webhook.id, secret=secret, former_secret_expires_at=ends)
    return Reply(rotated, headers=NO_STORE)


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
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.demand_feature(session, gateway, caller)
        delivery = await deliveries.retry(session, webhook, delivery_id)
        service.record(session, caller, "webhook.delivery_retried", webhook, delivery=delivery_id)
    return Reply(delivery)
