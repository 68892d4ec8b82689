"""CEL expressions for rule conditions, evaluated with Google's `cel-expr-python` (the extra `policy`).

Before a rule is stored, the gateway compiles its expression, checks the types, and rejects an expression whose cost
exceeds the limit even without arguments. The variables are `args` (a map of the arguments), `action` (a string),
`agent` (a map with `id` and `name`), `run` (a map with `id`) and `now` (a timestamp).

An evaluation returns True, False or None. None means that there is no result: an error, a missing field, a result that
is not a boolean, or arguments that are too large for the cost limit. The caller handles None so that an error never
makes a rule more lenient.

Integers in the arguments become CEL ints. Other numbers become CEL doubles and are rounded to the nearest double. If an
expression compares an integer with a double, the library also rounds integers beyond 2^53. For exact limits on amounts
of money, use a budget or the `max_amount` of a permission.

The result is also None if the expression reads an argument that CEL cannot represent: an integer that does not fit in
64 bits, a number that becomes infinity or zero as a double (1e400, 1e-400), a string with a NUL character or a lone
surrogate, or a value nested deeper than 64 levels.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

from toolgate_service.core.strict_json import Json
from toolgate_service.rules.expression_cost import FIELDS, MAX_COST, Analysis, Path, analyze
from toolgate_service.rules.syntax_tree import InvalidExpression, SyntaxTree, decode

__all__ = ["MAX_LENGTH", "Expression", "InvalidExpression", "Variables", "compile_expression", "is_available"]

#: maximum number of characters of an expression
MAX_LENGTH = 2_000
#: maximum sum of the estimated costs, in nanoseconds, of the expressions that read the arguments during one check
MAX_TOTAL_COST = 3 * MAX_COST
#: estimated cost in nanoseconds up to which the size of each single argument need not be measured
ROUGH_COST = 20_000
#: maximum depth of lists and maps in the arguments of a call
_MAX_DEPTH = 64
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
#: maximum number of compiled expressions in the cache; each takes about 16 kB
_KEPT = 5_000

_SURROGATE = re.compile("[\ud800-\udfff]")
_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.+)")
_UNDECLARED = re.compile(r"undeclared reference to '(.+?)'")
_OVERLOAD = re.compile(r"found no matching overload for '(.+?)' applied to '\S*?\((.*)\)'")


class _UnusableError(Exception):
    """Error for a value of the arguments that CEL cannot represent."""


@dataclass
class Variables:
    """Variables of the expressions of all rules during one check.

    They are converted to the values of the CEL library once, when an expression first reads them. Do not change them
    after that.
    """

    args: Mapping[str, Json]
    action: str
    agent_id: str
    agent_name: str
    #: empty if the call belongs to no run
    run_id: str
    now: datetime
    _spent: float = field(default=0.0, init=False)

    def spend(self, cost: float) -> bool:
        """Add the cost of an evaluation to the total of the check and return True.

        If the total would exceed `MAX_TOTAL_COST`, add nothing and return False.
        """
        if self._spent + cost > MAX_TOTAL_COST:
            return False
        self._spent += cost
        return True

    @cached_property
    def arguments(self) -> "ConvertedArguments":
        """The arguments, converted to types that the CEL library accepts."""
        return ConvertedArguments(self.args)

    @cached_property
    def activation(self) -> Any:
        """The variables without the arguments, converted to an activation of the CEL library."""
        return _library().environment.Activation(self._without_arguments())

    @cached_property
    def activation_with_arguments(self) -> Any:
        """All variables, converted to an activation of the CEL library."""
        return _library().environment.Activation({**self._without_arguments(), "args": self.arguments.usable})

    def _without_arguments(self) -> dict[str, object]:
        return {
            "action": _usable_text(self.action),
            "agent": {"id": _usable_text(self.agent_id), "name": _usable_text(self.agent_name)},
            "run": {"id": _usable_text(self.run_id)},
            "now": self.now,
        }


class ConvertedArguments:
    """Arguments of a call, converted to types that the CEL library accepts, and the size of the arguments."""

    def __init__(self, args: Mapping[str, Json]) -> None:
        self.usable: dict[str, object] = {}
        #: names of the arguments that CEL cannot represent
        self.unusable: set[str] = set()
        converter = _Converter()
        for name, value in args.items():
            try:
                self.usable[converter.text(name)] = converter.convert(value, _MAX_DEPTH)
            except _UnusableError:
                self.unusable.add(name)
        #: number of values, and number of bytes of all texts
        self.size = converter.values, converter.length
        self._sizes: dict[Path, tuple[int, int]] = {}

    def measure(self, path: Path) -> tuple[int, int]:
        """Return the size of the value at a path of the usable arguments, or the size of null if there is no value."""
        if path not in self._sizes:
            value: Any = self.usable
            for key in path:
                try:
                    value = value[key]
                except (KeyError, IndexError, TypeError):
                    value = None
                    break
            converter = _Converter()
            converter.convert(value, _MAX_DEPTH + 1)
            self._sizes[path] = converter.values, converter.length
        return self._sizes[path]


class _Converter:
    """Converter of JSON values, which counts the values and the bytes of their texts."""

    def __init__(self) -> None:
        self.values = 0
        self.length = 0

    def convert(self, value: "Json | float", depth: int) -> object:
        """Return a value with doubles instead of decimals, because the CEL library does not accept decimals.

        Raises:
            _UnusableError: CEL cannot represent the value.
        """
        self.values += 1
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            if not _MIN_INT <= value <= _MAX_INT:
                raise _UnusableError
            return value
        if isinstance(value, Decimal | float):
            return _double(value)
        if not depth:
            raise _UnusableError
        if isinstance(value, dict):
            self.values += len(value)
            return {self.text(key): self.convert(member, depth - 1) for key, member in value.items()}
        return [self.convert(element, depth - 1) for element in value]

    def text(self, text: str) -> str:
        """Add the maximum number of bytes of a text to `length`, and return the text.

        Raises:
            _UnusableError: CEL cannot represent the text.
        """
        if text.isascii():
            self.length += len(text)
        else:
            self.length += 4 * len(text)
        return _usable_text(text)


def _double(number: Decimal | float) -> float:
    double = float(number)
    if not math.isfinite(double) or (number and not double):
        raise _UnusableError
    return double


def _usable_text(text: str) -> str:
    if not _is_usable_text(text):
        raise _UnusableError
    return text


def _is_usable_text(text: str) -> bool:
    """Return False for a text with a NUL character or a lone surrogate.

    The library ignores the rest of a text after a NUL character, and crashes at a lone surrogate.
    """
    return "\0" not in text and (text.isascii() or _SURROGATE.search(text) is None)


class Expression:
    """Compiled expression. Equal texts share one object."""

    def __init__(self, text: str, program: Any, analysis: Analysis) -> None:
        self.text = text
        self._program = program
        #: arguments that the expression reads, and the cost of an evaluation
        self.analysis = analysis
        self._boolean = _library().boolean
        terms = analysis.cost.terms.values()
        self._per_value = sum(value for value, _ in terms)
        self._per_byte = sum(byte for _, byte in terms)

    def decode(self) -> SyntaxTree:
        """Return the syntax tree."""
        return decode(self._program.serialize())

    def evaluate(self, variables: Variables) -> bool | None:
        """Return the result; None if there is none. Never raises an exception.

        There is no result after an error, for a missing field, if the result is not a boolean, if CEL cannot represent
        an argument that the expression reads, or if the cost is too high.
        """
        try:
            return self._evaluate(variables)
        except Exception:  # noqa: BLE001 - the library raises errors of several types; each means that there is no result
            return None

    def _evaluate(self, variables: Variables) -> bool | None:
        if self.analysis.uses_args:
            arguments = variables.arguments
            if not self._can_read(arguments, variables):
                return None
            activation = variables.activation_with_arguments
        elif not variables.spend(self.analysis.cost.base):
            return None
        else:
            activation = variables.activation
        value = self._program.eval(activation)
        # If the evaluation fails, the library returns an error value, which does not have the type boolean.
        return value.value() is True if value.type() == self._boolean else None

    def _can_read(self, arguments: "ConvertedArguments", variables: Variables) -> bool:
        """Return False if CEL cannot represent an argument that the expression reads, or if the cost is too high.

        Otherwise, add the cost to the total of the check and return True.
        """
        names = self.analysis.argument_names
        if arguments.unusable and (names is None or not names.isdisjoint(arguments.unusable)):
            return False
        cost = self._cost_of(arguments)
        return cost <= MAX_COST and variables.spend(cost)

    def _cost_of(self, arguments: "ConvertedArguments") -> float:
        """Return an estimate that is at least the cost of an evaluation."""
        cost = self.analysis.cost
        values, length = arguments.size
        rough = cost.base + self._per_value * values + self._per_byte * length
        if rough <= ROUGH_COST:
            return rough
        exact = cost.base
        for path, (value, byte) in cost.terms.items():
            size = arguments.measure(path)
            exact += value * size[0] + byte * size[1]
        return exact


@dataclass(frozen=True)
class _Library:
    environment: Any
    boolean: Any


@lru_cache(1)
def _library() -> _Library:
    """Import the library, which takes 10 ms and 50 MB on disk, only when the first rule has an expression."""
    from cel_expr_python import cel

    kind = cel.Type
    fields = kind.Map(kind.STRING, kind.STRING)
    variables = {
        "args": kind.Map(kind.STRING, kind.DYN),
        "action": kind.STRING,
        "agent": fields,
        "run": fields,
        "now": kind.TIMESTAMP,
    }
    return _Library(cel.NewEnv(variables=variables), kind.BOOL)


def is_available() -> bool:
    """Return whether the library that evaluates expressions is installed."""
    try:
        _library()
    except ImportError:
        return False
    return True


def compile_expression(text: str) -> Expression:
    """Return the compiled expression of a text.

    Raises:
        InvalidExpression: The text is not a valid expression, does not result in a boolean, or exceeds a limit; or the
            library is not installed.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidExpression(f"The expression has {len(text)} characters: use at most {MAX_LENGTH:,}")
    return _compile(text)


@lru_cache(_KEPT)
def _compile(text: str) -> Expression:
    if not is_available():
        raise InvalidExpression(
            "Expressions need the package cel-expr-python: install it with `pip install 'toolgate[policy]'`"
        )
    if not _is_usable_text(text):
        raise InvalidExpression("The expression contains a NUL character or a lone surrogate: remove it")
    if not text.strip():
        raise InvalidExpression("The expression is empty: write a condition such as args.amount <= 100")
    environment = _library().environment
    try:
        program = environment.compile(text)
    except Exception as error:  # noqa: BLE001 - the library raises errors of several types
        raise InvalidExpression(_explain(str(error))) from None
    result = program.return_type().name()
    if result not in {"BOOL", "DYN"}:
        raise InvalidExpression(
            f"The expression results in {result.lower()}, not in a boolean: compare it with a value"
        )
    analysis = analyze(decode(program.serialize()), text)
    for pattern in analysis.regexes:
        if problem := _problem(f"''.matches({_quoted(pattern)})"):
            raise InvalidExpression(f"Invalid regular expression {pattern!r}: {problem}")
    for zone in analysis.time_zones:
        if _problem(f"timestamp('2026-01-01T00:00:00Z').getHours({_quoted(zone)}) >= 0"):
            raise InvalidExpression(
                f"Unknown time zone {zone!r}: use a name such as Europe/Berlin, or an offset such as +02:00"
            )
    return Expression(text, program, analysis)


def _problem(text: str) -> str:
    """Evaluate a CEL expression that uses no variables, and return its error message, or an empty string."""
    value = _library().environment.compile(text).eval()
    return "" if value.type() == _library().boolean else str(value.value()).removeprefix("INVALID_ARGUMENT: ")


def _quoted(text: str) -> str:
    """Return a text as a string literal of CEL, which supports all escape sequences in the output of `json.dumps`."""
    return json.dumps(text, ensure_ascii=False)


def _explain(error: str) -> str:
    """Return a message for people from the first error of the library."""
    found = _ERROR.search(error)
    if found is None or int(found[1]) < 1:
        return "The expression is nested too deeply: split it into several rules"
    where = f" (line {found[1]}, column {found[2]})"
    message = found[3].split(" expecting ")[0].split(" [")[0]
    if undeclared := _UNDECLARED.search(message):
        name = undeclared[1].split(".")[0]
        return f"Unknown variable or function {name!r}{where}: the variables are {', '.join(FIELDS)}"
    if overload := _OVERLOAD.search(message):
        return f"The operator or function {overload[1].strip('@_')!r} cannot be used with {overload[2]}{where}: convert a value"
    return f"Invalid expression{where}: {message}"
