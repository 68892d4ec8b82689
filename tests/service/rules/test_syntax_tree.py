"""Decoding of the library's serialized expressions."""

from typing import Any

import pytest
from cel_expr_python import cel

from toolgate_service.rules.syntax_tree import InvalidExpression, Node, Unsigned, decode


def _decoded(text: str) -> Node:
    environment = cel.NewEnv(variables={"args": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})
    return decode(environment.compile(text).serialize()).root


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-5", -5),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("7u", Unsigned(7)),
        ("18446744073709551615u", Unsigned(2**64 - 1)),
        ("2.5", 2.5),
        ("'é😀'", "é😀"),
        ("''", ""),
        ("b'a\\xff'", b"a\xff"),
        ("true", True),
        ("false", False),
        ("null", None),
    ],
)
def test_constants_keep_their_value(text: str, value: Any) -> None:
    root = _decoded(text)
    assert root.kind == "constant"
    assert root.constant == value
    assert type(root.constant) is type(value)


def test_nodes_have_their_names_and_operands_in_order() -> None:
    root = _decoded("args.a['b'].contains('c') || has(args.d) || [1, 2] == [args.e] || {'k': 1} == args.f")
    found: list[str] = []

    def visit(node: Node) -> None:
        found.append(f"{node.kind} {node.name or node.constant}")
        for operand in node.operands:
            visit(operand)

    visit(root)
    assert found == [
        *[
            "call _||_",
            "call _||_",
            "call contains",
            "call _[_]",
            "select a",
            "name args",
            "constant b",
            "constant c",
        ],
        *[
            "has d",
            "name args",
            "call _||_",
            "call _==_",
            "list None",
            "constant 1",
            "constant 2",
            "list None",
            "select e",
        ],
        *["name args", "call _==_", "map None", "constant k", "constant 1", "select f", "name args"],
    ]


def test_macro_is_decoded_as_a_loop() -> None:
    root = _decoded("args.xs.all(x, x == 1)")
    values, initial, _, step, _ = root.operands
    assert (root.kind, root.name) == ("loop", "x")
    assert (values.kind, values.name) == ("select", "xs")
    assert initial.constant is True
    assert step.name == "_&&_"
    assert step.operands[1].name == "_==_"


def test_offsets_are_positions_in_the_text() -> None:
    environment = cel.NewEnv(variables={"args": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})
    tree = decode(environment.compile("true &&\n args.x == 1").serialize())
    comparison = tree.root.operands[1]
    assert tree.offsets[comparison.id] == 16


def test_expression_that_is_not_type_checked_is_refused() -> None:
    environment = cel.NewEnv()
    with pytest.raises(InvalidExpression, match="not type-checked"):
        decode(environment.compile("true", disable_check=True).serialize())
