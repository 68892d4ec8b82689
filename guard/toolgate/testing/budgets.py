"""Budgets of the fake gateway, and the amounts that calls reserve in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final, Literal, TypeAlias

from toolgate._capture.jsontext import exact
from toolgate._options import read_amount
from toolgate.errors import ConfigurationError
from toolgate.testing.rules import FakeDecision, check_pattern, covers, describe_amount

__all__ = ["AtLimit", "Budget", "Budgets", "read_budget"]

#: effect of a budget on a call that exceeds its limit
AtLimit: TypeAlias = Literal["deny", "require_approval"]

_SUM: Final = re.compile(r"sum\(args\.([A-Za-z_][A-Za-z0-9_]{0,63})\)")
# Amounts have at most 400 digits before and 400 after the decimal point. With this precision, no sum is ever rounded.
_EXACT: Final = Context(prec=2000, traps=[Inexact, InvalidOperation, Overflow])
_ZERO: Final = Decimal(0)


class InvalidAmount(ValueError):
    """Error for a call whose arguments do not contain the amount that a budget needs."""


@dataclass(eq=False, slots=True)
class Budget:
    """Budget with one total; see `FakeGateway.budget`.

    Attributes:
        argument: Name of the argument whose values are summed up; None to count calls.
        left: Amount that is left. It is negative if an approved call or a log entry exceeded the limit.
    """

    name: str
    actions: Sequence[str]
    argument: str | None
    limit: Decimal
    at_limit: AtLimit
    left: Decimal = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limit

    def read_amount(self, context: Mapping[str, Any]) -> Decimal:
        """Return the amount of a call.

        Raises:
            InvalidAmount: If the arguments do not contain a valid amount.
        """
        if self.argument is None:
            return Decimal(1)
        value = context.get(self.argument)
        if isinstance(value, int | Decimal) and not isinstance(value, bool) and value >= 0:
            return Decimal(value)
        if self.argument not in context:
            raise InvalidAmount(f"context.{self.argument} is required")
        raise InvalidAmount(
            f"context.{self.argument} must be a non-negative number, not {describe_amount(value)}"
        )


@dataclass(slots=True)
class _Reservation:
    """Amount of an allowed call in one budget.

    Attributes:
        reserved: Amount by the check.
        counted: Amount that the total contains at present.
    """

    budget: Budget
    action: str
    agent_id: str
    reserved: Decimal
    counted: Decimal = _ZERO

    def read_settled_amount(self, context: Mapping[str, Any]) -> Decimal:
        """Return the amount in the context of a log entry; the reserved amount if the context contains no valid one."""
        try:
            return self.budget.read_amount(context)
        except InvalidAmount:
            # For example, the SDK has redacted the argument.
            return self.reserved

    def count(self, amount: Decimal) -> None:
        """Replace the amount that the total contains."""
        self.budget.left = _EXACT.subtract(_EXACT.add(self.budget.left, self.counted), amount)
        self.counted = amount


class Budgets:
    """All budgets of a fake gateway, and the reservations of the calls that it allowed."""

    def __init__(self) -> None:
        self._budgets: list[Budget] = []
        self._reservations: dict[str, list[_Reservation]] = {}

    def add(self, budget: Budget) -> None:
        """Add a budget, which applies from the next check on."""
        self._budgets.append(budget)

    def clear(self) -> None:
        """Remove all budgets."""
        self._budgets.clear()

    def find_invalid_amount(self, action: str, context: Mapping[str, Any]) -> FakeDecision | None:
        """Return the denial if the arguments of a call do not contain an amount that a budget needs, or None."""
        for budget in self._match(action):
            try:
                budget.read_amount(context)
            except InvalidAmount as error:
                reason = f"{error}, because of budget '{budget.name}'"
                return FakeDecision("blocked", "budget_amount_invalid", reason)
        return None

    def find_exceeded(self, action: str, context: Mapping[str, Any]) -> FakeDecision | None:
        """Return the denial, or the required approval, if budgets do not cover a call with valid amounts, or None.

        Budgets that deny take precedence over budgets that require an approval, and older budgets over newer ones.
        """
        found = [
            (budget, amount) for budget, amount in self._amounts(action, context) if amount > budget.left
        ]
        if not found:
            return None
        budget, amount = min(found, key=lambda each: each[0].at_limit != "deny")
        what = "another call" if budget.argument is None else f"the amount {exact(amount)}"
        left = f"{exact(max(budget.left, _ZERO))} of {exact(budget.limit)} is left in this window"
        reason = f"Budget '{budget.name}' does not cover {what}: {left}"
        if budget.at_limit == "deny":
            return FakeDecision("blocked", "budget_exceeded", reason)
        return FakeDecision("held", "approval_required", reason)

    def reserve(self, check: Mapping[str, Any], decision_id: str) -> str | None:
        """Reserve the amounts of an allowed call, except for a dry run.

        Returns:
            The smallest amount that is left after the call, for the header of the response; None if no budget applies.
        """
        action, left = check["action"], []
        for budget, amount in self._amounts(action, check.get("context") or {}):
            left.append(_EXACT.subtract(budget.left, amount))
            if not check.get("dry_run"):
                reservation = _Reservation(budget, action, check["agent_id"], amount)
                reservation.count(amount)
                self._reservations.setdefault(decision_id, []).append(reservation)
        return exact(min(left)) if left else None

    def settle(self, entry: Mapping[str, Any]) -> None:
        """Settle or release the reservations of a call according to its log entry; the last final status applies."""
        status, context = entry["status"], entry.get("context") or {}
        for each in self._reservations.get(entry.get("decision_id") or "", ()):
            if (each.agent_id, each.action) != (entry["agent_id"], entry["action"]):
                continue
            if status == "success":
                each.count(each.read_settled_amount(context))
            elif status in {"failed", "denied"}:
                each.count(_ZERO)

    def _match(self, action: str) -> Iterator[Budget]:
        return (each for each in self._budgets if any(covers(pattern, action) for pattern in each.actions))

    def _amounts(self, action: str, context: Mapping[str, Any]) -> Iterator[tuple[Budget, Decimal]]:
        return ((budget, budget.read_amount(context)) for budget in self._match(action))


def read_budget(
    limit: float | Decimal, actions: Sequence[str], measure: str, at_limit: AtLimit, name: str
) -> Budget:
    """Return a budget.

    Raises:
        ConfigurationError: If the gateway would not accept a value.
    """
    maximum = read_amount(limit)
    if maximum is None:
        raise ConfigurationError(f"Invalid limit {limit!r} of a budget: expected a number from 0")
    for pattern in actions:
        check_pattern(pattern, "budget", or_all=True)
    found = _SUM.fullmatch(measure)
    if found is None and measure != "count":
        raise ConfigurationError(
            f"Invalid measure {measure!r} of a budget: expected 'count', or 'sum(args.NAME)' with the name of an "
            "argument, such as 'sum(args.amount)'"
        )
    if at_limit not in {"deny", "require_approval"}:
        raise ConfigurationError(f"Invalid at_limit {at_limit!r}: expected 'deny' or 'require_approval'")
    if not name.strip():
        raise ConfigurationError(f"Invalid name {name!r} of a budget: expected a text, such as 'Refunds'")
    return Budget(name.strip(), actions or ("*",), found and found[1], maximum, at_limit)
