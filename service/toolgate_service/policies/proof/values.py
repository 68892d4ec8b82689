"""Formulas for the values of the nodes of conditions, and operations on these formulas."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import z3

from toolgate_service.policies.proof.symbols import Bool, Kind, Number, Ternary, all_of, any_of, negated


class Integer(NamedTuple):
    """Formulas for the value of an integer.

    Attributes:
        double: Value as a double; None if it is unknown, as for results of arithmetic.
    """

    exact: Number
    double: Number | None


class Value(NamedTuple):
    """Possible value of a node: if the formula `guard` is true, the value of the node has this kind and content.

    Attributes:
        content: An `Integer` for an integer, the number of elements for a list or map, None for null and unsupported
            values, and a formula for the value for all other kinds.
    """

    guard: Bool
    kind: Kind
    content: Any = None


class TextTest(NamedTuple):
    """Test of whether a text starts with, ends with or contains a literal, and the formula of the test."""

    name: str
    whole: Any
    literal: str
    formula: Bool


def combine(name: str, results: Sequence[Ternary]) -> Ternary:
    """Return the result of `&&` or `||`.

    A false operand of `&&`, or a true operand of `||`, decides the result even if another operand has no result.
    """
    true, false = [one.true for one in results], [one.false for one in results]
    if name == "_&&_":
        return Ternary(all_of(*true), any_of(*false))
    return Ternary(any_of(*true), all_of(*false))


def exactly_one(results: Sequence[Ternary]) -> Ternary:
    """Return the result of `exists_one`.

    `results` contains the results of the loop's condition for the elements. If one of them is missing, `exists_one` has
    no result either.
    """
    # Distinguish the results by their index, because equal conditions share one result object.
    numbers = range(len(results))
    single = any_of(
        *(
            all_of(*(results[other].true if other == one else results[other].false for other in numbers))
            for one in numbers
        )
    )
    have_results = all_of(*(any_of(*one) for one in results))
    return Ternary(single, all_of(have_results, negated(single)))


def boolean(result: Ternary) -> list[Value]:
    """Return the possible values of a node whose value is the boolean result of a condition."""
    return [Value(any_of(result.true, result.false), Kind.BOOL, result.true)]


def exists(values: Sequence[Value]) -> Bool:
    """Return a formula that is true if a node has a value, so that its evaluation raises no error."""
    return any_of(*(value.guard for value in values))


def decided(formula: Bool) -> Ternary:
    """Return the result of a condition that is true if the formula is true, and false otherwise."""
    return Ternary(formula, negated(formula))


def comparable(left: Value, right: Value) -> tuple[Number, Number] | None:
    """Return two numbers as CEL compares them: two integers exactly, other pairs as doubles.

    The result is None if the comparison needs the double of an integer, and this double is unknown.
    """
    if left.kind == right.kind:
        is_int = left.kind is Kind.INT
        return (left.content.exact, right.content.exact) if is_int else (left.content, right.content)
    numbers = [value.content.double if value.kind is Kind.INT else value.content for value in (left, right)]
    return None if None in numbers else (numbers[0], numbers[1])


def compare_order(name: str, left: Any, right: Any) -> Bool:
    """Return the formula of a comparison with `<`, `<=`, `>` or `>=`."""
    match name:
        case "_<_":
            return left < right
        case "_<=_":
            return left <= right
        case "_>_":
            return right < left
        case _:
            return right <= left


def text_formula(name: str, whole: Any, part: Any) -> Bool:
    """Return the formula of a test with `startsWith`, `endsWith` or `contains`."""
    match name:
        case "startsWith":
            return z3.PrefixOf(part, whole)
        case "endsWith":
            return z3.SuffixOf(part, whole)
        case _:
            return z3.Contains(whole, part)


def calculate_integer(name: str, left: Number, right: Number) -> Number:
    """Return the sum, difference or product of two integers. The formula ignores the 64-bit limits of CEL."""
    match name:
        case "_+_":
            return left + right
        case "_-_":
            return left - right
        case _:
            return left * right


def implications(tests: Iterable[TextTest]) -> Iterator[Bool]:
    """Yield implications between tests of the same text, which Z3 itself finds only slowly.

    For example, a text that starts with `ab` also starts with `a`.
    """
    by_text: dict[int, list[TextTest]] = {}
    for test in tests:
        by_text.setdefault(test.whole.get_id(), []).append(test)
    for same in by_text.values():
        for one, other in permutations(same, 2):
            if _implies(one, other):
                yield z3.Implies(one.formula, other.formula)


def _implies(one: TextTest, other: TextTest) -> bool:
    match other.name:
        case "contains":
            return other.literal in one.literal
        case "startsWith":
            return one.name == other.name and one.literal.startswith(other.literal)
        case _:
            return one.name == other.name and one.literal.endswith(other.literal)
