"""Writing down, in PostgreSQL, what webhooks are told of log entries."""

from typing import TYPE_CHECKING

from toolgate_service.hotpath.batch import Batch
from toolgate_service.hotpath.news import agents_named, news_of, newsworthy

if TYPE_CHECKING:
    from toolgate_service.hotpath.postgres.connections import Connection


async def tell(connection: "Connection", batch: Batch) -> bool:
    """Write down what there is to tell of a batch, in its transaction; say whether there was anything."""
    tenants = newsworthy(batch)
    if not tenants:
        return False
    names = {row[0]: row[1] for row in await connection.fetch(_NAMES, agents_named(batch, tenants))}
    webhooks = {
        tenant: [(row[0], row[1]) for row in await connection.fetch(_WEBHOOKS, *tenant)] for tenant in tenants
    }
    events, deliveries = news_of(batch, webhooks, names)
    if events:
        await connection.executemany(_EVENT, events)
        await connection.executemany(_DELIVERY, deliveries)
    return bool(events)


_NAMES = "SELECT id, name FROM agents WHERE id = ANY($1::text[]::uuid[])"

_WEBHOOKS = "SELECT id, events FROM webhooks WHERE organization_id = $1 AND environment = $2 AND is_active"

_EVENT = """
INSERT INTO events (id, organization_id, environment, kind, payload, created_at) VALUES ($1, $2, $3, $4, $5, $6)
"""

_DELIVERY = """
INSERT INTO deliveries (id, organization_id, environment, event_id, webhook_id, status, attempts, next_attempt_at,
                        created_at)
VALUES ($1, $2, $3, $4, $5, 'pending', 0, $6, $6)
"""
