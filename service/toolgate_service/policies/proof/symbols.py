"""Symbolic tool call: variables of Z3 for the arguments, the action and the run of any call.

Each argument, and each member of an argument that a condition reads, has one variable for its kind (such as integer or
text) and further variables for its value. The constraints of the variables are true for every possible call. They may
also be true for impossible calls, which is safe: a proof then covers more calls than necessary.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import z3

from toolgate_service.core.schemas import MAX_ACTION
from toolgate_service.policies.proof.call_classes import Actions

#: types of Z3 expressions, for which Z3 has no type hints
Bool: TypeAlias = Any
Number: TypeAlias = Any
Text: TypeAlias = Any

_ESCAPE = re.compile(r"\\u\{([0-9a-fA-F]+)\}")

#: names of the members that lead from `args` to a value; an integer is the index of an element of a list
Path: TypeAlias = "tuple[str | int, ...]"

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
#: integers up to this absolute value are exact as doubles
MAX_EXACT = 2**53
#: maximum relative error of a number's nearest double, and maximum absolute error for numbers near zero
_RELATIVE, _ABSOLUTE = Fraction(1, 2**53), Fraction(1, 10**300)
#: path of the argument that permissions compare as an exact decimal number, not as a double
AMOUNT: Path = ("amount",)
#: the nearest double of a number is infinite from the absolute value `_HUGE` on, and zero up to `_TINY`
_HUGE, _TINY = 2**1024 - 2**970, Fraction(1, 2**1075)
#: maximum number of characters of a text, and of elements of a list or map, in a valid call
MAX_CHARACTERS, MAX_ELEMENTS = 64 * 1024, 5_000


class Kind(IntEnum):
    """Kind of the value of an argument or of an expression."""

    MISSING = 0
    NULL = 1
    BOOL = 2
    INT = 3
    DOUBLE = 4
    TEXT = 5
    LIST = 6
    MAP = 7
    #: value whose content the proof does not model, such as a timestamp
    OTHER = 8


#: constants that the functions below recognize by identity, which is much faster than a call of Z3
TRUE, FALSE = z3.BoolVal(True), z3.BoolVal(False)


def all_of(*parts: Bool) -> Bool:
    """Return the conjunction of formulas. Constants among them are simplified away."""
    needed = [part for part in parts if part is not TRUE]
    if any(part is FALSE for part in needed):
        return FALSE
    return TRUE if not needed else needed[0] if len(needed) == 1 else z3.And(needed)


def any_of(*parts: Bool) -> Bool:
    """Return the disjunction of formulas. Constants among them are simplified away."""
    needed = [part for part in parts if part is not FALSE]
    if any(part is TRUE for part in needed):
        return TRUE
    return FALSE if not needed else needed[0] if len(needed) == 1 else z3.Or(needed)


def negated(part: Bool) -> Bool:
    """Return the negation of a formula. The negation of a constant is a constant."""
    if part is TRUE or part is FALSE:
        return FALSE if part is TRUE else TRUE
    return z3.Not(part)


def real(value: "Fraction | Decimal | int | float") -> Number:
    """Return a number as an exact Z3 constant."""
    exact = Fraction(value)
    return z3.RealVal(f"{exact.numerator}/{exact.denominator}")


def text(value: str) -> Text:
    r"""Return a text as a Z3 constant. Z3 reads `\u{…}` in texts as an escape sequence, so backslashes are escaped."""
    return z3.StringVal(value.replace("\\", "\\u{5c}"))


def text_of(value: Text) -> str | None:
    """Return the text of a Z3 constant; None for other formulas."""
    if not z3.is_string_value(value):
        return None
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value.as_string())


class Ternary(NamedTuple):
    """Formulas for the results true and false of a condition. If neither is true, the condition has no result."""

    true: Bool
    false: Bool


NO_RESULT = Ternary(FALSE, FALSE)


@dataclass(slots=True)
class Variable:
    """Z3 variables of one value in the arguments of a call.

    Attributes:
        kind: Number of the `Kind` of the value. It determines which of the other variables have a meaning.
        double: Value of a double; for an integer, its nearest double.
        exact: Exact value of an integer, and of the argument `amount` if it is a number. Permissions compare the exact
            amount, conditions the amount rounded to a double.
        size: Number of elements of a list or map.
        unusable: True if CEL cannot represent the argument to which the value belongs.
        constraints: Formulas that are true for the variables of every possible value.
    """

    path: Path
    kind: Number
    boolean: Bool
    integer: Number
    double: Number
    exact: Number
    text: Text
    size: Number
    unusable: Bool
    constraints: list[Bool] = field(default_factory=list)
    _kinds: dict[Kind, Bool] = field(default_factory=dict)

    def is_kind(self, *kinds: Kind) -> Bool:
        """Return a formula that is true if the value has one of these kinds."""
        for kind in kinds:
            if kind not in self._kinds:
                self._kinds[kind] = self.kind == int(kind)
        return any_of(*(self._kinds[kind] for kind in kinds))

    def rounding(self, constants: Iterable[Fraction]) -> list[Bool]:
        """Return constraints on the nearest double of the argument `amount`; none for other values.

        Rounding does not change whether the amount is above or below a constant, but it can make them equal.
        """
        if self.path != AMOUNT:
            return []
        return [
            z3.And(
                z3.Implies(self.exact <= real(one), self.double <= real(float(one))),
                z3.Implies(self.exact >= real(one), self.double >= real(float(one))),
            )
            for one in constants
            if abs(one) < _HUGE
        ]


class SymbolicCall:
    """Z3 variables of any call. Equal parts of several conditions share their variables."""

    def __init__(self) -> None:
        self.variables: dict[Path, Variable] = {}
        self.run = z3.String("run")
        self.action = z3.String("action")
        #: true if CEL cannot represent at least one argument, even one that no condition names
        self.any_unusable = z3.Bool("any unusable")
        self._opaque: dict[str, Ternary] = {}

    def variable(self, path: Path) -> Variable:
        """Return the variables of the value at a path."""
        if path not in self.variables:
            unusable = z3.Bool(f"unusable {path[0]}") if len(path) == 1 else self.variable(path[:1]).unusable
            self.variables[path] = _create_variable(path, unusable)
        return self.variables[path]

    def opaque(self, key: str) -> Ternary:
        """Return a result about which the proof assumes nothing, except that it is the same for equal keys."""
        if key not in self._opaque:
            number = len(self._opaque)
            true, false = z3.Bool(f"opaque {number} true"), z3.Bool(f"opaque {number} false")
            self._opaque[key] = Ternary(true, z3.And(z3.Not(true), false))
        return self._opaque[key]

    def presence(self, path: Path) -> Bool:
        """Return a formula that is true if the arguments contain a value at this path."""
        variable = self.variable(path)
        if len(path) == 1:
            return negated(variable.is_kind(Kind.MISSING))
        return all_of(self.is_container(path[:-1], path[-1]), negated(variable.is_kind(Kind.MISSING)))

    def is_container(self, path: Path, member: "str | int") -> Bool:
        """Return a formula that is true if the value at a path is a map or, if `member` is an index, a list."""
        kind = Kind.MAP if isinstance(member, str) else Kind.LIST
        return all_of(self.presence(path), self.variable(path).is_kind(kind))

    def action_constraints(self, actions: Actions) -> list[Bool]:
        """Return formulas that are true if the action of the call belongs to a set of actions."""
        if actions.exact is not None:
            return [self.action == text(actions.exact)]
        valid = z3.Plus(z3.Range("!", "~"))
        return [
            z3.InRe(self.action, valid),
            z3.Length(self.action) <= MAX_ACTION,
            z3.PrefixOf(text(actions.prefix), self.action),
            *(z3.Not(z3.PrefixOf(text(prefix), self.action)) for prefix in actions.longer_prefixes),
            *(self.action != text(action) for action in actions.excluded),
        ]

    def constraints(self, paths: Iterable[Path], constants: Sequence[Fraction]) -> list[Bool]:
        """Return the constraints of the values at these paths and of all values that contain them."""
        needed = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        formulas = []
        for path in sorted(needed, key=repr):
            variable = self.variable(path)
            formulas += variable.constraints
            formulas += variable.rounding(constants)
        return formulas


def _create_variable(path: Path, unusable: Bool) -> Variable:
    name = "args" + "".join(f"[{part!r}]" for part in path)
    variable = Variable(
        path,
        z3.Int(f"kind {name}"),
        z3.Bool(f"bool {name}"),
        z3.Int(f"int {name}"),
        z3.Real(f"double {name}"),
        z3.Real(f"exact {name}"),
        z3.String(f"text {name}"),
        z3.Int(f"size {name}"),
        unusable,
    )
    kind, integer, exact, double = variable.kind, variable.integer, variable.exact, variable.double
    is_int, is_double = variable.is_kind(Kind.INT), variable.is_kind(Kind.DOUBLE)
    fits = z3.And(integer >= MIN_INT, integer <= MAX_INT)
    variable.constraints = [
        kind >= int(Kind.MISSING),
        kind <= int(Kind.MAP),
        z3.Implies(is_int, exact == z3.ToReal(integer)),
        z3.Implies(z3.And(is_int, integer <= MAX_EXACT, integer >= -MAX_EXACT), double == z3.ToReal(integer)),
        _is_near(exact, double) if path == AMOUNT else z3.Implies(is_int, _is_near(exact, double)),
        variable.size >= 0,
    ]
    if len(path) == 1:
        variable.constraints += [
            z3.Implies(is_int, variable.unusable == z3.Not(fits)),
            z3.Implies(
                z3.And(is_double, variable.unusable),
                z3.Or(exact >= real(_HUGE), exact <= real(-_HUGE), _is_tiny(exact)),
            ),
            # The gateway's JSON parser rejects texts that CEL cannot represent.
            z3.Implies(variable.unusable, variable.is_kind(Kind.INT, Kind.DOUBLE, Kind.LIST, Kind.MAP)),
        ]
    else:
        variable.constraints.append(z3.Implies(z3.And(is_int, z3.Not(unusable)), fits))
    return variable


def _is_tiny(exact: Number) -> Bool:
    return z3.And(exact != 0, exact <= real(_TINY), exact >= real(-_TINY))


def _is_near(exact: Number, double: Number) -> Bool:
    """Return a formula that is true if `double` can be the nearest double of the number `exact`."""
    error, relative, absolute = double - exact, real(_RELATIVE) * exact, real(_ABSOLUTE)
    return z3.Or(
        z3.And(error <= relative, -error <= relative),
        z3.And(error <= -relative, -error <= -relative),
        z3.And(error <= absolute, -error <= absolute),
    )
