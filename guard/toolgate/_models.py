"""Data that the SDK exchanges with the gateway.

These are checks (requests for a decision), decisions, approval requests and log entries.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
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
    "Entry",
    "Intent",
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
        action: Action of the call, such as `stripe.refund`.
        who: The agent, the agent's run, and the call id.
        context: The redacted arguments.
        approval_id: The only approval that may cover the call; None if any matching approval may.
        dry_run: True if the gateway must create no approval request and consume no approval.
        key: Idempotency key. All retries contain the same key, so that a retry does not consume a second approval.
        reason: Text for the approver; it does not influence the decision.
    """

    action: str
    who: Identity
    context: dict[str, Json]
    approval_id: str | None = None
    dry_run: bool = False
    key: str = field(default_factory=partial(secrets.token_hex, 16), compare=False, repr=False)
    reason: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one check.

    Attributes:
        allowed: True if the tool may run now.
        requires_approval: True if a person must approve the action.
        reason: The gateway's explanation if the action is denied or requires an approval.
        approval_id: Id of the approval request of the call, if there is one. An allowed dry run contains the id of the
            approved request that covers the call.
        decision_id: The gateway's id of this decision (header `X-Decision-ID`), if it sent one.
        already_used: True if the call is denied because an earlier call with the same call id consumed its approval.
        reason_code: Code of the decision for programs, such as `frozen` or `no_permission` (header `X-Reason-Code`).
            None if the gateway is older than this header.
        rule: Id of the rule that decided about the call, or that requires the approval (header `X-Rule-ID`). None if no
            rule did.
        budget_left: Smallest amount that is left of the budgets of the call after an allowed check (header
            `X-Budget-Left`). None if no budget applies. It is negative if an approved call exceeded a budget.
    """

    allowed: bool
    requires_approval: bool
    reason: str | None = None
    approval_id: str | None = None
    decision_id: str | None = None
    already_used: bool = False
    reason_code: str | None = None
    rule: str | None = None
    budget_left: Decimal | None = None

    @property
    def held(self) -> bool:
        """True if the action requires a person's approval, and the call has no approval yet."""
        return not self.allowed and self.requires_approval

    @property
    def blocked(self) -> bool:
        """True if the policy denies the action."""
        return not self.allowed and not self.requires_approval

    @property
    def outcome(self) -> Literal["allowed", "blocked", "held"]:
        """The decision as one word: `allowed`, `blocked` (denied) or `held` (requires an approval)."""
        if self.allowed:
            return "allowed"
        return "held" if self.requires_approval else "blocked"

    @property
    def let_through(self) -> bool:
        """Deprecated name of `already_used`."""
        from toolgate._telemetry import warn_renamed

        warn_renamed("Decision.let_through", "Decision.already_used")
        return self.already_used


@dataclass(frozen=True, slots=True)
class Approval:
    """State of an approval request.

    Attributes:
        status: State of the request.
        note: The approver's note.
        replaced_by: Id of the request that replaced this one (status `replaced`), because an approver edited the call.
        approved_context: The arguments after an approver's edits, if the request is approved; None without an edit.
        context: The redacted arguments of the call.
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent that made the call.
        approval_id: Id of the request.
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
    """Pending approval request of the embedded gateway, from `guard.gateway.pending()`.

    Attributes:
        approval_id: Id of the request.
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent that made the call.
        context: The redacted arguments; numbers with a fraction are `Decimal` objects.
        reason: The agent's reason for the call; the gateway does not verify it.
    """

    approval_id: str
    action: str
    agent_id: str
    context: dict[str, Any] = field(repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AuthorizedCall:
    """Allowed call. Another process may now run its tool once.

    Attributes:
        context: The mapping that the caller passed, with the approver's edits; it may contain secrets.
        asked: The redacted form of `context` for a log entry. Digests replace hidden values, so that it may be stored.
        agent_id: Id of the agent.
        approval_id: Id of the approval that covers the call, if an approval was required.
        decision_id: Id of the decision.
    """

    context: dict[str, Any] = field(repr=False)
    asked: dict[str, Json] = field(repr=False)
    agent_id: str
    approval_id: str | None
    decision_id: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """Log entry of one call, and the entry's Idempotency-Key.

    If an entry is sent twice, the gateway recognizes the key and stores the entry only once.

    Attributes:
        body: The entry as the JSON object of `POST /sdk/log`.
        key: Idempotency-Key: by default 128 random bits in hexadecimal.
    """

    body: dict[str, Json]
    key: str = field(default_factory=partial(secrets.token_hex, 16))


@dataclass(frozen=True, slots=True)
class Intent:
    """Reference to an intent in the outbox.

    An intent is a log entry that is stored before the tool runs. The outcome is added when the tool has ended.

    Attributes:
        place: Row id in the outbox file.
        key: Idempotency-Key of the log entry.
        process: Id of the process that stored the intent.
        size: Number of bytes that the outbox counts for the intent, including bytes reserved for the outcome.
    """

    place: int
    key: str
    process: int
    size: int = 0
