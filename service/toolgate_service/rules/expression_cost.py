"""Static check of expressions: the permitted subset of CEL, and an upper bound of the time that an evaluation takes.

The library limits the iterations of an evaluation. It limits neither the size of the values that an iteration reads nor
the time of a regular expression: `args.list.all(x, x in args.list)` takes 0.2 s for 5,000 elements, and one regular
expression can take 3 s for 64 KiB. An evaluation cannot be interrupted. Therefore the cost of each expression is
bounded before it is evaluated, by a number of nanoseconds for each value and for each byte of the arguments that it
reads.

The bound is linear in the size of the arguments. Therefore, an operation whose time depends on the size of an operand
must not read the same data in each iteration of a loop: outside of loops it may read any argument, and inside a loop
only the variable of this loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from toolgate_service.rules.regex_size import MAX_SIZE, estimate_size
from toolgate_service.rules.syntax_tree import InvalidExpression, Node, SyntaxTree

#: maximum cost of one evaluation in nanoseconds, as estimated for one slow core
MAX_COST = 20_000_000

#: names of the fields of each variable; None for `args`, whose fields are not known in advance
FIELDS: Mapping[str, frozenset[str] | None] = MappingProxyType(
    {
        "args": None,
        "action": frozenset(),
        "agent": frozenset({"id", "name"}),
        "run": frozenset({"id"}),
        "now": frozenset(),
    }
)

_TYPES = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
    | {"google.protobuf.Duration", "google.protobuf.Timestamp"}
)
_LOGIC = frozenset({"_&&_", "_||_", "!_", "-_", "_-_", "_*_", "_/_", "_%_", "type"})
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "int", "size", "string", "timestamp", "uint"}
)
_NUMERIC = frozenset(
    {"-_", "_-_", "_*_", "_/_", "_%_", "size", "int", "uint", "double", "timestamp", "duration"}
)
_CLOCK = frozenset(
    {"getFullYear", "getMonth", "getDayOfYear", "getDate", "getDayOfMonth", "getDayOfWeek"}
    | {"getHours", "getMinutes", "getSeconds", "getMilliseconds"}
)
_OPERATORS = {"@in": "in", "_[_]": "[]", "_+_": "+"}

# Nanoseconds, measured with cel-expr-python 0.1.3 on one core of a loaded machine and rounded up. Each figure is from
# the slowest case found, for example a comparison of two maps, or `contains` with a search text that differs only at
# its end.
_NODE = 80
_LOOP = 150
_CLOCK_CALL = 300
_COMPARE_VALUE, _COMPARE_BYTE = 1_000, 2
_READ_BYTE = 5
_SEARCH_BYTE, _SEARCH_BYTE_DYNAMIC = 20, 300
_REGEX, _REGEX_INSTRUCTION = 4_000, 500
_REGEX_BYTE, _REGEX_BYTE_SMALL, _REGEX_BYTE_INSTRUCTION = 400, 40, 16
#: assumed length of texts that are not in `args`: the action, ids and names
_SHORT = 256

_FAR = (
    "Inside a loop, this comparison would read the same data for each element: compare with a literal or with "
    "the variable of the innermost loop"
)

Path: TypeAlias = "tuple[str | int, ...]"


class Part(NamedTuple):
    """Path in `args` from which the data in a value of the expression can come."""

    #: 0 if the expression reads the data directly from `args`; otherwise the nesting depth, counted from 1, of the loop
    #: whose variable contains the data
    level: int
    path: Path
    #: True if the value is at `path`; False if it is at an unknown position inside the value at `path`, for example a
    #: list element
    is_exact: bool


class Source(NamedTuple):
    """Origin of a value: the parts of `args` that it can contain, and the number of elements of its literal lists."""

    parts: tuple[Part, ...] = ()
    elements: int = 0


@dataclass(slots=True)
class Cost:
    """Upper bound of the time of an evaluation in nanoseconds."""

    #: nanoseconds that do not depend on the size of the arguments
    base: int = 0
    #: nanoseconds for each value, and for each byte of text, in the data at each path of `args`
    terms: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def charge(self, part: Part, *, value: int = 0, byte: int = 0) -> None:
        """Add nanoseconds for each value and for each byte of text in a part of the arguments."""
        values, length = self.terms.get(part.path, (0, 0))
        self.terms[part.path] = (values + value, length + byte)

    def add(self, other: "Cost", times: int = 1) -> None:
        """Add the terms of `other`, multiplied by `times`. The base of `other` is not added."""
        for path, (value, byte) in other.terms.items():
            self.charge(Part(0, path, is_exact=True), value=value * times, byte=byte * times)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Arguments that an expression reads, and the cost of an evaluation."""

    uses_args: bool
    #: names of the arguments that the expression can read; None if it can read all of them
    argument_names: frozenset[str] | None
    cost: Cost
    #: regular expressions and time zones in the expression, which only the library can check
    regexes: frozenset[str]
    time_zones: frozenset[str]


def analyze(tree: SyntaxTree, text: str) -> Analysis:
    """Check an expression against the permitted subset of CEL, and return its cost.

    Raises:
        InvalidExpression: The expression is not in this subset, or its cost exceeds the limit even without arguments.
    """
    analyzer = _Analyzer(text, tree.offsets)
    analyzer.visit(tree.root, {}, 0)
    cost = analyzer.cost
    if cost.base > MAX_COST:
        raise InvalidExpression("The expression takes too long: shorten its lists and regular expressions")
    names = None if analyzer.reads_all_arguments else frozenset(analyzer.argument_names)
    return Analysis(
        names != frozenset(), names, cost, frozenset(analyzer.regexes), frozenset(analyzer.time_zones)
    )


@dataclass(slots=True)
class _Analyzer:
    text: str
    offsets: Mapping[int, int]
    cost: Cost = field(default_factory=Cost)
    argument_names: set[str] = field(default_factory=set)
    reads_all_arguments: bool = False
    regexes: set[str] = field(default_factory=set)
    time_zones: set[str] = field(default_factory=set)

    def visit(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        """Add the cost of a node to `cost`, and return the origin of its value."""
        self.cost.base += _NODE
        match node.kind:
            case "constant":
                return Source()
            case "name":
                return self._name(node, scope)
            case "select" | "has":
                return self._select(node, scope, depth)
            case "call":
                return self._call(node, scope, depth)
            case "list" | "map":
                return self._collection(node, scope, depth)
            case "loop":
                return self._loop(node, scope, depth)
            case "message":
                raise self._error(node, f"Messages such as {node.name}{{}} are not available")

    def _name(self, node: Node, scope: Mapping[str, Source]) -> Source:
        name = node.name.removeprefix(".")
        if node.name in scope:
            return scope[node.name]
        if name == "args":
            self.reads_all_arguments = True
            return Source((Part(0, (), is_exact=True),))
        if name in FIELDS:
            return Source(elements=len(FIELDS[name] or ()))
        if name in _TYPES:
            return Source()
        raise self._error(node, f"Unknown variable {name!r}: use {', '.join(FIELDS)}")

    def _select(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        [operand] = node.operands
        if operand.kind == "name" and operand.name not in scope:
            variable = operand.name.removeprefix(".")
            fields = FIELDS.get(variable)
            if variable == "args":
                return self._argument(node.name)
            if fields is not None and node.name not in fields:
                some = " and ".join(sorted(fields)) or "no fields"
                raise self._error(node, f"{variable} has no field {node.name!r}: it has {some}")
        return _member(self.visit(operand, scope, depth), node.name)

    def _argument(self, name: str) -> Source:
        self.argument_names.add(name)
        return Source((Part(0, (name,), is_exact=True),))

    def _collection(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        sources = [self.visit(operand, scope, depth) for operand in node.operands]
        if node.kind == "map":
            for key, source in zip(node.operands[::2], sources[::2], strict=True):
                if source.parts:
                    raise self._error(
                        key,
                        "A map key must not depend on args: use a literal key, or compare the argument directly",
                    )
        return _joined(*sources, elements=len(sources))

    def _loop(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        body = loop_body(node)
        if body is None:
            raise self._error(
                node,
                "map() and filter() are not available, because they are too slow: use all(), exists() or exists_one()",
            )
        if node.name in FIELDS:
            raise self._error(node, f"A loop variable must not be named {node.name!r}: choose another name")
        source = self.visit(node.operands[0], scope, depth)
        if not source.parts and not source.elements:
            raise self._error(
                node, "all(), exists() and exists_one() need a list or map of args, or a literal list"
            )
        self._need_near(node.operands[0], source, depth, "all(), exists() or exists_one()")
        outer, self.cost = self.cost, Cost()
        # A literal list has few and small elements, so its loop costs as much as repetitions of the loop's body.
        inside = depth + 1 if source.parts else depth
        parts = tuple(Part(inside, part.path, is_exact=False) for part in source.parts)
        self.visit(body, {**scope, node.name: Source(parts, source.elements)}, inside)
        inner, self.cost = self.cost, outer
        once = inner.base + _LOOP
        self.cost.base += once * source.elements
        self.cost.add(inner, 1 if source.parts else source.elements)
        for part in source.parts:
            self.cost.charge(part, value=once)
        return Source()

    def _call(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        name, operands = node.name, node.operands
        if name == "_[_]" and _is_argument(node, scope):
            self.cost.base += _NODE
            return self._argument(str(operands[1].constant))
        if name == "matches":
            return self._match(node, scope, depth)
        if name in _CLOCK:
            return self._clock(node, scope, depth)
        sources = [self.visit(operand, scope, depth) for operand in operands]
        if name in _LOGIC:
            return Source()
        if name == "_?_:_":
            return _joined(*sources[1:])
        if name == "dyn":
            return sources[0]
        if name in _COMPARISONS:
            near = [source for source in sources if _is_near(source, depth)]
            if not near:
                raise self._error(node, _FAR)
            # A comparison reads no more of the larger operand than of the smaller one.
            self._charge(
                min(near, key=lambda source: len(source.parts)), value=_COMPARE_VALUE, byte=_COMPARE_BYTE
            )
            return Source()
        if name == "_+_" and any(_is_number(operand) for operand in operands):
            return Source()
        return self._read(node, sources, depth)

    def _read(self, node: Node, sources: list[Source], depth: int) -> Source:
        """Add the cost of an operator or function that reads its operands, and return the origin of the result."""
        name, operands = node.name, node.operands
        needed = sources[1:] if name == "_[_]" else sources
        for operand, source in zip(operands[-len(needed) :], needed, strict=True):
            self._need_near(operand, source, depth, _OPERATORS.get(name, f"{name}()"))
        match name:
            case "_+_":
                joined = _joined(*sources)
                self._charge(joined, value=_NODE, byte=_COMPARE_BYTE)
                return joined
            case "_[_]":
                self._charge(sources[1], byte=_READ_BYTE)
                return _member(sources[0], operands[1].constant)
            case "@in":
                self._charge(sources[0], byte=_READ_BYTE)
                self._charge(sources[1], value=_COMPARE_VALUE, byte=_COMPARE_BYTE)
                self.cost.base += _NODE * sources[1].elements
                return Source()
            case "contains":
                searched = operands[1].constant
                byte = (
                    _SEARCH_BYTE + len(searched) // 8 if isinstance(searched, str) else _SEARCH_BYTE_DYNAMIC
                )
                self._charge(sources[0], byte=byte)
                return Source()
            case _ if name in _CONVERSIONS:
                self._charge(sources[0], byte=_READ_BYTE)
                return sources[0] if name in {"string", "bytes"} else Source()
            case _:
                raise self._error(node, f"The function {name}() is not available")

    def _match(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        text, pattern = node.operands
        if not isinstance(pattern.constant, str):
            raise self._error(pattern, "The regular expression of matches() must be a literal string")
        size = estimate_size(pattern.constant)
        if size is None:
            raise self._error(
                pattern,
                "The regular expression uses syntax that is not available, such as \\pL or \\Q: use character "
                "classes such as [a-z]",
            )
        if size.instructions > MAX_SIZE:
            raise self._error(
                pattern,
                "The regular expression is too large: use smaller counts in {}, or a shorter expression",
            )
        source = self.visit(text, scope, depth)
        self._need_near(text, source, depth, "matches()")
        byte = (
            _REGEX_BYTE_SMALL if size.is_small else _REGEX_BYTE + _REGEX_BYTE_INSTRUCTION * size.instructions
        )
        self.cost.base += (
            _REGEX + _REGEX_INSTRUCTION * size.instructions + byte * (0 if source.parts else _SHORT)
        )
        self._charge(source, byte=byte)
        self.regexes.add(pattern.constant)
        return Source()

    def _clock(self, node: Node, scope: Mapping[str, Source], depth: int) -> Source:
        for zone in node.operands[1:]:
            if not isinstance(zone.constant, str):
                raise self._error(
                    zone, f"The time zone of {node.name}() must be a literal string such as 'Europe/Berlin'"
                )
            self.time_zones.add(zone.constant)
        self.visit(node.operands[0], scope, depth)
        self.cost.base += _CLOCK_CALL
        return Source()

    def _charge(self, source: Source, *, value: int = 0, byte: int = 0) -> None:
        for part in source.parts:
            self.cost.charge(part, value=value, byte=byte)

    def _need_near(self, node: Node, source: Source, depth: int, name: str) -> None:
        if not _is_near(source, depth):
            raise self._error(
                node,
                f"Inside a loop, {name} must not read args or the variable of an outer loop, because it would read the "
                "same data for each element: use literals or the variable of the innermost loop",
            )

    def _error(self, node: Node, message: str) -> InvalidExpression:
        offset = self.offsets.get(node.id)
        return InvalidExpression(f"{message}{'' if offset is None else f' ({_place(self.text, offset)})'}")


def _place(text: str, offset: int) -> str:
    """Return the line and the column of a character, both counted from 1."""
    before = text[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"


def _is_near(source: Source, depth: int) -> bool:
    return all(part.level == depth for part in source.parts)


def _is_argument(node: Node, scope: Mapping[str, Source]) -> bool:
    """Return whether the node reads an argument by a constant name, such as `args["name"]`."""
    operand, key = node.operands
    return (
        operand.kind == "name"
        and operand.name not in scope
        and operand.name.removeprefix(".") == "args"
        and isinstance(key.constant, str)
    )


def _is_number(node: Node) -> bool:
    if node.kind == "constant":
        return isinstance(node.constant, int | float) and not isinstance(node.constant, bool)
    return node.kind == "call" and node.name in _NUMERIC


def _member(source: Source, key: object) -> Source:
    """Return the source of a member of a value with this source.

    If the key is not constant, or the path to the value is not exact, the path to the member is not exact.
    """
    is_constant = isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool))
    parts = tuple(
        Part(part.level, (*part.path, key), is_exact=True)
        if part.is_exact and is_constant and isinstance(key, str | int)
        else part._replace(is_exact=False)
        for part in source.parts
    )
    return Source(parts, source.elements)


def _joined(*sources: Source, elements: int = 0) -> Source:
    parts = tuple(part for source in sources for part in source.parts)
    return Source(parts, elements + sum(source.elements for source in sources))


def loop_body(loop: Node) -> Node | None:
    """Return the condition of a loop that a CEL macro `all`, `exists` or `exists_one` created; None for other loops."""
    _, initial, _, step, _ = loop.operands
    if step.kind != "call":
        return None
    match step.name, initial.constant:
        case "_&&_" | "_||_", bool():
            return step.operands[1]
        case "_?_:_", int():
            return step.operands[0]
        case _:
            return None
