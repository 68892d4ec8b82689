"""Requests for approval, as the person sees them who decides at this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Requested"]


@dataclass(frozen=True, slots=True)
class Requested:
    """A request that waits for a decision.

    Attributes:
        approval_id: Names it.
        action: What is to be done.
        agent_id: By whom.
        context: With what; numbers with a fraction are decimals.
        reason: Text that the agent gave; the gateway does not verify it.
    """

    approval_id: str
    action: str
    agent_id: str
    context: dict[str, Any] = field(repr=False)
    reason: str | None = None
