"""Syntax trees of CEL expressions, decoded from the serialized form of `cel-expr-python`.

The library returns a checked expression only as bytes: a `google.protobuf.Any` that contains a `cel.expr.CheckedExpr`.
This module decodes the bytes itself, because the library does not include the generated protobuf classes. The field
numbers are those of https://github.com/google/cel-spec/blob/master/proto/cel/expr/syntax.proto, which never change.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: maximum depth of nested nodes. The library limits the recursion of its parser to 32, but macros such as `all()` add a
#: few nodes for each level.
MAX_DEPTH = 100

Kind: TypeAlias = Literal["constant", "name", "select", "has", "call", "list", "map", "message", "loop"]
Constant: TypeAlias = bool | int | float | str | bytes | None
_Fields: TypeAlias = "dict[int, list[int | bytes]]"

_SIGN = 1 << 63
_CHECKED_EXPRESSION = b"type.googleapis.com/cel.expr.CheckedExpr"


class Unsigned(int):
    """Unsigned integer, which CEL distinguishes from an integer with the same value."""

    __slots__ = ()


class InvalidExpression(ValueError):
    """Error for an expression that a rule cannot use. The message contains the problem, its position and the fix."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a syntax tree.

    `name` is the name of a variable, field, function, message or loop variable, `constant` the value of a literal. The
    operands depend on the kind:

    - `select` and `has`: the value whose field is selected
    - `call`: the target, if there is one, and the arguments
    - `list`: the elements
    - `map`: keys and values in turn
    - `message`: the values of the fields
    - `loop`: the range, the initial value, the condition, the step and the result
    """

    id: int
    kind: Kind
    name: str = ""
    constant: Constant = None
    operands: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True)
class SyntaxTree:
    """Tree of a type-checked expression: the root node, and the offsets of nodes in the text, by node id."""

    root: Node
    offsets: Mapping[int, int]


def decode(serialized: bytes) -> SyntaxTree:
    """Return the syntax tree of a serialized expression.

    Raises:
        InvalidExpression: The expression is not type-checked, is nested too deeply, or contains a node of an unknown
            kind.
    """
    envelope = _fields(serialized)
    if _bytes(envelope, 1) != _CHECKED_EXPRESSION:
        raise InvalidExpression("The expression was not type-checked: report this as a defect of Toolgate")
    checked = _fields(_bytes(envelope, 2))
    positions = _fields(_bytes(checked, 5)).get(4, [])
    entries = [_fields(entry) for entry in positions if isinstance(entry, bytes)]
    offsets = {_int(entry, 1): _int(entry, 2) for entry in entries}
    return SyntaxTree(_node(_bytes(checked, 4), MAX_DEPTH), offsets)


def _node(data: bytes, depth: int) -> Node:
    if not depth:
        raise InvalidExpression(
            f"The expression is nested deeper than {MAX_DEPTH} levels: split it into several rules"
        )
    fields = _fields(data)
    identifier = _int(fields, 2)
    numbers = fields.keys() & {3, 4, 5, 6, 7, 8, 9}
    if len(numbers) != 1:
        raise InvalidExpression("The expression contains syntax that rules do not support: simplify it")
    [number] = numbers
    body = _fields(_bytes(fields, number))
    match number:
        case 3:
            return Node(identifier, "constant", constant=_constant(body))
        case 4:
            return Node(identifier, "name", _text(body, 1))
        case 5:
            operand = _node(_bytes(body, 1), depth - 1)
            return Node(identifier, "has" if _int(body, 3) else "select", _text(body, 2), operands=(operand,))
        case 6:
            parts = [*body.get(1, []), *body.get(3, [])]
            return Node(identifier, "call", _text(body, 2), operands=_nodes(parts, depth))
        case 7:
            return Node(identifier, "list", operands=_nodes(body.get(1, []), depth))
        case 8:
            entries = [_fields(entry) for entry in body.get(2, []) if isinstance(entry, bytes)]
            name = _text(body, 1)
            parts = [part for entry in entries for number in (3, 4) for part in entry.get(number, [])]
            return Node(identifier, "message" if name else "map", name, operands=_nodes(parts, depth))
        case _:
            parts = [_bytes(body, part) for part in (2, 4, 5, 6, 7)]
            return Node(identifier, "loop", _text(body, 1), operands=_nodes(parts, depth))


def _nodes(parts: "list[int | bytes] | list[bytes]", depth: int) -> tuple[Node, ...]:
    return tuple(_node(part, depth - 1) for part in parts if isinstance(part, bytes))


def _constant(body: _Fields) -> Constant:
    [number] = body
    match number:
        case 2:
            return bool(_int(body, 2))
        case 3:
            return _int(body, 3)
        case 4:
            return Unsigned(_int(body, 4) % (2 * _SIGN))
        case 5:
            [double] = struct.unpack("<d", _bytes(body, 5))
            assert isinstance(double, float)  # noqa: S101 - the format is a double
            return double
        case 6:
            return _text(body, 6)
        case 7:
            return _bytes(body, 7)
        case _:
            return None


def _fields(data: bytes) -> _Fields:
    """Return the values of each field by its number, in the order of the data. Integers are decoded as signed."""
    fields: _Fields = {}
    for number, value in _read(data):
        fields.setdefault(number, []).append(value)
    return fields


def _read(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value - 2 * _SIGN if value & _SIGN else value
                continue
            case 2:
                length, position = _varint(data, position)
            case 1:
                length = 8
            case _:
                length = 4
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            return value, position
        shift += 7


def _int(fields: _Fields, number: int) -> int:
    value = fields.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _bytes(fields: _Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def _text(fields: _Fields, number: int) -> str:
    return _bytes(fields, number).decode()
