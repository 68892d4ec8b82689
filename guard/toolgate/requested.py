"""Approval requests, as the approver on this machine sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ApprovalRequest"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Pending approval request.

    Attributes:
        approval_id: Its id.
        action: The requested action.
        agent_id: The agent that requested it.
        context: The arguments; numbers with a fraction are decimals.
        reason: Text from the agent; the gateway does not verify it.
    """

    approval_id: str
    action: str
    agent_id: str
    context: dict[str, Any] = field(repr=False)
    reason: str | None = None
