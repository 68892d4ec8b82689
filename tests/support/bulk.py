"""Log entries in numbers that nobody would send one by one, written past the gateway."""

import os
import uuid
from datetime import UTC, datetime, timedelta

from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from toolgate_service.core.clock import wire

#: written by one statement
CHUNK = 500
STATUSES = ("success", "failed", "pending", "denied")


def write_entries(
    gateway: LiveGateway,
    owner: Owner,
    agents: list[str],
    count: int,
    *,
    newest: datetime | None = None,
    environment: str = "production",
    context: str | None = None,
) -> None:
    """Write entries a second apart, the newest first, in turn for each agent, four statuses and three actions."""
    newest = newest or datetime.now(UTC)
    organization = owner.user["organization_id"]
    query = "SELECT id FROM api_keys WHERE organization_id = ? AND environment = ?"
    key = rows(gateway, query, organization, environment)[0][0]
    for start in range(0, count, CHUNK):
        values = [
            f"('{uuid.UUID(bytes=os.urandom(16))}', '{organization}', '{environment}', '{agents[n % len(agents)]}', "
            f"'action.{n % 3}', '{STATUSES[n % 4]}', {'NULL' if context is None else repr(context)}, "
            f"'{wire(newest - timedelta(seconds=n))}', '{key}')"
            for n in range(start, min(start + CHUNK, count))
        ]
        columns = "id, organization_id, environment, agent_id, action, status, context, created_at, key_id"
        execute(gateway, f"INSERT INTO log_entries ({columns}) VALUES {', '.join(values)}")
