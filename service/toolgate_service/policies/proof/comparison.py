"""Comparison of two policies with Z3, for the calls of one agent with a set of actions at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from threading import Timer
from time import monotonic
from typing import Any, TypeAlias

import z3

from toolgate_service.policies.proof.call_classes import CallClass, PolicyPart
from toolgate_service.policies.proof.concrete import Confirmation
from toolgate_service.policies.proof.cost_bounds import can_exceed_limits
from toolgate_service.policies.proof.cost_limits import CostLimits
from toolgate_service.policies.proof.model_values import ModelReader
from toolgate_service.policies.proof.outcomes import is_more_lenient, match_formula, outcome_of
from toolgate_service.policies.proof.results import Counterexample
from toolgate_service.policies.proof.symbols import AMOUNT, Bool, Path, SymbolicCall, Ternary
from toolgate_service.policies.proof.translation import Condition, Translator
from toolgate_service.policies.proof.values import implications

#: maximum number of Z3 models that are tried to find a counterexample for one class of calls
_MODELS = 5
#: minimum time limit in seconds for one call of the solver, unless less time remains
_MIN_SECONDS = 0.5
#: maximum number of rules that the reasons for one class of calls name
_MAX_NAMED = 5

_Conditions: TypeAlias = Mapping[str, Condition]


class _TimeLimitError(Exception):
    """Error for a comparison whose time limit was reached while conditions were translated into Z3 formulas."""


class Comparer:
    """Comparison of two policies, one `CallClass` at a time. Conditions are translated once for all classes.

    Args:
        deadline: Time on the monotonic clock at which the comparison stops.
        moment: Time of the calls that are tried as counterexamples. If a condition reads the time, times in the week
            after it are tried too.
    """

    def __init__(self, deadline: float, moment: datetime) -> None:
        self._deadline = deadline
        self._moment = moment
        self._call = SymbolicCall()
        self._translated: dict[tuple[object, ...], Condition] = {}

    def compare(self, call_class: CallClass, confirmation: Confirmation) -> Counterexample | Sequence[str]:
        """Return a counterexample, or reasons why nothing was proven; an empty sequence for a proof."""
        try:
            return self._compare(call_class, confirmation)
        except _TimeLimitError:
            return [f"The time limit was reached while the rules for {describe(call_class)} were translated"]

    def _compare(self, call_class: CallClass, confirmation: Confirmation) -> Counterexample | Sequence[str]:
        shallow = self._query(call_class, is_shallow=True)
        if self._check(shallow.solver()) == z3.unsat:
            return self._include_limits(shallow)
        found = confirmation.search(None, self._moment, self._has_time)
        if found is not None:
            return confirmation.simplify(found)
        query = self._query(call_class)
        solver = query.solver()
        answer = self._check(solver)
        if answer == z3.unsat:
            return self._include_limits(query)
        if answer == z3.sat:
            found = self._refine(query, solver, confirmation)
            return query.reasons() if found is None else confirmation.simplify(found)
        return [_undecided(call_class)]

    def _query(self, call_class: CallClass, *, is_shallow: bool = False) -> "_Query":
        old, new = (self._translate(call_class, part, is_shallow=is_shallow) for part in _parts(call_class))
        return _Query(self._call, call_class, old, new, is_shallow=is_shallow)

    def _refine(self, query: "_Query", solver: Any, confirmation: Confirmation) -> Counterexample | None:
        """Return a counterexample from the models of the solver; None if the evaluator of policies confirms none."""
        for _ in range(_MODELS):
            model = solver.model()
            reader = ModelReader(self._call, model, query.paths)
            call = reader.call(query.call_class.actions, self._moment)
            if call is not None:
                found = confirmation.confirm(call) or confirmation.search(call, self._moment, self._has_time)
                if found is not None:
                    return found
            solver.add(z3.Or(*(one != model.eval(one, model_completion=True) for one in query.matches)))
            if self._check(solver) != z3.sat:
                return None
        return None

    def _include_limits(self, query: "_Query") -> Sequence[str]:
        """Return the reasons why the proof does not cover very large arguments; an empty sequence if it covers them.

        Very large arguments can make conditions exceed the cost limits. Such conditions have no result, so the new
        policy could be more lenient.
        """
        if not any(map(can_exceed_limits, _parts(query.call_class))):
            return ()
        answer = self._check(query.solver(CostLimits(self._call, query.conditions)))
        if answer != z3.unsat:
            query = self._query(query.call_class)
            answer = self._check(query.solver(CostLimits(self._call, query.conditions)))
        if answer == z3.unsat:
            return ()
        if answer == z3.unknown:
            return [_undecided(query.call_class)]
        cause = (
            f"The conditions for {describe(query.call_class)} may exceed the cost limit of conditions if the arguments "
            "are very large"
        )
        return [f"{cause}. Conditions above the cost limit fail: the proof covers only smaller arguments"]

    def _translate(self, call_class: CallClass, part: PolicyPart, *, is_shallow: bool) -> _Conditions:
        conditions = {}
        for rule in part.rules:
            if rule.when is None:
                continue
            agent = (call_class.agent_id, part.agent_name) if "agent" in rule.when else ("", "")
            key = (is_shallow, rule.when, *agent)
            if key not in self._translated:
                if not self._has_time():
                    raise _TimeLimitError
                self._translated[key] = Translator(self._call, *agent, is_shallow=is_shallow).translate(
                    rule.when
                )
            conditions[rule.when] = self._translated[key]
        return conditions

    def _has_time(self) -> bool:
        return monotonic() < self._deadline

    def _check(self, solver: Any) -> Any:
        left = self._deadline - monotonic()
        if left <= 0:
            return z3.unknown
        # Leave a part of the time for the other classes of calls, because one of them may have a counterexample.
        limit = max(left / 2, min(left, _MIN_SECONDS))
        solver.set("timeout", max(int(limit * 1_000), 1))
        with _interrupt_after(limit):
            return solver.check()


class _Query:
    """Formulas that compare two policies for the calls of one `CallClass`."""

    def __init__(
        self,
        call: SymbolicCall,
        call_class: CallClass,
        old: _Conditions,
        new: _Conditions,
        *,
        is_shallow: bool,
    ) -> None:
        self._call = call
        self._is_shallow = is_shallow
        self.call_class = call_class
        self._old = old
        self._new = new
        self.conditions = {**old, **new}
        self.matches: list[Bool] = []
        every = [*old.values(), *new.values()]
        paths = {path for one in every for path in one.paths}
        constants = {constant for one in every for constant in one.constants}
        for part in _parts(call_class):
            if part.permission is not None and part.permission.max_amount is not None:
                paths.add(AMOUNT)
                constants.add(Fraction(part.permission.max_amount))
        self.paths: Sequence[Path] = sorted(paths, key=repr)
        self._constants = sorted(constants)
        self._constraints = [formula for one in every for formula in one.constraints]
        self._constraints += implications(test for one in every for test in one.text_tests)

    def solver(self, limits: CostLimits | None = None) -> Any:
        """Return a solver whose formulas can be satisfied if the new policy is more lenient for a call.

        With `limits`, the formulas include the cost limits of conditions.
        """
        solver = z3.Solver()
        paths = [*self.paths, *(limits.paths if limits else ())]
        solver.add(*self._call.constraints(paths, self._constants), *self._constraints)
        if not self._is_shallow and any(part.reads("action") for part in _parts(self.call_class)):
            solver.add(*self._call.action_constraints(self.call_class.actions))
        if limits is not None:
            solver.add(*limits.constraints)
        solver.add(self._widening(limits))
        return solver

    def _widening(self, limits: CostLimits | None) -> Bool:
        """Return a formula that is true if the new policy is more lenient."""
        outcomes = []
        for part, conditions in zip(_parts(self.call_class), (self._old, self._new), strict=True):
            results: Sequence[Ternary | None]
            if limits is None:
                results = [None if rule.when is None else conditions[rule.when].result for rule in part.rules]
            else:
                results = limits.results(part, conditions)
            matches = [match_formula(rule, result) for rule, result in zip(part.rules, results, strict=True)]
            self.matches += matches
            outcomes.append(outcome_of(part, matches, self._call))
        old, new = outcomes
        return is_more_lenient(new, old)

    def reasons(self) -> Sequence[str]:
        """Return reasons why nothing is proven if no concrete call confirms the difference that the solver found."""
        opaque = [
            rule
            for part, conditions in zip(_parts(self.call_class), (self._old, self._new), strict=True)
            for rule in part.rules
            if rule.when is not None and not conditions[rule.when].is_exact
        ]
        common = set(self.call_class.old.rules) & set(self.call_class.new.rules)
        changed = [rule for rule in opaque if rule not in common] or opaque
        names = list(dict.fromkeys(rule.name for rule in changed))
        if not names:
            return [f"No call was found that confirms a possible difference for {describe(self.call_class)}"]
        return [
            f"Rule {name!r} contains a condition that the proof cannot translate completely ({describe(self.call_class)})"
            for name in names[:_MAX_NAMED]
        ]


def describe(call_class: CallClass) -> str:
    """Return a text for messages with the agent and the actions of a class of calls."""
    return f"agent {call_class.agent!r} and action {call_class.actions.pattern!r}"


def _undecided(call_class: CallClass) -> str:
    return f"The solver Z3 did not decide the formulas for {describe(call_class)} within the time limit"


def _parts(call_class: CallClass) -> tuple[PolicyPart, PolicyPart]:
    return call_class.old, call_class.new


@contextmanager
def _interrupt_after(seconds: float) -> Iterator[None]:
    """Interrupt Z3 shortly after its own time limit, because some procedures of Z3 ignore that limit."""
    timer = Timer(seconds + 0.2, z3.main_ctx().interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
