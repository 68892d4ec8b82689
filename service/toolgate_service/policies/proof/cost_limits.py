"""Formulas for the cost limits of conditions.

There are two cost limits: one for each condition, and one for all conditions of a check together. A condition has no
result if the arguments that it reads are so large that its evaluation would exceed a limit. A change of one rule can
therefore affect the results of the conditions of other rules. The proof includes the limits if the arguments of a valid
call can be so large that a limit is exceeded, which the module `cost_bounds` determines.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import z3

from toolgate_service.policies.proof.call_classes import PolicyPart
from toolgate_service.policies.proof.cost_bounds import MAX_BYTES, MAX_VALUES
from toolgate_service.policies.proof.symbols import (
    Bool,
    Kind,
    Number,
    Path,
    SymbolicCall,
    Ternary,
    all_of,
    negated,
)
from toolgate_service.policies.proof.translation import Condition
from toolgate_service.rules.expression_cost import MAX_COST
from toolgate_service.rules.expressions import MAX_TOTAL_COST, ROUGH_COST


class _Size(NamedTuple):
    """Z3 variables for the number of values, and of bytes of text, in one value of the arguments."""

    values: Number
    length: Number


class CostLimits:
    """Formulas for the costs of the conditions that apply to the calls of one `CallClass`.

    Args:
        call: Variables of a call of the class.
        conditions: Translated conditions of both policies by their texts.
    """

    def __init__(self, call: SymbolicCall, conditions: Mapping[str, Condition]) -> None:
        self._call = call
        self._sizes: dict[Path, _Size] = {}
        #: formulas that are true for every valid call
        self.constraints: list[Bool] = []
        self._costs: dict[str, Number] = {}
        for text, condition in conditions.items():
            if condition.analysis.uses_args:
                self._costs[text] = self._create_cost(condition)
        single = [size for path, size in self._sizes.items() if len(path) == 1]
        if single:
            # An argument that is missing counts as one value.
            self.constraints += [
                z3.Sum([size.values for size in single]) <= MAX_VALUES + len(single),
                z3.Sum([size.length for size in single]) <= MAX_BYTES,
            ]

    @property
    def paths(self) -> list[Path]:
        """Paths of the argument values to which the constraints refer."""
        return [path for path in self._sizes if path]

    def results(self, part: PolicyPart, conditions: Mapping[str, Condition]) -> Sequence[Ternary | None]:
        """Return the result of each rule's condition within the cost limits; None for a rule without a condition."""
        spent: Number = z3.IntVal(0)
        results: list[Ternary | None] = []
        for rule in part.rules:
            if rule.when is None:
                results.append(None)
                continue
            condition, cost = conditions[rule.when], self._costs.get(rule.when)
            if cost is None:
                results.append(condition.result)
                continue
            is_affordable = z3.And(cost <= MAX_COST, spent + cost <= MAX_TOTAL_COST)
            true, false = condition.result
            results.append(Ternary(all_of(true, is_affordable), all_of(false, is_affordable)))
            spent = z3.If(all_of(is_affordable, negated(condition.is_unusable)), spent + cost, spent)
        return results

    def _create_cost(self, condition: Condition) -> Number:
        """Return a variable for the cost of a condition.

        Instead of the exact cost, the gateway uses a rough estimate if this is at most `ROUGH_COST`. The estimate
        depends only on the condition and the arguments, so it is the same in both policies.
        """
        base = condition.analysis.cost.base
        terms = condition.analysis.cost.terms
        exact = z3.Sum(
            [
                z3.IntVal(base),
                *(
                    value * self._size(path).values + byte * self._size(path).length
                    for path, (value, byte) in terms.items()
                ),
            ]
        )
        cost = z3.Int(f"cost {len(self._costs)}")
        # Unlike the exact cost, the estimate does not count a missing argument as one value.
        missing = sum(value for value, _ in terms.values())
        estimate = z3.And(cost >= base, cost >= exact - missing, cost <= ROUGH_COST)
        self.constraints.append(z3.Or(cost == exact, estimate))
        return cost

    def _size(self, path: Path) -> _Size:
        if path in self._sizes:
            return self._sizes[path]
        size = _Size(z3.Int(f"values {path!r}"), z3.Int(f"bytes {path!r}"))
        self._sizes[path] = size
        self.constraints += [
            size.values >= 1,
            size.values <= MAX_VALUES + 1,
            size.length >= 0,
            size.length <= MAX_BYTES,
        ]
        # Constraints on the kind of the value are not added for paths with an index: when the gateway measures the
        # cost, the index can also select a character of a text.
        if path and all(isinstance(part, str) for part in path):
            self._add_kind(path, size)
        return size

    def _add_kind(self, path: Path, size: _Size) -> None:
        variable, exists = self._call.variable(path), self._call.presence(path)
        is_container = all_of(exists, variable.is_kind(Kind.LIST, Kind.MAP))
        has_text = all_of(exists, variable.is_kind(Kind.LIST, Kind.MAP, Kind.TEXT))
        self.constraints += [
            z3.Or(is_container, size.values == 1),
            z3.Or(has_text, size.length == 0),
        ]
        if len(path) > 1:
            outer = self._size(path[:-1])
            self.constraints += [
                z3.Implies(exists, size.values < outer.values),
                size.length <= outer.length,
            ]
