"""Translation of CEL conditions into Z3 formulas.

A node of a condition is translated into a list of alternatives, one for each kind of value that the node can have. Each
alternative has a guard, a formula that is true if the node has a value of this kind. If all guards are false, the
evaluation of the node fails. Parts that the translation does not support, such as regular expressions and timestamps,
have an opaque result: the proof only assumes that equal parts have the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

import z3

from toolgate_service.policies.proof.symbols import (
    FALSE,
    MAX_CHARACTERS,
    MAX_ELEMENTS,
    MAX_INT,
    MIN_INT,
    NO_RESULT,
    TRUE,
    Bool,
    Kind,
    Path,
    SymbolicCall,
    Ternary,
    all_of,
    any_of,
    negated,
    real,
    text,
    text_of,
)
from toolgate_service.policies.proof.syntax import is_constant, key_of, name_of, path_of, substitute
from toolgate_service.policies.proof.values import (
    Integer,
    TextTest,
    Value,
    boolean,
    calculate_integer,
    combine,
    comparable,
    compare_order,
    decided,
    exactly_one,
    exists,
    text_formula,
)
from toolgate_service.rules.expression_cost import Analysis, loop_body
from toolgate_service.rules.expressions import compile_expression
from toolgate_service.rules.syntax_tree import Node, Unsigned

#: largest character that a translated literal may contain. Z3 has no characters above U+2FFFF, so in formulas, the
#: characters from U+20000 to U+2FFFF also stand for the higher ones. This is exact, because all of these characters are
#: larger than each character of a translated literal.
_MAX_CHARACTER = "\U0001ffff"
#: maximum number of elements of a literal list for which a loop is translated, because the formulas repeat the
#: condition of the loop for each element
_MAX_REPETITIONS = 100

_LOGIC = frozenset({"_&&_", "_||_", "!_"})
_ORDER = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_TEXT_TESTS = frozenset({"startsWith", "endsWith", "contains"})
_ARITHMETIC = frozenset({"_+_", "_-_", "_*_"})
_NUMBERS = frozenset({Kind.INT, Kind.DOUBLE})


@dataclass(frozen=True, slots=True)
class Condition:
    """Translated condition.

    Attributes:
        paths: Paths of the argument values that the formulas contain.
        constants: Numeric literals of the condition.
        is_exact: False if the translation does not support a part of the condition, so that its result is unknown.
        is_unusable: Formula that is true if the condition reads an argument that CEL cannot represent.
        constraints: Further formulas that are true for every call.
        text_tests: Tests with `startsWith`, `endsWith` and `contains` in the formulas.
    """

    result: Ternary
    paths: frozenset[Path]
    constants: frozenset[Fraction]
    is_exact: bool
    is_unusable: Bool
    constraints: tuple[Bool, ...]
    text_tests: tuple[TextTest, ...]
    analysis: Analysis


class Translator:
    """Translator of conditions into formulas for the calls of one agent.

    Args:
        is_shallow: True to translate only the logical operators and to leave the results of comparisons unknown. Z3
            decides these formulas much faster, and they suffice for the proof of many changes of policies.
    """

    def __init__(
        self, call: SymbolicCall, agent_id: str, agent_name: str, *, is_shallow: bool = False
    ) -> None:
        self._call = call
        self._is_shallow = is_shallow
        self._agent = {"id": agent_id, "name": agent_name}
        self._paths: set[Path] = set()
        self._constants: set[Fraction] = set()
        self._constraints: list[Bool] = []
        self._text_tests: list[TextTest] = []
        self._is_exact = True

    def translate(self, condition: str) -> Condition:
        """Return the formulas of a condition."""
        expression = compile_expression(condition)
        analysis = expression.analysis
        self._paths, self._constants, self._is_exact = set(), set(), True
        self._constraints, self._text_tests = [], []
        root = expression.decode().root
        result = self._condition(root)
        names = sorted(analysis.argument_names or {str(path[0]) for path in self._paths})
        paths = [(name,) for name in names]
        unusable = any_of(*(self._call.variable(path).unusable for path in paths))
        if analysis.uses_args and analysis.argument_names is None:
            # A condition that can read all arguments has no result if CEL cannot represent at least one of them, even
            # one that the condition does not name.
            self._constraints.append(z3.Implies(unusable, self._call.any_unusable))
            unusable = self._call.any_unusable
        usable = negated(unusable)
        return Condition(
            Ternary(all_of(usable, result.true), all_of(usable, result.false)),
            frozenset([*self._paths, *paths]),
            frozenset(self._constants),
            self._is_exact,
            unusable,
            tuple(self._constraints),
            tuple(self._text_tests),
            analysis,
        )

    def _opaque(self, node: Node) -> Ternary:
        self._is_exact = False
        return self._call.opaque(key_of(node, self._agent))

    def _truth(self, node: Node, values: Sequence[Value]) -> Ternary:
        """Return the formulas for the results true and false of a node that is used as a condition."""
        true = [all_of(value.guard, value.content) for value in values if value.kind is Kind.BOOL]
        false = [all_of(value.guard, negated(value.content)) for value in values if value.kind is Kind.BOOL]
        others = any_of(*(value.guard for value in values if value.kind is Kind.OTHER))
        if others is not FALSE:
            opaque = self._opaque(node)
            true.append(all_of(others, opaque.true))
            false.append(all_of(others, opaque.false))
        return Ternary(any_of(*true), any_of(*false))

    def _condition(self, node: Node) -> Ternary:
        if self._is_shallow and not (node.kind == "call" and node.name in _LOGIC):
            return self._opaque(node)
        return self._truth(node, self._values(node))

    def _values(self, node: Node) -> list[Value]:
        path = path_of(node)
        if path is not None:
            return self._argument(path)
        match node.kind:
            case "constant":
                return self._constant(node)
            case "name" | "select":
                return self._name(node)
            case "has":
                return boolean(self._presence(node))
            case "call":
                return self._call_values(node)
            case "list":
                elements = [exists(self._values(element)) for element in node.operands]
                return [Value(all_of(*elements), Kind.LIST, z3.IntVal(len(elements)))]
            case "loop":
                return boolean(self._loop(node))
            case _:
                return self._unknown()

    def _unknown(self) -> list[Value]:
        self._is_exact = False
        return [Value(TRUE, Kind.OTHER)]

    def _constant(self, node: Node) -> list[Value]:
        match node.constant:
            case None:
                return [Value(TRUE, Kind.NULL)]
            case Unsigned():
                return self._unknown()
            case bool(value):
                return [Value(TRUE, Kind.BOOL, TRUE if value else FALSE)]
            case int(value):
                self._constants.add(Fraction(value))
                return [Value(TRUE, Kind.INT, Integer(z3.IntVal(value), real(float(value))))]
            case float(value) if isfinite(value):
                self._constants.add(Fraction(value))
                return [Value(TRUE, Kind.DOUBLE, real(value))]
            case str(value):
                return self._text(value)
            case _:
                return self._unknown()

    def _text(self, value: str) -> list[Value]:
        if value and max(value) > _MAX_CHARACTER:
            return self._unknown()
        return [Value(TRUE, Kind.TEXT, text(value))]

    def _name(self, node: Node) -> list[Value]:
        match name_of(node):
            case "action":
                return [Value(TRUE, Kind.TEXT, self._call.action)]
            case "run.id":
                return [Value(TRUE, Kind.TEXT, self._call.run)]
            case "agent.id" | "agent.name" as name:
                return self._text(self._agent[name.removeprefix("agent.")])
            case _:
                return self._unknown()

    def _argument(self, path: Path) -> list[Value]:
        self._paths.add(path)
        variable = self._call.variable(path)
        exists = TRUE if len(path) == 1 else self._call.is_container(path[:-1], path[-1])
        contents = {
            Kind.NULL: None,
            Kind.BOOL: variable.boolean,
            Kind.INT: Integer(variable.integer, variable.double),
            Kind.DOUBLE: variable.double,
            Kind.TEXT: variable.text,
            Kind.LIST: variable.size,
            Kind.MAP: variable.size,
        }
        return [
            Value(all_of(exists, variable.is_kind(kind)), kind, content) for kind, content in contents.items()
        ]

    def _presence(self, node: Node) -> Ternary:
        [operand] = node.operands
        if name_of(operand) in {"agent", "run"}:
            return Ternary(TRUE, FALSE)
        container = () if name_of(operand) == "args" else path_of(operand)
        if container is None:
            return self._opaque(node)
        path = (*container, node.name)
        self._paths.add(path)
        can_have = TRUE if len(path) == 1 else self._call.is_container(container, node.name)
        is_missing = self._call.variable(path).is_kind(Kind.MISSING)
        return Ternary(all_of(can_have, negated(is_missing)), all_of(can_have, is_missing))

    def _loop(self, node: Node) -> Ternary:
        body, elements = loop_body(node), node.operands[0]
        if body is None or elements.kind != "list" or len(elements.operands) > _MAX_REPETITIONS:
            return self._opaque(node)
        exist = all_of(*(exists(self._values(element)) for element in elements.operands))
        results = [self._condition(substitute(body, node.name, element)) for element in elements.operands]
        step = node.operands[3].name
        result = combine(step, results) if step in _LOGIC else exactly_one(results)
        return Ternary(all_of(exist, result.true), all_of(exist, result.false))

    def _call_values(self, node: Node) -> list[Value]:
        name, operands = node.name, node.operands
        if name in _LOGIC:
            return boolean(self._logic(name, [self._condition(operand) for operand in operands]))
        if name == "_?_:_":
            return self._choice(node)
        if name in {"_==_", "_!=_"} or name in _ORDER or name in _TEXT_TESTS:
            left, right = (self._values(operand) for operand in operands)
            return boolean(self._compare(node, left, right))
        if name == "@in":
            return boolean(self._membership(node))
        if name == "size":
            return self._size(node)
        if name in _ARITHMETIC:
            return self._arithmetic(node)
        if name == "-_":
            return self._negative(self._values(operands[0]))
        if name == "dyn":
            return self._values(operands[0])
        return self._unknown()

    def _logic(self, name: str, results: list[Ternary]) -> Ternary:
        if name == "!_":
            return Ternary(results[0].false, results[0].true)
        return combine(name, results)

    def _choice(self, node: Node) -> list[Value]:
        decision = self._condition(node.operands[0])
        return [
            value._replace(guard=all_of(chosen, value.guard))
            for chosen, operand in zip(decision, node.operands[1:], strict=True)
            for value in self._values(operand)
        ]

    def _membership(self, node: Node) -> Ternary:
        sought, elements = node.operands
        if elements.kind != "list" or not all(map(is_constant, elements.operands)):
            return self._opaque(node)
        values = self._values(sought)
        results = [self._compare(node, values, self._constant(element)) for element in elements.operands]
        if not results:
            return Ternary(FALSE, exists(values))
        return Ternary(any_of(*(one.true for one in results)), all_of(*(one.false for one in results)))

    def _compare(self, node: Node, left: Sequence[Value], right: Sequence[Value]) -> Ternary:
        true, false = [], []
        for one in left:
            for other in right:
                guard = all_of(one.guard, other.guard)
                if guard is not FALSE:
                    result = self._compare_pair(node, one, other)
                    true.append(all_of(guard, result.true))
                    false.append(all_of(guard, result.false))
        return Ternary(any_of(*true), any_of(*false))

    def _compare_pair(self, node: Node, left: Value, right: Value) -> Ternary:
        kinds = {left.kind, right.kind}
        is_equality = node.name in {"_==_", "_!=_", "@in"}
        if Kind.OTHER in kinds or (is_equality and left.kind == right.kind in {Kind.LIST, Kind.MAP}):
            return self._opaque(node)
        if is_equality:
            equal = self._equality(node, left, right)
            return Ternary(equal.false, equal.true) if node.name == "_!=_" else equal
        if node.name in _TEXT_TESTS:
            return self._test_text(node.name, left, right) if kinds == {Kind.TEXT} else NO_RESULT
        if kinds <= _NUMBERS:
            pair = comparable(left, right)
            return self._opaque(node) if pair is None else decided(compare_order(node.name, *pair))
        if kinds == {Kind.TEXT}:
            return decided(compare_order(node.name, left.content, right.content))
        if kinds == {Kind.BOOL}:
            numbers = [z3.If(value.content, z3.IntVal(1), z3.IntVal(0)) for value in (left, right)]
            return decided(compare_order(node.name, *numbers))
        return NO_RESULT

    def _test_text(self, name: str, whole: Value, part: Value) -> Ternary:
        formula = text_formula(name, whole.content, part.content)
        literal = text_of(part.content)
        if literal is not None:
            self._text_tests.append(TextTest(name, whole.content, literal, formula))
        return decided(formula)

    def _equality(self, node: Node, left: Value, right: Value) -> Ternary:
        if {left.kind, right.kind} <= _NUMBERS:
            pair = comparable(left, right)
            return self._opaque(node) if pair is None else decided(pair[0] == pair[1])
        if left.kind != right.kind:
            return Ternary(FALSE, TRUE)
        return Ternary(TRUE, FALSE) if left.kind is Kind.NULL else decided(left.content == right.content)

    def _size(self, node: Node) -> list[Value]:
        values = []
        for value in self._values(node.operands[0]):
            if value.kind is Kind.OTHER:
                values += self._unknown_if(value.guard)
            elif value.kind in {Kind.TEXT, Kind.LIST, Kind.MAP}:
                is_text = value.kind is Kind.TEXT
                size = z3.Length(value.content) if is_text else value.content
                if path_of(node.operands[0]) is not None:
                    most = MAX_CHARACTERS if is_text else MAX_ELEMENTS
                    self._constraints.append(z3.Implies(value.guard, size <= most))
                values.append(Value(value.guard, Kind.INT, Integer(size, z3.ToReal(size))))
        return values

    def _arithmetic(self, node: Node) -> list[Value]:
        if node.name == "_*_" and not any(map(is_constant, node.operands)):
            return self._unknown()
        left, right = (self._values(operand) for operand in node.operands)
        return self._calculate(node.name, left, right)

    def _calculate(self, name: str, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        values = []
        for one in left:
            for other in right:
                guard = all_of(one.guard, other.guard)
                if guard is FALSE:
                    continue
                match one.kind, other.kind:
                    case Kind.INT, Kind.INT:
                        result = calculate_integer(name, one.content.exact, other.content.exact)
                        fits = z3.And(result >= MIN_INT, result <= MAX_INT)
                        values.append(Value(all_of(guard, fits), Kind.INT, Integer(result, None)))
                    case Kind.TEXT, Kind.TEXT if name == "_+_":
                        joined = z3.Concat(one.content, other.content)
                        values.append(Value(guard, Kind.TEXT, joined))
                    case (Kind.DOUBLE, Kind.DOUBLE) | (Kind.LIST, Kind.LIST):
                        values += self._unknown_if(guard)
                    case one_kind, other_kind if Kind.OTHER in {one_kind, other_kind}:
                        values += self._unknown_if(guard)
                    # CEL has no operator for other pairs of kinds, such as a double and an integer: evaluation fails.
        return values

    def _negative(self, values: Sequence[Value]) -> list[Value]:
        zero = [Value(TRUE, Kind.INT, Integer(z3.IntVal(0), real(0)))]
        others = any_of(*(value.guard for value in values if value.kind in {Kind.DOUBLE, Kind.OTHER}))
        result = self._calculate("_-_", zero, [value for value in values if value.kind is Kind.INT])
        return [*result, *self._unknown_if(others)] if others is not FALSE else result

    def _unknown_if(self, guard: Bool) -> list[Value]:
        self._is_exact = False
        return [Value(guard, Kind.OTHER)]
