"""Writing down, in an SQLite file, what webhooks are told of log entries."""

import sqlite3

from toolgate_service.clock import wire
from toolgate_service.hotpath.batch import Batch
from toolgate_service.hotpath.news import agents_named, news_of, newsworthy


def tell(connection: sqlite3.Connection, batch: Batch) -> bool:
    """Write down what there is to tell of a batch, in its transaction; say whether there was anything."""
    tenants = newsworthy(batch)
    if not tenants:
        return False
    names = {
        agent_id: connection.execute("SELECT name FROM agents WHERE id = ?", (agent_id,)).fetchone()[0]
        for agent_id in agents_named(batch, tenants)
    }
    webhooks = {tenant: connection.execute(_WEBHOOKS, tenant).fetchall() for tenant in tenants}
    events, deliveries = news_of(batch, webhooks, names)
    connection.executemany(_EVENT, [(*row[:-1], wire(row.created_at)) for row in events])
    connection.executemany(_DELIVERY, [(*row[:-1], wire(row.moment), wire(row.moment)) for row in deliveries])
    return bool(events)


_WEBHOOKS = "SELECT id, events FROM webhooks WHERE organization_id = ? AND environment = ? AND is_active"

_EVENT = """
INSERT INTO events (id, organization_id, environment, kind, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)
"""

_DELIVERY = """
INSERT INTO deliveries (id, organization_id, environment, event_id, webhook_id, status, attempts, next_attempt_at,
                        created_at)
VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?)
"""
