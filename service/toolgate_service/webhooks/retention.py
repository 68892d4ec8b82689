"""Retention of webhook data: removal of old events, deliveries and secrets, and of deleted webhooks."""

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists
from sqlmodel import col

from toolgate_service.db.database import Database
from toolgate_service.db.models import PRODUCTION, TEST, Table
from toolgate_service.jobs.batches import delete_where
from toolgate_service.webhooks.models import PENDING, Delivery, Event, Webhook, WebhookSecret

#: time after which events and deliveries are removed, by environment
RETENTION = {PRODUCTION: timedelta(days=30), TEST: timedelta(days=7)}


async def prune_webhooks(database: Database, batch: int, moment: datetime) -> Counter[str]:
    """Remove old deliveries and events, expired secrets, and deleted webhooks without deliveries.

    Returns:
        Number of removed rows by table.
    """
    counts: Counter[str] = Counter()

    async def remove(table: type[Table], *conditions: ColumnElement[bool]) -> None:
        counts[str(table.__tablename__)] += await delete_where(database, batch, table, *conditions)

    for environment, age in RETENTION.items():
        await remove(
            Delivery,
            col(Delivery.environment) == environment,
            col(Delivery.created_at) < moment - age,
            # Pending deliveries are kept, whatever their age.
            col(Delivery.status) != PENDING,
        )
        await remove(
            Event,
            col(Event.environment) == environment,
            col(Event.created_at) < moment - age,
            ~exists().where(col(Delivery.event_id) == col(Event.id)),
        )
    await remove(WebhookSecret, col(WebhookSecret.expires_at) <= moment)
    await remove(
        Webhook,
        col(Webhook.deleted_at).is_not(None),
        ~exists().where(col(Delivery.webhook_id) == col(Webhook.id)),
        ~exists().where(col(WebhookSecret.webhook_id) == col(Webhook.id)),
    )
    return counts
