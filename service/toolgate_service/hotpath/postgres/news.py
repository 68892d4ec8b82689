"""Writing down, in PostgreSQL, what webhooks are told of log entries."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolgate_service.hotpath.batch import Batch, Tenant
from toolgate_service.hotpath.news import Subscriber, agents_named, news_of, newsworthy

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection


async def tell(connection: "Connection", batch: Batch) -> bool:
    """Write down what there is to tell of a batch, in its transaction; say whether there was anything."""
    tenants = newsworthy(batch)
    if not tenants:
        return False
    rows = await connection.fetch(_SUBSCRIBERS, agents_named(batch, tenants), *_turned(tenants, 2))
    names: dict[str, str] = {}
    webhooks: dict[Tenant, list[Subscriber]] = {tenant: [] for tenant in tenants}
    for row_id, text, organization_id, environment in rows:
        if organization_id is None:
            names[row_id] = text
        else:
            webhooks[organization_id, environment].append((row_id, text))
    events, deliveries = news_of(batch, webhooks, names)
    if events:
        await connection.execute(_WRITE, *_turned(events, 6), *_turned(deliveries, 6))
    return bool(events)


def _turned(rows: Sequence[Sequence[object]], width: int) -> Iterable[Sequence[object]]:
    return zip(*rows, strict=True) if rows else [()] * width


# Names of agents and active webhooks in one round trip; an agent's row names no organization.
_SUBSCRIBERS = """
SELECT id, name, NULL::uuid, NULL FROM agents WHERE id = ANY($1::text[]::uuid[])
UNION ALL
SELECT w.id, w.events, w.organization_id, w.environment
FROM unnest($2::text[]::uuid[], $3::text[]) AS asked (organization_id, environment)
CROSS JOIN LATERAL (
    SELECT * FROM webhooks
    WHERE organization_id = asked.organization_id AND environment = asked.environment AND is_active
) AS w
"""

_WRITE = """
WITH events AS (
    INSERT INTO events (id, organization_id, environment, kind, payload, created_at)
    SELECT * FROM unnest($1::text[]::uuid[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
)
INSERT INTO deliveries (id, organization_id, environment, event_id, webhook_id, next_attempt_at, created_at, status,
                        attempts)
SELECT id, organization_id, environment, event_id, webhook_id, moment, moment, 'pending', 0
FROM unnest($7::text[]::uuid[], $8::text[]::uuid[], $9::text[], $10::text[]::uuid[], $11::text[]::uuid[],
            $12::timestamptz[])
    AS d (id, organization_id, environment, event_id, webhook_id, moment)
"""
