"""One statement that says all a check must know: key, organization, agent, permission.

The same text runs on the busiest road (a raw connection) and inside the transaction in which a held check is settled.
"""

from typing import NamedTuple

from sqlalchemy import bindparam, column, text
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.types import Id


class Standing(NamedTuple):
    """The row behind a valid API key.

    The agent's part is null when the key's organization has no such agent, and the permission's when the agent has
    none for the action. `ip_allow_list` is the organization's networks as its row has them; null for everywhere.
    """

    key_id: str
    key_agent_id: str | None
    organization_id: str
    environment: str
    organization_is_active: int
    plan: str
    requests_per_minute: int | None
    agent_id: str | None
    agent_status: str | None
    permission_id: str | None
    requires_approval: int | None
    max_amount: str | None
    amount_required: int | None
    ip_allow_list: str | None = None


STANDING = """
SELECT k.id, k.agent_id, k.organization_id, k.environment,
       o.is_active, o.plan, o.requests_per_minute,
       a.id, a.status,
       p.id, p.requires_approval, p.max_amount, p.amount_required,
       o.ip_allow_list
FROM api_keys k
JOIN organizations o ON o.id = k.organization_id
LEFT JOIN agents a
       ON a.id = :agent_id AND a.organization_id = k.organization_id AND a.environment = k.environment
      AND a.deleted_at IS NULL
LEFT JOIN permissions p
       ON p.organization_id = a.organization_id AND p.environment = a.environment AND p.agent_id = a.id
      AND p.action = :action
WHERE k.digest = :key_digest AND k.revoked_at IS NULL
"""

_IDS = ("key_id", "key_agent_id", "organization_id", "agent_id", "permission_id")
_TYPED = (
    text(STANDING)
    .bindparams(bindparam("agent_id", type_=Id()))
    .columns(*(column(name, Id() if name in _IDS else None) for name in Standing._fields))
)


def numbered(statement: str, sign: str) -> str:
    """Return the statement with its values by their places: key digest, agent, action.

    Args:
        statement: with names.
        sign: what the driver writes before a place.
    """
    for place, name in enumerate(("key_digest", "agent_id", "action"), 1):
        statement = statement.replace(f":{name}", f"{sign}{place}")
    return statement


async def standing_in(session: AsyncSession, key_digest: str, agent_id: str, action: str) -> Standing | None:
    """Return the same inside a transaction; None for a key that is unknown or revoked."""
    values = {"key_digest": key_digest, "agent_id": agent_id, "action": action}
    connection = await session.connection()
    rows = (await connection.execute(_TYPED, values)).fetchall()
    return Standing._make(rows[0]) if rows else None
