"""Calls of tools of Google's ADK: what is open between two callbacks, and what a session keeps of those that wait."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from google.adk.events import Event
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic_core import to_jsonable_python

from toolgate import ApprovalPending
from toolgate_integrations._arguments import ArgumentSchema, CustomSchema, RawSchema, with_signature_defaults
from toolgate_integrations._base import Begun, ToolCall
from toolgate_integrations._during import during

__all__ = [
    "PAUSES",
    "Asked",
    "Open",
    "StoppedError",
    "asked_for",
    "confirms",
    "failure",
    "inside",
    "outer",
    "recordable",
    "schema_of",
    "served_by",
    "stopped",
]

#: the framework's name of the calls by which it asks its user
CONFIRMATION: Final = "adk_request_confirmation"


class StoppedError(Exception):
    """The tool asks its user for something, and is called again with the answer."""


#: what a call stops by only to be made again
PAUSES = (StoppedError, ApprovalPending)


# The call of a tool inside which others are made. An agent that a tool runs has a session that is thrown away: it
# cannot pause.
_outer: ContextVar[ToolCall | None] = ContextVar("toolgate_adk_outer", default=None)


@dataclass(slots=True)
class Open:
    """A call that was let through, and has not ended.

    Attributes:
        context: The framework's context, the same in all callbacks of a call.
        call: The call.
        begun: What records it; None for a function that asks and records by itself.
        around: What holds while it runs.
    """

    context: ToolContext
    call: ToolCall
    begun: Begun | None
    around: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a session keeps of a call that waits for its user.

    Attributes:
        author: The agent that makes the call.
        request: The framework's request.
        approval_id: The gateway's; None if the framework asks by itself.
    """

    author: str
    request: types.FunctionCall
    approval_id: str | None


def outer() -> ToolCall | None:
    """The call of a tool inside which this is, if it is inside one."""
    return _outer.get()


def inside(call: ToolCall) -> AbstractContextManager[None]:
    """While a tool runs."""
    return during(_outer, _outer.get() or call)


def asked_for(events: Sequence[Event], wanted: str | None) -> Asked | None:
    """What a session says of a request, by its id or by the id of the call it is about; the newest."""
    for event in reversed(events):
        for request in event.get_function_calls():
            original = (request.args or {}).get("originalFunctionCall")
            if request.name != CONFIRMATION or not isinstance(original, Mapping) or wanted is None:
                continue
            if wanted in (request.id, original.get("id")):
                said = (request.args or {}).get("toolConfirmation")
                payload = said.get("payload") if isinstance(said, Mapping) else None
                approval_id = payload.get("approval_id") if isinstance(payload, Mapping) else None
                return Asked(event.author, request, approval_id if isinstance(approval_id, str) else None)
    return None


def confirms(part: types.Part) -> str | None:
    """The id of the request that a part of a user's message says yes to; None for anything else."""
    answer = part.function_response
    if answer is None or answer.name != CONFIRMATION or not isinstance(answer.response, Mapping):
        return None
    said: Any = answer.response
    if set(said) == {"response"}:
        # As the framework's own client writes it.
        try:
            said = json.loads(said["response"])
        except (TypeError, ValueError):
            return None
    return answer.id if isinstance(said, Mapping) and said.get("confirmed") is True else None


def stopped(context: ToolContext) -> bool:
    """Whether a tool that has come back only asks its user for something."""
    name = context.function_call_id
    asked = (context.actions.requested_tool_confirmations, context.actions.requested_auth_configs)
    return any(name in each for each in asked)


def failure(result: object) -> str | None:
    """What a tool's answer says went wrong, by the framework's convention or the one of MCP."""
    if not isinstance(result, Mapping):
        return None
    if result.get("isError") is True:
        return str(result.get("content"))
    return str(result["error"]) if result.get("error") else None


def recordable(error: BaseException) -> Exception:
    """What ended a call, as it is recorded: a run that is cancelled says so by what is no Exception."""
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)


def schema_of(tool: BaseTool) -> ArgumentSchema:
    """Return the schema by which the framework converts the arguments of a tool's calls."""
    if not isinstance(tool, FunctionTool):
        return RawSchema()
    own = {"tool_context", "input_stream", *getattr(tool, "_ignore_params", ())}

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        validate = getattr(tool, "_preprocess_args_with_validation", None)
        # Some versions have no method that also returns errors.
        found, errors = (tool._preprocess_args(sent), []) if validate is None else validate(sent)  # noqa: SLF001 - the one place where it converts
        if errors:
            raise ValueError("\n".join(errors))
        parameters = inspect.signature(tool.func).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            # It leaves out what the function does not take.
            found = {name: value for name, value in found.items() if name in parameters}
        found = {name: value for name, value in found.items() if name not in own}
        return with_signature_defaults(found, tool.func, own)

    return CustomSchema(receive, lambda received: to_jsonable_python(dict(received), by_alias=True))


def served_by(tool: BaseTool) -> tuple[str | None, str | None]:
    """The server of a remote tool by the name it has here, its prefix, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty for a server without a prefix.
    """
    if not any(each.__module__.startswith("google.adk.tools.mcp_tool.") for each in type(tool).__mro__):
        return None, None
    own_name = str(getattr(tool, "raw_mcp_tool", tool).name)
    prefix = tool.name.removesuffix(own_name)
    return ("" if prefix == tool.name else prefix.rstrip("_")), own_name
