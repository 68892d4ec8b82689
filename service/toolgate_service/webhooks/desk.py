"""Webhooks from end to end, for the API and for the console: one transaction each, in which the caller may still act."""

from toolgate_service.accounts.caller import Caller, First, acting, nothing_first
from toolgate_service.gateway import Gateway
from toolgate_service.webhooks import deliveries, service
from toolgate_service.webhooks.schemas import (
    DeliveryView,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)
from toolgate_service.webhooks.secrets import rotate_secret


async def create(
    gateway: Gateway, caller: Caller, environment: str, new: NewWebhook, *, first: First = nothing_first
) -> NewWebhookView:
    """Have events of an environment told to a URL; the secret is shown this once.

    Raises:
        ApiError: as for `service.create_webhook`, and for `first`.
    """
    async with acting(gateway, caller) as session:
        await first(session)
        webhook, secret = await service.create_webhook(session, gateway, caller, environment, new)
        return NewWebhookView(**service.view(webhook).model_dump(), secret=secret)


async def change(
    gateway: Gateway, caller: Caller, environment: str, webhook_id: str, changes: WebhookChange
) -> WebhookView:
    """Change a webhook, or switch it off or on.

    Raises:
        ApiError: 404, there is none of that id; and as for `service.change_webhook`.
    """
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        return service.view(await service.change_webhook(session, gateway, caller, webhook, changes))


async def delete(gateway: Gateway, caller: Caller, environment: str, webhook_id: str) -> None:
    """Delete a webhook; what is on its way to it ends.

    Raises:
        ApiError: 404, there is none of that id.
    """
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.delete_webhook(session, caller, webhook)


async def try_out(gateway: Gateway, caller: Caller, environment: str, webhook_id: str) -> DeliveryView:
    """Have a `webhook.test` event delivered, to one webhook alone and once.

    Raises:
        ApiError: 404, there is none of that id; 403, not in the plan; 409, it is switched off.
    """
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.demand_feature(session, gateway, caller)
        delivery = await deliveries.try_out(session, webhook)
        service.record(session, caller, "webhook.tested", webhook, delivery=delivery.id)
        return delivery


async def rotate(
    gateway: Gateway, caller: Caller, environment: str, webhook_id: str, *, first: First = nothing_first
) -> RotatedSecretView:
    """Make a new secret, shown this once; the former one signs beside it for 24 hours.

    Raises:
        ApiError: 404, there is none of that id; 403, not in the plan; 409, the secret is Slack's, or was rotated often;
            and as for `first`.
    """
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await first(session)
        await service.demand_feature(session, gateway, caller)
        service.demand_own_secret(webhook)
        secret, ends = await rotate_secret(session, gateway.vault, webhook)
        service.record(session, caller, "webhook.secret_rotated", webhook)
        return RotatedSecretView(id=webhook.id, secret=secret, former_secret_expires_at=ends)


async def retry(
    gateway: Gateway, caller: Caller, environment: str, webhook_id: str, delivery_id: str
) -> DeliveryView:
    """Deliver once more, at once, under the same event id.

    Raises:
        ApiError: 404, there is no such webhook or delivery; 403, not in the plan; 409, the webhook is switched off.
    """
    async with acting(gateway, caller) as session:
        webhook = await service.get_webhook(session, caller, environment, webhook_id, locked=True)
        await service.demand_feature(session, gateway, caller)
        delivery = await deliveries.retry(session, webhook, delivery_id)
        service.record(session, caller, "webhook.delivery_retried", webhook, delivery=delivery_id)
        return delivery
