"""Evaluation of budgets against a call, without I/O, and exact arithmetic with amounts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow

from toolgate_service.budgets.models import AGENT, RUN
from toolgate_service.budgets.windows import Window
from toolgate_service.permissions.models import describe_value
from toolgate_service.rules.evaluation import action_matches

COUNT = "count"
_SUM = re.compile(r"sum\(args\.([A-Za-z_][A-Za-z0-9_]{0,63})\)")
_CURRENCY = re.compile(r"[A-Za-z0-9]{1,16}")

#: amounts have at most 400 digits before and 400 after the decimal point; with this precision, no sum is ever rounded
_EXACT = Context(prec=2000, traps=[Inexact, InvalidOperation, Overflow])
ZERO = Decimal(0)
#: maximum number of pairs of agent and action for which a `BudgetSet` caches the budgets that apply
MAX_CANDIDATES = 1_000


def add(one: Decimal, other: Decimal) -> Decimal:
    """Return the exact sum of two amounts."""
    return _EXACT.add(one, other)


def subtract(one: Decimal, other: Decimal) -> Decimal:
    """Return the exact difference of two amounts."""
    return _EXACT.subtract(one, other)


class InvalidAmount(ValueError):
    """Error for a call whose arguments do not contain the amount or the currency that a budget needs."""


def measured_argument(measure: str) -> str | None:
    """Return the name of the argument whose values a measure sums up; None if the measure counts calls.

    Raises:
        ValueError: The measure is invalid.
    """
    if measure == COUNT:
        return None
    found = _SUM.fullmatch(measure)
    if found is None:
        raise ValueError(
            "must be 'count', or 'sum(args.NAME)' with the name of an argument, such as 'sum(args.amount)'"
        )
    return found[1]


def read_amount(argument: str | None, args: Mapping[str, object]) -> Decimal:
    """Return the amount of a call: 1 without `argument`, otherwise the value of this argument.

    Raises:
        InvalidAmount: The argument is missing, or it is not a non-negative number.
    """
    if argument is None:
        return Decimal(1)
    value = args.get(argument)
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and value >= 0:
        return Decimal(value)
    if argument not in args:
        raise InvalidAmount(f"context.{argument} is required")
    raise InvalidAmount(f"context.{argument} must be a non-negative number, not {describe_value(value)}")


def read_currency(argument: str | None, args: Mapping[str, object]) -> str:
    """Return the currency of a call in upper case; an empty text without `argument`.

    Raises:
        InvalidAmount: The argument is missing, or it is not a text of 1-16 letters and digits.
    """
    if argument is None:
        return ""
    value = args.get(argument)
    if isinstance(value, str) and _CURRENCY.fullmatch(value):
        return value.upper()
    if argument not in args:
        raise InvalidAmount(f"context.{argument} is required")
    raise InvalidAmount(
        f"context.{argument} must be a currency of 1-16 letters and digits, not {describe_value(value)}"
    )


@dataclass(frozen=True, slots=True)
class CompiledBudget:
    """Enabled budget with parsed fields, ready for evaluation.

    Attributes:
        agents: Ids of the agents whose calls count towards the budget; None for all agents.
        actions: Action patterns: exact actions, or prefixes followed by `*`.
        argument: Name of the argument whose values are summed up; None to count calls.
        currency_arg: Name of the argument that contains the currency; None if the amounts of all calls have one total.
    """

    id: str
    name: str
    scope: str
    agents: frozenset[str] | None
    actions: tuple[str, ...]
    argument: str | None
    currency_arg: str | None
    window: Window
    limit: Decimal
    at_limit: str

    def applies_to(self, agent_id: str, action: str) -> bool:
        """Return whether calls of this agent and action count towards the budget."""
        if self.agents is not None and agent_id not in self.agents:
            return False
        return any(action_matches(pattern, action) for pattern in self.actions)

    def measure(self, args: Mapping[str, object]) -> tuple[Decimal, str]:
        """Return the amount and the currency of a call.

        Raises:
            InvalidAmount: The arguments do not contain a valid amount or currency.
        """
        try:
            return read_amount(self.argument, args), read_currency(self.currency_arg, args)
        except InvalidAmount as error:
            raise InvalidAmount(f"{error}, because of budget '{self.name}'") from None

    def subject(self, agent_id: str, run_id: str | None) -> str:
        """Return whose total a call counts towards: the agent's id or the run's id, depending on the scope.

        The result is an empty text for the scope `organization`, and for the scope `run` if the call has no run id.
        """
        if self.scope == AGENT:
            return agent_id
        return (run_id or "") if self.scope == RUN else ""


class BudgetSet:
    """All enabled budgets of an environment."""

    def __init__(self, budgets: Iterable[CompiledBudget] = ()) -> None:
        # Checks lock the totals in the order of the budgets' ids, so that they cannot deadlock.
        self.budgets = tuple(sorted(budgets, key=lambda budget: budget.id))
        self._candidates: dict[tuple[str, str], tuple[CompiledBudget, ...]] = {}

    def match(self, agent_id: str | None, action: str) -> tuple[CompiledBudget, ...]:
        """Return the budgets towards which a call of an agent counts, in the order of their ids."""
        if agent_id is None or not self.budgets:
            return ()
        key = (agent_id, action)
        found = self._candidates.get(key)
        if found is None:
            if len(self._candidates) >= MAX_CANDIDATES:
                self._candidates.clear()
            found = tuple(budget for budget in self.budgets if budget.applies_to(agent_id, action))
            self._candidates[key] = found
        return found


NO_BUDGETS = BudgetSet()
