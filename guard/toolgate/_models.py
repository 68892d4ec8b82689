"""Decisions and approvals: what the gateway returns, and the check that asks for it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolgate._capture.jsontext import Json
from toolgate._identity import Identity

__all__ = [
    "Approval",
    "ApprovalRequest",
    "ApprovalStatus",
    "AuthorizedCall",
    "Check",
    "Decision",
    "LogStatus",
]

LogStatus: TypeAlias = Literal["success", "failed", "pending", "denied"]
ApprovalStatus: TypeAlias = Literal[
    "pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"
]


@dataclass(frozen=True, slots=True)
class Check:
    """Request for a decision (`POST /sdk/check`).

    Attributes:
        action: The action.
        who: The agent, its run and the call's id.
        context: The arguments, redacted.
        approval_id: The approval that must cover the call; None if any may.
        dry_run: Decide without creating an approval request or consuming an approval.
        key: Idempotency key, the same for every retry: a lost response must not consume a second approval.
        reason: Text for the approver; it does not influence the decision.
    """

    action: str
    who: Identity
    context: dict[str, Json]
    approval_id: str | None = None
    dry_run: bool = False
    key: str = field(default_factory=lambda: secrets.token_hex(16), compare=False, repr=False)
    reason: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one check.

    Attributes:
        allowed: The action may be carried out now.
        requires_approval: A person must approve the action first.
        reason: The gateway's explanation when the action is denied or requires approval.
        approval_id: The approval request. For an allowed dry run: the approved request that covers the call.
        decision_id: The gateway's id of this decision (header `X-Decision-ID`), if it sent one.
        already_used: The call is denied because an approval was consumed by a call with this id before.
    """

    allowed: bool
    requires_approval: bool
    reason: str | None = None
    approval_id: str | None = None
    decision_id: str | None = None
    already_used: bool = False

    @property
    def held(self) -> bool:
        """True if the action requires a person's approval and has none."""
        return not self.allowed and self.requires_approval

    @property
    def blocked(self) -> bool:
        """True if the policy denies the action."""
        return not self.allowed and not self.requires_approval

    @property
    def outcome(self) -> Literal["allowed", "blocked", "held"]:
        """The decision as one word."""
        if self.allowed:
            return "allowed"
        return "held" if self.requires_approval else "blocked"

    @property
    def let_through(self) -> bool:
        """Deprecated name of `already_used`."""
        from toolgate._logging import warn_renamed

        warn_renamed("Decision.let_through", "Decision.already_used")
        return self.already_used


@dataclass(frozen=True, slots=True)
class Approval:
    """State of an approval request.

    Attributes:
        status: Its state.
        note: The approver's note.
        replaced_by: Id of the approval request that replaced it when an approver edited the call.
        approved_context: The context that the approver approved instead of the requested one.
        context: The requested context.
        action: The requested action.
        agent_id: The agent that requested it.
        approval_id: Its id.
    """

    status: ApprovalStatus
    note: str | None = None
    replaced_by: str | None = None
    approved_context: dict[str, Json] | None = None
    context: dict[str, Json] | None = None
    action: str | None = None
    agent_id: str | None = None
    approval_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Pending approval request, as an approver on this machine sees it.

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


@dataclass(frozen=True, slots=True)
class AuthorizedCall:
    """Allowed call whose tool runs in another process, once.

    Attributes:
        context: The context of the check, with the approver's edits.
        asked: The context as it was sent: hidden values are digests, so that it may be stored.
        agent_id: The agent.
        approval_id: The approval that covers the call, if it required one.
        decision_id: The gateway's decision.
    """

    context: dict[str, Any] = field(repr=False)
    asked: dict[str, Json] = field(repr=False)
    agent_id: str
    approval_id: str | None
    decision_id: str | None
