"""Rules, freezes, approval requests and decisions of the fake gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

from toolgate._capture.jsontext import exact
from toolgate._options import Permitted, valid_action
from toolgate.errors import ConfigurationError
from toolgate.testing.records import Outcome

__all__ = [
    "ConditionalRule",
    "Effect",
    "FakeDecision",
    "Freeze",
    "Rule",
    "StoredApproval",
    "Then",
    "When",
    "apply_rules",
    "check_pattern",
    "covers",
    "describe_amount",
    "find_amount_violation",
    "is_same",
    "read_freeze",
    "read_rule",
]

#: automatic decision of the fake gateway about approval requests, see `FakeGateway.require_approval`
Then: TypeAlias = Literal["approved", "denied", "ignored"]
#: effect of a rule on the calls that it matches
Effect: TypeAlias = Literal["forbid", "require_approval", "allow"]
#: condition of a rule: a function of the arguments of a call
When: TypeAlias = Callable[[Mapping[str, Any]], bool]

#: effects of rules, strongest first
_EFFECTS = ("forbid", "require_approval", "allow")


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

    def find_denial(self, action: str, context: Mapping[str, Any]) -> FakeDecision | None:
        """Return the denial of a call with the arguments in `context`, or None if the permission covers the call."""
        if self.permitted is None:
            reason = self.reason or f"Agent has no permission for action '{action}'"
            return FakeDecision("blocked", "no_permission", reason)
        return find_amount_violation(self.permitted, context)


@dataclass(frozen=True, slots=True)
class Freeze:
    """Freeze of an action, of all actions with a prefix (`stripe.*`), or of all actions (None)."""

    action: str | None
    reason: str

    def covers(self, action: str) -> bool:
        """Return True if the freeze denies `action`."""
        return self.action is None or covers(self.action, action)


@dataclass(frozen=True, slots=True)
class ConditionalRule:
    """Rule for the calls of several actions whose arguments match a condition; see `FakeGateway.rule`."""

    effect: Effect
    actions: tuple[str, ...]
    when: When | None
    name: str
    rule_id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def headers(self) -> Mapping[str, str]:
        """Header that names the rule in the response to a check."""
        return {"x-rule-id": self.rule_id}

    def matches(self, action: str, context: Mapping[str, Any]) -> bool:
        """Return True if the rule applies to a call of `action` with the arguments in `context`."""
        if not any(covers(pattern, action) for pattern in self.actions):
            return False
        if self.when is None:
            return True
        result: object = None
        # As in the gateway, a condition that fails, for example because an argument is missing, has the stricter
        # result. Other errors, such as a misspelled name in a function of a test, are raised.
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            result = self.when(context)
        return result is True if self.effect == "allow" else result is not False


def apply_rules(
    permission: Rule, rules: Iterable[ConditionalRule], action: str, context: Mapping[str, Any]
) -> FakeDecision:
    """Return the decision of a permission and rules about a call, without regard to approvals that were given before.

    If several rules have the strongest effect, the decision names the oldest one, but prefers rules without a condition.
    """
    denial = permission.find_denial(action, context)
    decision = denial or FakeDecision("allowed", "allowed")
    if denial is None and permission.permitted is not None and permission.permitted.held:
        decision = FakeDecision("held", "approval_required", f"Action '{action}' needs human approval")
    found = [rule for rule in rules if rule.matches(action, context)]
    if not found:
        return decision
    first = min(found, key=lambda rule: (_EFFECTS.index(rule.effect), rule.when is not None))
    if first.effect == "forbid":
        reason = f"Rule '{first.name}' forbids action '{action}'"
        return FakeDecision("blocked", "forbidden_by_rule", reason, headers=first.headers)
    if denial is not None and denial.code != "no_permission":
        # No rule lifts the maximum amount of a permission.
        return denial
    if first.effect == "require_approval":
        by_rule = f"Rule '{first.name}' requires approval for action '{action}'"
        why = decision.reason if decision.outcome == "held" else by_rule
        return FakeDecision("held", "approval_required", why, headers=first.headers)
    return decision if denial is None else FakeDecision("allowed", "allowed", headers=first.headers)


def read_rule(effect: Effect, actions: str | Iterable[str], when: When | None, name: str) -> ConditionalRule:
    """Return a rule.

    Raises:
        ConfigurationError: If the gateway would not accept the effect, the actions or the name, or `when` is not a
            function.
    """
    if effect not in _EFFECTS:
        raise ConfigurationError(
            f"Invalid effect {effect!r}: expected 'forbid', 'require_approval' or 'allow'"
        )
    patterns = (actions,) if isinstance(actions, str) else tuple(actions)
    if not patterns:
        raise ConfigurationError("A rule needs at least one action, such as 'stripe.*'")
    for pattern in patterns:
        check_pattern(pattern, "rule", or_all=True)
    if when is not None and not callable(when):
        raise ConfigurationError(
            f"Invalid when {when!r}: expected a function such as lambda args: args['amount'] > 100; the fake gateway "
            "does not evaluate CEL expressions"
        )
    if not name.strip():
        raise ConfigurationError(f"Invalid name {name!r} of a rule: expected a text, such as 'No refunds'")
    return ConditionalRule(effect, patterns, when, name.strip())


def covers(pattern: str, action: str) -> bool:
    """Return True if `action` matches `pattern`: the action itself, or a prefix and `*`."""
    return pattern == action or (pattern.endswith("*") and action.startswith(pattern[:-1]))


def check_pattern(pattern: str, owner: str, *, or_all: bool = False) -> None:
    """Validate a pattern of a rule, freeze or budget.

    Raises:
        ConfigurationError: If the gateway would not accept the pattern.
    """
    name = valid_action(pattern)
    if "?" in name or "*" in name[:-1] or (name == "*" and not or_all):
        hint = "or '*' for all actions" if or_all else "omit action to freeze all actions"
        raise ConfigurationError(
            f"Invalid action {name[:40]!r} of a {owner}: expected an action, or a prefix and one '*' at its end, "
            f"such as 'stripe.*'; {hint}"
        )


def read_freeze(action: str | None, reason: str) -> Freeze:
    """Return the freeze of `action`.

    Raises:
        ConfigurationError: If the gateway would not accept the action or the reason.
    """
    if action is not None:
        check_pattern(action, "freeze")
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
        reason = (
            f"context.amount must be a non-negative number, not {describe_amount(amount)}, because of {limit}"
        )
        return FakeDecision("blocked", "amount_invalid", reason)
    if amount > permitted.max_amount:
        return FakeDecision("blocked", "amount_exceeded", f"Amount {exact(amount)} is above {limit}")
    return None


def describe_amount(value: Any) -> str:
    """Describe an invalid amount for the reason of a denial, at most 40 characters of it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return repr(value[:40]) if isinstance(value, str) else exact(value)[:40]
