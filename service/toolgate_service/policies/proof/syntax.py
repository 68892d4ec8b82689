"""Functions for syntax trees of conditions: paths of arguments, keys of equal parts, and substitution."""

from collections.abc import Mapping

from toolgate_service.rules.syntax_tree import Node

#: names of the members that lead from `args` to a value; an integer is the index of an element of a list
Path = tuple[str | int, ...]


def name_of(node: Node) -> str | None:
    """Return the name of a variable or of a field of a variable, such as `agent.name`; None for other nodes."""
    if node.kind == "name":
        return node.name.removeprefix(".")
    member = _member(node)
    if member is None or node.operands[0].kind != "name":
        return None
    return f"{name_of(node.operands[0])}.{member}"


def path_of(node: Node) -> Path | None:
    """Return the path of the value in `args` that a node reads; None if it reads none, or its path is not constant."""
    member = _member(node)
    if member is None:
        return None
    container = node.operands[0]
    if name_of(container) == "args":
        return (member,) if isinstance(member, str) else None
    path = path_of(container)
    return None if path is None else (*path, member)


def _member(node: Node) -> "str | int | None":
    if node.kind == "select":
        return node.name
    if node.kind == "call" and node.name == "_[_]":
        member = node.operands[1].constant
        if isinstance(member, str) or (type(member) is int and member >= 0):
            return member
    return None


def is_constant(node: Node) -> bool:
    """Return whether the node is a literal value."""
    return node.kind == "constant"


def key_of(node: Node, agent: Mapping[str, str]) -> str:
    """Return a key that is equal for equal expressions.

    For expressions that read the agent, the keys are equal only if the agents are equal too.
    """
    name = name_of(node)
    own = f"{node.kind} {node.name!r} {type(node.constant).__name__} {node.constant!r}"
    if name is not None and name.split(".")[0] == "agent":
        own += f" {sorted(agent.items())!r}"
    return f"{own}({', '.join(key_of(operand, agent) for operand in node.operands)})"


def substitute(node: Node, name: str, element: Node) -> Node:
    """Return a copy of an expression in which `element` replaces the loop variable `name`."""
    if node.kind == "name":
        return element if node.name == name else node
    operands = node.operands
    if node.kind == "loop" and node.name == name:
        # The inner loop has its own variable with this name, so only its range can refer to the outer variable.
        replaced = (substitute(operands[0], name, element), *operands[1:])
    else:
        replaced = tuple(substitute(operand, name, element) for operand in operands)
    return Node(node.id, node.kind, node.name, node.constant, replaced)
