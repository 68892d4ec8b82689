"""Default mappings of the MCP methods, which apply where no tool declares a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DEFAULT_MAPPINGS", "is_passed"]

_SERVER: Final = ("mcp_server", "$token.aud")
_URI: Final = ("resource", "$params.uri")
_TASK: Final = ("task", "$params.taskId")
_IS_PROMPT: Final = "$params.ref.type == 'ref/prompt'"


def _mapping(method: str, resource: tuple[str, str], **context: str) -> Mapping[str, Any]:
    kind, identifier = resource
    return {
        "evaluation": {
            "subject": {"type": "identity", "id": "$token.sub"},
            "context": {"agent": "$token.?client_id", **context},
            "action": {"name": method},
            "resource": {"type": kind, "id": identifier},
        }
    }


#: The mapping of each method. Requests with another method are denied, except `ping`.
DEFAULT_MAPPINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "initialize": _mapping("initialize", _SERVER, protocol_version="$params.protocolVersion"),
    "tools/list": _mapping("tools/list", _SERVER),
    "tools/call": _mapping("tools/call", ("tool", "$params.name")),
    "resources/list": _mapping("resources/list", _SERVER),
    "resources/read": _mapping("resources/read", _URI),
    "resources/subscribe": _mapping("resources/subscribe", _URI),
    "resources/unsubscribe": _mapping("resources/unsubscribe", _URI),
    "prompts/list": _mapping("prompts/list", _SERVER),
    "prompts/get": _mapping("prompts/get", ("prompt", "$params.name")),
    "completion/complete": _mapping(
        "completion/complete",
        (f"{_IS_PROMPT} ? 'prompt' : 'resource'", f"{_IS_PROMPT} ? params.ref.name : params.ref.uri"),
    ),
    "logging/setLevel": _mapping("logging/setLevel", _SERVER, level="$params.level"),
    "tasks/get": _mapping("tasks/get", _TASK),
    "tasks/result": _mapping("tasks/result", _TASK),
    "tasks/cancel": _mapping("tasks/cancel", _TASK),
    "tasks/list": _mapping("tasks/list", _SERVER),
}


def is_passed(method: str) -> bool:
    """Return whether a request passes without a check. Notifications, which are not requests, pass as well."""
    return method == "ping"
