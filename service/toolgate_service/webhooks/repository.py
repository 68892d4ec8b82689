"""Queries for webhooks and deliveries."""

from collections.abc import Sequence

from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller
from toolgate_service.core.errors import not_found
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.webhooks.models import FAILED, PENDING, Delivery, Event, Webhook
from toolgate_service.webhooks.schemas import DeliveryStatus, DeliveryView

#: values of the column `deliveries.error` for deliveries that were pending when their webhook was disabled or deleted
DISABLED = "the webhook was switched off"
DELETED = "the webhook was deleted"


async def list_webhooks(session: AsyncSession, caller: Caller, environment: str) -> Sequence[Webhook]:
    """Return an environment's webhooks, newest first."""
    query = _existing(caller, environment).order_by(col(Webhook.created_at).desc(), col(Webhook.id).desc())
    return (await session.exec(query)).all()


async def count_webhooks(session: AsyncSession, caller: Caller, environment: str) -> int:
    """Return the number of webhooks of an environment."""
    query = select(func.count()).select_from(_existing(caller, environment).subquery())
    return (await session.exec(query)).one()


async def get_webhook(
    session: AsyncSession, caller: Caller, environment: str, webhook_id: str, *, lock: bool = False
) -> Webhook:
    """Return one webhook. With `lock`, the delivery worker cannot disable the webhook until the transaction ends.

    Raises:
        ApiError: 404 if the caller's organization has no such webhook in the environment.
    """
    query = _existing(caller, environment).where(Webhook.id == webhook_id)
    webhook = (await session.exec(query.with_for_update(key_share=True) if lock else query)).first()
    if webhook is None:
        raise not_found("Webhook")
    return webhook


async def list_deliveries(
    session: AsyncSession, webhook: Webhook, status: DeliveryStatus | None, page: Page
) -> Found[DeliveryView]:
    """Return a page of a webhook's deliveries, newest first."""
    query = select(Delivery).where(Delivery.webhook_id == webhook.id)
    if status is not None:
        query = query.where(Delivery.status == status)
    found = await find_page(session, query, Delivery, page)
    return Found(await delivery_views(session, found.rows), found.total, found.last)


async def delivery_views(session: AsyncSession, deliveries: Sequence[Delivery]) -> Sequence[DeliveryView]:
    """Return webhook deliveries as API response models, each with the type of its event."""
    ids = {delivery.event_id for delivery in deliveries}
    rows = (await session.exec(select(Event.id, Event.kind).where(col(Event.id).in_(ids)))).all()
    kinds = dict(rows)
    return [
        DeliveryView.model_validate(delivery.model_dump() | {"type": kinds[delivery.event_id]})
        for delivery in deliveries
    ]


async def fail_pending(session: AsyncSession, webhook_id: str, reason: str) -> None:
    """Mark all pending deliveries of a webhook as failed. They are not attempted again."""
    await session.exec(
        update(Delivery)
        .where(col(Delivery.webhook_id) == webhook_id, col(Delivery.status) == PENDING)
        .values(status=FAILED, error=reason, next_attempt_at=None, claimed_until=None)
    )


def _existing(caller: Caller, environment: str) -> SelectOfScalar[Webhook]:
    return select(Webhook).where(
        Webhook.organization_id == caller.organization_id,
        Webhook.environment == environment,
        col(Webhook.deleted_at).is_(None),
    )
