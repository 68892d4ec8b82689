"""The gateway's answer to one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gateway answered to one check (spec §4).

    Attributes:
        allowed: The action may be carried out now.
        requires_approval: The action is held until a person approves it.
        reason: The gateway's explanation when blocked or held.
        approval_id: The approval request when held; of an allowed dry run the approved request that allows the call.
        decision_id: The gateway's id of this decision (header `X-Decision-ID`), if it sent one.
        let_through: It is refused because an approval has let this very call through before (header
            `X-Call-Let-Through`).
    """

    allowed: bool
    requires_approval: bool
    reason: str | None = None
    approval_id: str | None = None
    decision_id: str | None = None
    let_through: bool = False

    @property
    def held(self) -> bool:
        """Whether the action waits for a person."""
        return not self.allowed and self.requires_approval

    @property
    def blocked(self) -> bool:
        """Whether the action is refused."""
        return not self.allowed and not self.requires_approval

    @property
    def outcome(self) -> Literal["allowed", "blocked", "held"]:
        """The answer in one word."""
        if self.allowed:
            return "allowed"
        return "held" if self.requires_approval else "blocked"
