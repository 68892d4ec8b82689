"""Formulas of conditions have the same result as the evaluation by the gateway."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import z3
from support.cel_generator import Generator
from support.condition_generator import ConditionGenerator

from toolgate_service.policies.proof.symbols import TRUE, Kind, Path, SymbolicCall, Variable, real, text
from toolgate_service.policies.proof.translation import Translator
from toolgate_service.rules.expressions import Variables, compile_expression

_KINDS = {
    type(None): Kind.NULL,
    bool: Kind.BOOL,
    int: Kind.INT,
    Decimal: Kind.DOUBLE,
    str: Kind.TEXT,
    list: Kind.LIST,
}


def _value_at(variables: Variables, path: Path) -> tuple[Kind, Any]:
    value: Any = variables.args
    for part in path:
        is_valid = (
            part in value
            if isinstance(value, dict)
            else isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if not is_valid:
            return Kind.MISSING, None
        value = value[part]
    return _KINDS.get(type(value), Kind.MAP), value


def _assign(variable: Variable, kind: Kind, value: Any, *, is_unusable: bool) -> list[tuple[Any, Any]]:
    """Return the values of the variables of one value of the arguments."""
    number = Fraction(value) if kind in {Kind.INT, Kind.DOUBLE} else Fraction(0)
    is_finite = abs(number) < 10**308
    assigned = [
        (variable.kind, z3.IntVal(int(kind))),
        (variable.boolean, z3.BoolVal(value is True)),
        (variable.integer, z3.IntVal(value if kind is Kind.INT else 0)),
        (variable.exact, real(number)),
        (variable.double, real(float(number) if is_finite and kind is not Kind.MISSING else number)),
        (variable.text, text(value if kind is Kind.TEXT else "")),
        (variable.size, z3.IntVal(len(value) if kind in {Kind.LIST, Kind.MAP} else 0)),
    ]
    return [*assigned, (variable.unusable, z3.BoolVal(is_unusable))] if len(variable.path) == 1 else assigned


def _evaluate(call: SymbolicCall, condition: str, variables: Variables) -> tuple[set[bool | None], bool]:
    """Return the results that the formulas permit for a call, and whether the translation is exact."""
    translated = Translator(call, variables.agent_id, variables.agent_name).translate(condition)
    values = [
        (call.action, text(variables.action)),
        (call.run, text(variables.run_id)),
        (call.any_unusable, z3.BoolVal(bool(variables.arguments.unusable))),
    ]
    for path in {whole[:length] for whole in translated.paths for length in range(1, len(whole) + 1)}:
        kind, value = _value_at(variables, path)
        is_unusable = path[0] in variables.arguments.unusable
        values += _assign(call.variable(path), kind, value, is_unusable=is_unusable)
    constraints = [
        *translated.constraints,
        *call.constraints(translated.paths, sorted(translated.constants)),
    ]
    true, false, are_true = (
        z3.simplify(z3.substitute(formula, *values))
        for formula in (*translated.result, z3.And(constraints) if constraints else TRUE)
    )
    assert z3.is_true(are_true), (condition, variables, constraints)
    return set(_possible(true, false)), translated.is_exact


def _possible(true: Any, false: Any) -> Iterable[bool | None]:
    for result, formula in ((True, true), (False, false), (None, z3.Not(z3.Or(true, false)))):
        simple = z3.simplify(formula)
        if z3.is_true(simple):
            yield result
        elif not z3.is_false(simple):
            solver = z3.Solver()
            solver.add(simple)
            if solver.check() == z3.sat:
                yield result


def _compare(generator: Generator | ConditionGenerator, pairs: int) -> Counter[bool | None]:
    """Compare the results for generated pairs, and return the number of pairs with each exact result."""
    exact: Counter[bool | None] = Counter()
    call = SymbolicCall()
    for _ in range(pairs):
        condition = (
            generator.condition() if isinstance(generator, ConditionGenerator) else generator.boolean()
        )
        variables = generator.variables()
        expected = compile_expression(condition).evaluate(variables)
        possible, is_exact = _evaluate(call, condition, variables)
        assert expected in possible, (condition, variables)
        if is_exact:
            assert possible == {expected}, (condition, variables)
        exact.update(possible if len(possible) == 1 else ())
    return exact


def test_formulas_agree_with_the_evaluation() -> None:
    exact = _compare(ConditionGenerator(1), 400)
    assert min(exact[True], exact[False], exact[None]) > 40
    assert sum(_compare(Generator(1), 130).values()) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_formulas_agree_with_the_evaluation_of_24000_pairs(seed: int) -> None:
    exact = _compare(ConditionGenerator(seed), 3_000)
    assert min(exact[True], exact[False], exact[None]) > 300
    assert sum(_compare(Generator(seed), 1_000).values()) > 300
