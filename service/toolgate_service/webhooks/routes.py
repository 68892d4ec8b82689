"""HTTP routes that manage webhooks and their deliveries, under `/api/webhooks`."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from toolgate_service.http.dependencies import (
    AdminCaller,
    AnyCaller,
    EnvironmentName,
    GatewayDep,
    PageDep,
    WebhookIdPath,
)
from toolgate_service.http.openapi import CONFLICT, NO_FEATURE, NOT_FOUND, problems
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.webhooks import service
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


@router.get("", response_model=list[WebhookView], summary="List webhooks")
async def list_webhooks(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the webhooks of an environment, newest first."""
    return Reply(await service.list_webhooks(gateway, caller, environment))


@router.post(
    "",
    response_model=NewWebhookView,
    status_code=201,
    responses=problems(NO_FEATURE, CONFLICT),
    summary="Create a webhook",
)
async def create_webhook(
    new: NewWebhook, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create a webhook, which sends the events of an environment to a URL.

    Only this response contains the signing secret. The response is 400 if the URL is not allowed, 403 if the plan does
    not include webhooks, and 409 if the environment already has 20 webhooks.
    """
    return Reply(await service.create_webhook(gateway, caller, environment, new), 201, NO_STORE)


@router.get(
    "/{webhook_id}", response_model=WebhookView, responses=problems(NOT_FOUND), summary="Get a webhook"
)
async def get_webhook(
    webhook_id: WebhookIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the webhook with this id."""
    return Reply(await service.show_webhook(gateway, caller, environment, webhook_id))


@router.put(
    "/{webhook_id}",
    response_model=WebhookView,
    responses=problems(NOT_FOUND, NO_FEATURE),
    summary="Change a webhook",
)
async def change_webhook(
    webhook_id: WebhookIdPath,
    change: WebhookChange,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change the fields that the request contains. `is_active` enables or disables the webhook.

    The response is 400 if the new URL is not allowed.
    """
    return Reply(await service.update_webhook(gateway, caller, environment, webhook_id, change))


@router.delete("/{webhook_id}", status_code=204, responses=problems(NOT_FOUND), summary="Delete a webhook")
async def delete_webhook(
    webhook_id: WebhookIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete a webhook. Its pending deliveries are marked as failed."""
    await service.delete_webhook(gateway, caller, environment, webhook_id)
    return NoContent()


@router.post(
    "/{webhook_id}/test",
    response_model=DeliveryView,
    status_code=202,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
    summary="Send a test event",
)
async def try_webhook(
    webhook_id: WebhookIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Send a `webhook.test` event to this webhook.

    The gateway makes one attempt and stores its result in the delivery. The response is 409 if the webhook is disabled.
    """
    return Reply(await service.send_test_event(gateway, caller, environment, webhook_id), 202)


@router.post(
    "/{webhook_id}/rotate-secret",
    response_model=RotatedSecretView,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
    summary="Replace the signing secret of a webhook",
)
async def rotate_secret(
    webhook_id: WebhookIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Replace the signing secret. Only this response contains the new secret.

    For 24 hours, deliveries are signed with both the new and the former secret. The response is 409 for a webhook of
    the type `slack`, whose secret belongs to the Slack app.
    """
    return Reply(
        await service.rotate_webhook_secret(gateway, caller, environment, webhook_id), headers=NO_STORE
    )


@router.get(
    "/{webhook_id}/deliveries",
    response_model=list[DeliveryView],
    responses=problems(NOT_FOUND),
    summary="List the deliveries of a webhook",
)
async def list_deliveries(
    webhook_id: WebhookIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[
        DeliveryStatus | None, Query(description="Return only deliveries with this status.")
    ] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the deliveries of a webhook, newest first, page by page. They are kept for 30 days, in the test environment for 7."""
    found = await service.list_deliveries(gateway, caller, environment, webhook_id, status, page)
    return Reply(found.rows, headers=page.headers(found))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/retry",
    response_model=DeliveryView,
    responses=problems(NOT_FOUND, NO_FEATURE, CONFLICT),
    summary="Retry a delivery",
)
async def retry_delivery(
    webhook_id: WebhookIdPath,
    delivery_id: Annotated[str, Path(description="Id of the delivery, a UUID.")],
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Attempt a delivery again immediately. The receiver gets the same event id as before.

    The response is 409 if the webhook is disabled.
    """
    return Reply(await service.retry_delivery(gateway, caller, environment, webhook_id, delivery_id))
