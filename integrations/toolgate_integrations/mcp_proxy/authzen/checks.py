"""Translation of access evaluations to checks of the gateway.

The translation is the one of the gateway's own AuthZEN endpoint, with two differences. The action begins with the name of
the server, because the server writes its mappings: they cannot result in an action of another server. The agent is the one
of the proxy, because a mapping must not choose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from toolgate_integrations.mcp_proxy.authzen.errors import MappingError
from toolgate_integrations.mcp_proxy.authzen.mapping import Evaluation

__all__ = ["Check", "to_check"]

#: type of a resource that is a tool, whose id is the action
TOOL: Final = "tool"
_ENTITIES: Final = frozenset({"subject", "action", "resource", "context"})
#: members of the context that are not arguments of a check, so that approvals are not bound to them
_NOT_ARGUMENTS: Final = frozenset({"time", "toolgate", "approval"})
_MAX_ACTION: Final = 255
# Characters of actions that are not escaped: visible ASCII characters except "%", and except the wildcards of rules.
_SAFE: Final = "!\"#$&'()+,-./:;<=>@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the gateway.

    Attributes:
        action: The action.
        arguments: The arguments, which rules read, the approver sees, and an approval is bound to.
    """

    action: str
    arguments: Mapping[str, Any]


def to_check(evaluation: Evaluation, server: str, action: str | None = None) -> Check:
    """Return the check that decides an access evaluation.

    Args:
        evaluation: The evaluation.
        server: Configured name of the server.
        action: The action; None to derive it from the evaluation.

    Raises:
        MappingError: The action would be too long.
    """
    return Check(_action_of(evaluation, server) if action is None else action, _arguments(evaluation))


def _action_of(evaluation: Evaluation, server: str) -> str:
    resource, name = evaluation.resource, evaluation.action["name"]
    text = resource["id"] if resource["type"] == TOOL else f"{resource['type']}.{name}"
    action = quote(f"{server}.{text}", safe=_SAFE)
    if len(action) > _MAX_ACTION:
        raise MappingError(f"the action has {len(action)} characters; the maximum is {_MAX_ACTION}")
    return action


def _arguments(evaluation: Evaluation) -> Mapping[str, Any]:
    properties = evaluation.action.get("properties", {})
    # Keep properties that have the name of an entity (subject, action, resource, context) inside `action`: as arguments of
    # their own, they could replace the entity that rules and approvers read.
    hidden = {name: value for name, value in properties.items() if name in _ENTITIES}
    arguments = {name: value for name, value in properties.items() if name not in _ENTITIES}
    action = {"name": evaluation.action["name"], **({"properties": hidden} if hidden else {})}
    bound = {name: value for name, value in evaluation.context.items() if name not in _NOT_ARGUMENTS}
    arguments |= {"subject": evaluation.subject, "action": action, "resource": evaluation.resource}
    return {**arguments, **({"context": bound} if bound else {})}
