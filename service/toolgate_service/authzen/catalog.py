"""Candidates of AuthZEN searches: the agents, tools, ids and action names that occur in an environment.

The gateway does not store users or the resources of other systems. It finds their ids in the conditions of rules: the
texts with which a condition compares `args.subject.id`, `args.resource.id` or `args.action.name`. A search then
evaluates each candidate.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.authzen.mapping import AGENT, TOOL, name_of
from toolgate_service.authzen.schemas import Search
from toolgate_service.context import AuthContext
from toolgate_service.core.ids import is_id
from toolgate_service.permissions.models import Permission
from toolgate_service.rules.evaluation import WILDCARD, CompiledRule
from toolgate_service.rules.expressions import InvalidExpression, compile_expression
from toolgate_service.rules.syntax_tree import Node

#: path of a field below the arguments of a call
Path: TypeAlias = tuple[str, ...]

SUBJECT_ID: Path = ("subject", "id")
RESOURCE_ID: Path = ("resource", "id")
ACTION_NAME: Path = ("action", "name")
_PATHS = frozenset({SUBJECT_ID, RESOURCE_ID, ACTION_NAME})
#: functions of CEL that compare a field with texts: `==`, `!=`, `in`, and the lookup in a map
_COMPARISONS = frozenset({"_==_", "_!=_", "@in", "_[_]"})
#: names of the action "call a tool": the gateway's name, and the name in the Model Context Protocol
_TOOL_ACTIONS = ("call", "tools/call")
#: largest possible id, after which no agent is listed
_NO_AGENT = "ffffffff-ffff-ffff-ffff-ffffffffffff"
#: maximum number of conditions in the cache of `compared_texts`
_KEPT = 5_000


async def find_candidates(
    session: AsyncSession,
    auth: AuthContext,
    search: Search,
    rules: Sequence[CompiledRule],
    after: str,
    limit: int,
) -> list[str]:
    """Return the next candidates of a search, which are ids or names, in sorted order.

    Args:
        session: Session of a read transaction.
        auth: Context of the API key, and of the agent if the search names one.
        search: The search.
        rules: Enabled rules of the environment.
        after: Last candidate of the previous page; an empty string for the first page.
        limit: Maximum number of candidates.
    """
    if search.kind == "subject" and search.evaluation.subject["type"] == AGENT:
        return await _find_agents(session, auth, after, limit)
    found = await _find_named(session, auth, search, rules)
    return sorted(one for one in found if one > after)[:limit]


async def _find_agents(session: AsyncSession, auth: AuthContext, after: str, limit: int) -> list[str]:
    if auth.key_agent_id is not None:
        return [auth.key_agent_id] if auth.key_agent_id > after else []
    query = (
        select(Agent.id)
        .where(
            Agent.organization_id == auth.organization_id,
            Agent.environment == auth.environment,
            col(Agent.deleted_at).is_(None),
        )
        .order_by(col(Agent.id))
        .limit(limit)
    )
    if after:
        # PostgreSQL would raise an error for a text that is not a UUID. Only a forged page token contains such a text.
        query = query.where(col(Agent.id) > (after if is_id(after) else _NO_AGENT))
    return list((await session.exec(query)).all())


async def _find_named(
    session: AsyncSession, auth: AuthContext, search: Search, rules: Sequence[CompiledRule]
) -> set[str]:
    if search.kind == "subject":
        return await _texts(rules, SUBJECT_ID)
    resource_type = str(search.evaluation.resource["type"])
    if search.kind == "resource":
        if resource_type == TOOL:
            return await _find_actions(session, auth, rules)
        return await _texts(rules, RESOURCE_ID)
    names = await _texts(rules, ACTION_NAME)
    if resource_type == TOOL:
        return names | set(_TOOL_ACTIONS)
    actions = await _find_actions(session, auth, rules)
    return names | {name for action in actions if (name := name_of(resource_type, action)) is not None}


async def _find_actions(session: AsyncSession, auth: AuthContext, rules: Iterable[CompiledRule]) -> set[str]:
    """Return the actions in the agent's permissions, and the actions without a wildcard in the rules."""
    query = select(Permission.action).where(
        Permission.organization_id == auth.organization_id,
        Permission.environment == auth.environment,
        Permission.agent_id == auth.agent_id,
    )
    permitted = set((await session.exec(query)).all()) if auth.agent_id is not None else set()
    patterns = {pattern for rule in rules for pattern in rule.actions}
    return permitted | {pattern for pattern in patterns if not pattern.endswith(WILDCARD)}


async def _texts(rules: Sequence[CompiledRule], path: Path) -> set[str]:
    conditions = {rule.when for rule in rules if rule.when is not None}
    # Parse the conditions in a thread, because a thousand new conditions would block the event loop for too long.
    return await asyncio.to_thread(
        lambda: {text for one in conditions for text in compared_texts(one).get(path, ())}
    )


@lru_cache(_KEPT)
def compared_texts(condition: str) -> Mapping[Path, frozenset[str]]:
    """Return the texts with which a condition compares the fields in `_PATHS`, by the path of the field."""
    try:
        root = compile_expression(condition).decode().root
    except InvalidExpression:
        # The condition was valid when it was stored, but this version of the library rejects it.
        return {}
    found: dict[Path, set[str]] = {}
    for node in _nodes(root):
        if node.kind == "call" and node.name in _COMPARISONS:
            paths = [path for operand in node.operands if (path := _path(operand)) in _PATHS]
            for path in paths:
                texts = found.setdefault(path, set())
                for operand in node.operands:
                    texts.update(_constants(operand))
    return {path: frozenset(texts) for path, texts in found.items()}


def _nodes(root: Node) -> Iterator[Node]:
    left = [root]
    while left:
        node = left.pop()
        yield node
        left.extend(node.operands)


def _path(node: Node) -> Path:
    """Return the path below `args` of a node such as `args.subject.id` or `args["subject"].id`; () for other nodes."""
    names: list[str] = []
    while True:
        if node.kind == "select":
            names.append(node.name)
            [node] = node.operands
        elif node.kind == "call" and node.name == "_[_]" and isinstance(node.operands[1].constant, str):
            names.append(node.operands[1].constant)
            node = node.operands[0]
        else:
            break
    is_args = node.kind == "name" and node.name.removeprefix(".") == "args"
    return tuple(reversed(names)) if is_args else ()


def _constants(node: Node) -> Iterator[str]:
    """Return the string constants in a node: the node itself, the elements of a list, or the keys of a map.

    All other values and expressions are skipped.
    """
    parts: Sequence[Node] = (node,)
    if node.kind == "list":
        parts = node.operands
    elif node.kind == "map":
        parts = node.operands[::2]
    return (part.constant for part in parts if part.kind == "constant" and isinstance(part.constant, str))
