"""Rules, freezes, approval requests and decisions of the fake gateway."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

from toolgate._capture.jsontext import exact
from toolgate._options import Permitted, valid_action
from toolgate.errors import ConfigurationError
from toolgate.testing.records import Outcome

__all__ = [
    "FakeDecision",
    "Freeze",
    "Rule",
    "StoredApproval",
    "Then",
    "find_amount_violation",
    "is_same",
    "read_freeze",
]

#: automatic decision of the fake gateway about approval requests, see `FakeGateway.require_approval`
Then: TypeAlias = Literal["approved", "denied", "ignored"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for one action.

    Attributes:
        permitted: The permission for the action; None if the action is denied.
        reason: Reason for the denial; None for the text of the real gateway.
        then: Automatic decision about approval requests; None if the test decides.
    """

    permitted: Permitted | None
    reason: str | None = None
    then: Then | None = None


@dataclass(frozen=True, slots=True)
class Freeze:
    """Freeze of an action, of all actions with a prefix (`stripe.*`), or of all actions (None)."""

    action: str | None
    reason: str

    def covers(self, action: str) -> bool:
        """Return True if the freeze denies `action`."""
        if self.action is None or self.action == action:
            return True
        return self.action.endswith("*") and action.startswith(self.action[:-1])


def read_freeze(action: str | None, reason: str) -> Freeze:
    """Return the freeze of `action`.

    Raises:
        ConfigurationError: If the gateway would not accept the action or the reason.
    """
    if action is not None:
        name = valid_action(action)
        if "?" in name or "*" in name[:-1] or name == "*":
            raise ConfigurationError(
                f"Invalid action {name[:40]!r} of a freeze: expected an action, or a prefix and one '*' at its end, "
                "such as 'stripe.*'; omit action to freeze all actions"
            )
    if not reason.strip():
        raise ConfigurationError(
            f"Invalid reason {reason!r} of a freeze: expected a text, such as 'under review'"
        )
    return Freeze(action, reason.strip())


@dataclass
class StoredApproval:
    """Approval request and its state; `check` is the JSON body of the check that created the request."""

    check: dict[str, Any]
    expires_at: float
    is_ignored: bool = False
    approval_id: str = field(default_factory=lambda: str(uuid4()))
    status: str = "pending"
    note: str | None = None
    replaced_by: str | None = None
    approved_context: dict[str, Any] | None = None
    is_rejected: bool = False
    waiters: list[Future[None]] = field(default_factory=list)

    @property
    def context(self) -> dict[str, Any]:
        """The arguments of the check."""
        return self.check.get("context") or {}

    def equals(self, other: StoredApproval) -> bool:
        """Return True if both requests are for the same call."""
        return exact(self.context) == exact(other.context) and is_same(
            self.check, other.check, "agent_id", "action", "run_id", "call_id"
        )

    def change(self, status: str, note: str | None = None) -> None:
        """Set the state, and resume the guards that wait for it."""
        self.status, self.note = status, note
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)


class FakeDecision(NamedTuple):
    """Decision of the fake gateway.

    Attributes:
        outcome: `allowed`, `blocked` (denied) or `held` (approval required).
        code: Code of the decision, which the gateway sends in the header `X-Reason-Code`.
        reason: Reason for not allowing the call; None if the call is allowed.
        approval_id: Id of the approval request that the call waits for, or None.
        headers: Further headers of the response.
    """

    outcome: Outcome
    code: str
    reason: str | None = None
    approval_id: str | None = None
    headers: Mapping[str, str] = {}


def is_same(one: Mapping[str, Any], other: Mapping[str, Any], *names: str) -> bool:
    """Return True if both mappings have the same values for `names`."""
    return all(one.get(name) == other.get(name) for name in names)


def find_amount_violation(permitted: Permitted, context: Mapping[str, Any]) -> FakeDecision | None:
    """Return the denial because of the amount in `context`, or None if the amount is allowed."""
    if permitted.max_amount is None:
        return None
    limit = f"the maximum of {exact(permitted.max_amount)} for action '{permitted.action}'"
    if "amount" not in context:
        if not permitted.amount_required:
            return None
        return FakeDecision("blocked", "amount_missing", f"context.amount is required because of {limit}")
    amount = context["amount"]
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal) or amount < 0:
        shown = repr(amount[:40]) if isinstance(amount, str) else exact(amount)[:40]
        reason = f"context.amount must be a non-negative number, not {shown}, because of {limit}"
        return FakeDecision("blocked", "amount_invalid", reason)
    if amount > permitted.max_amount:
        return FakeDecision("blocked", "amount_exceeded", f"Amount {exact(amount)} is above {limit}")
    return None
