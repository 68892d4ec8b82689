"""One statement that says all a check must know: key, organization, agent, permission.

The same text runs on the busiest road (a raw connection) and inside the transaction in which a held check is settled.
"""

from typing import NamedTuple


class Standing(NamedTuple):
    """The row behind a valid API key.

    The agent's part is null when the key's organization has no such agent, and the permission's when the agent has
    none for the action.
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


STANDING = """
SELECT k.id, k.agent_id, k.organization_id, k.environment,
       o.is_active, o.plan, o.requests_per_minute,
       a.id, a.status,
       p.id, p.requires_approval, p.max_amount, p.amount_required
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
