"""What became of each event for a webhook: listed, sent again, tried out (decisions §3, §10)."""

from collections.abc import Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import ApiError, not_found
from toolgate_service.storage.database import now
from toolgate_service.web.paging import Found, Page, find_page
from toolgate_service.webhooks.kinds import TRIAL
from toolgate_service.webhooks.models import PENDING, Delivery, Event, Webhook
from toolgate_service.webhooks.outbox import tell, wake_after_commit
from toolgate_service.webhooks.schemas import DeliveryStatus, DeliveryView
from toolgate_service.webhooks.service import view


async def list_deliveries(
    session: AsyncSession, webhook: Webhook, status: DeliveryStatus | None, page: Page
) -> Found[DeliveryView]:
    """Return a page of a webhook's deliveries, newest first."""
    query = select(Delivery).where(Delivery.webhook_id == webhook.id)
    if status is not None:
        query = query.where(Delivery.status == status)
    found = await find_page(session, query, Delivery, page)
    return Found(await _views(session, found.rows), found.total, found.last)


async def try_out(session: AsyncSession, webhook: Webhook) -> DeliveryView:
    """Have a `webhook.test` event delivered to one webhook, and return the delivery.

    Raises:
        ApiError: 409, the webhook is switched off.
    """
    _demand_active(webhook)
    (event_id,) = await tell(
        session,
        webhook.organization_id,
        webhook.environment,
        TRIAL,
        [view(webhook).model_dump()],
        [webhook.id],
    )
    query = select(Delivery).where(Delivery.webhook_id == webhook.id, Delivery.event_id == event_id)
    return (await _views(session, [(await session.exec(query)).one()]))[0]


async def retry(session: AsyncSession, webhook: Webhook, delivery_id: str) -> DeliveryView:
    """Deliver once more, at once, whatever became of it before; and return the delivery, pending again.

    Raises:
        ApiError: 404, the webhook has no such delivery; 409, the webhook is switched off.
    """
    query = select(Delivery).where(Delivery.id == delivery_id, Delivery.webhook_id == webhook.id)
    delivery = (await session.exec(query.with_for_update())).first()
    if delivery is None:
        raise not_found("Delivery")
    _demand_active(webhook)
    if delivery.status != PENDING:
        # From the beginning; what a gateway is at this moment goes on as it is.
        delivery.status, delivery.attempts, delivery.delivered_at = PENDING, 0, None
        delivery.response_code = delivery.error = None
    delivery.next_attempt_at = now(session)
    session.add(delivery)
    wake_after_commit(session)
    return (await _views(session, [delivery]))[0]


def _demand_active(webhook: Webhook) -> None:
    if not webhook.is_active:
        raise ApiError(409, "The webhook is switched off; switch it on first")


async def _views(session: AsyncSession, deliveries: Sequence[Delivery]) -> Sequence[DeliveryView]:
    ids = {delivery.event_id for delivery in deliveries}
    rows = (await session.exec(select(Event.id, Event.kind).where(col(Event.id).in_(ids)))).all()
    kinds = dict(rows)
    return [
        DeliveryView.model_validate(delivery.model_dump() | {"type": kinds[delivery.event_id]})
        for delivery in deliveries
    ]
