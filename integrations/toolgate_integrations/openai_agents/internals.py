"""Access to the private attributes of tools in the OpenAI Agents SDK.

The types of the attributes are verified before use. If an attribute is missing, the tool is refused or guarded like
an ordinary tool; it never runs without a check.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from agents import Agent, FunctionTool
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.exceptions import ModelBehaviorError
from agents.mcp import MCPServer
from agents.tool_context import ToolContext

from toolgate import ConfigurationError
from toolgate_integrations._arguments import encoded
from toolgate_integrations.base import ArgumentSchema, CustomSchema, JsonSchema

__all__ = [
    "Seen",
    "agent_of",
    "function_of",
    "make_refusing_invoker",
    "make_watched_invoker",
    "pauses_inside",
    "remote_of",
    "replace_agent",
    "schema_of",
]

Invoker = Callable[[ToolContext[Any], str], Awaitable[Any]]


@dataclass
class Seen:
    """Errors of a tool, stored before the tool's own error handling converts them to text for the model.

    Attributes:
        error: The exception that the tool raised, or None.
        answer: The error message that an MCP server returned, or None.
    """

    error: Exception | None = None
    answer: str | None = None

    @property
    def why(self) -> str | None:
        """The error message for the log entry, or None if there was no error."""
        return self.answer if self.error is None else f"{type(self.error).__name__}: {self.error}"


def function_of(tool: FunctionTool) -> object:
    """Return the Python function from which `function_tool` created a tool, or None."""
    function = getattr(tool, "__wrapped__", None)
    if function is not None:
        return function
    # SDK versions before 0.19 do not set `__wrapped__`, so the function is read from a closure.
    return _enclosed(_inside(tool), "the_func")


def schema_of(tool: FunctionTool) -> ArgumentSchema:
    """Return the schema with which the SDK validates the arguments of a tool."""
    inside: Any = _enclosed(_inside(tool), "schema")
    model = getattr(inside, "params_pydantic_model", None)
    if model is None:
        return JsonSchema(tool.params_json_schema)

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        positional, named = inside.to_call_args(model(**sent))
        context = (None,) if inside.takes_context else ()
        bound = inside.signature.bind(*context, *positional, **named).arguments
        return dict(list(bound.items())[len(context) :])

    return CustomSchema(receive, lambda received: encoded(model, received))


def make_refusing_invoker(tool: FunctionTool, error: BaseException | None) -> Invoker:
    """Return an invoker that never runs the tool, but reports a validation error to the model as the SDK does."""

    async def refuse(_context: ToolContext[Any], _text: str) -> Any:
        raise ModelBehaviorError(f"Invalid JSON input for tool {tool.name}: {error}") from error

    return refuse if _inside(tool) is None else _with(tool.on_invoke_tool, refuse)


def agent_of(tool: FunctionTool) -> Agent[Any] | None:
    """Return the agent that a tool runs, or None if the tool does not run an agent."""
    agent = getattr(tool, "_agent_instance", None)
    return agent if isinstance(agent, Agent) else None


def remote_of(tool: FunctionTool) -> tuple[str, str] | None:
    """Return the configured server name of a remote tool and its name on that server, or None for a local tool."""
    inside = _inside(tool)
    if isinstance(inside, functools.partial) and inside.args and isinstance(inside.args[0], MCPServer):
        return inside.args[0].name, str(inside.args[1].name)
    origin = getattr(tool, "_tool_origin", None)
    server = getattr(origin, "mcp_server_name", None)
    return None if server is None else (str(server), tool.name)


def make_watched_invoker(tool: FunctionTool, seen: Seen) -> Invoker:
    """Return an invoker that runs the tool, and stores its errors in `seen`.

    Without it, only the model would read the errors that the tool's own error handling converts to text.
    """
    inside = _inside(tool)
    if inside is None:
        return tool.on_invoke_tool
    if isinstance(inside, functools.partial) and inside.args and isinstance(inside.args[0], MCPServer):
        server = _Watched(inside.args[0], seen)
        inside = functools.partial(inside.func, server, *inside.args[1:], **inside.keywords)

    @functools.wraps(inside)
    async def run(context: ToolContext[Any], text: str) -> Any:
        try:
            return await inside(context, text)
        except Exception as error:
            seen.error = error
            raise

    return _with(tool.on_invoke_tool, run)


def pauses_inside(context: ToolContext[Any]) -> bool:
    """Return whether the tool of a call runs an agent that has paused; it continues when the call is executed again."""
    if context.tool_call is None:
        return False
    nested = peek_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
    return bool(getattr(nested, "interruptions", None))


def replace_agent(tool: FunctionTool, agent: Agent[Any], guarded: Agent[Any]) -> FunctionTool:
    """Return a copy of a tool that was created by `Agent.as_tool`; the copy runs the guarded agent.

    Raises:
        ConfigurationError: The agent is not found in the closure of the tool's function.
    """
    inside = _inside(tool)
    cells = getattr(inside, "__closure__", None) or ()
    if not isinstance(inside, types.FunctionType) or not any(_held(cell) is agent for cell in cells):
        raise ConfigurationError(
            f"the tool {tool.name!r} runs an agent that is not guarded; create the tool from a guarded "
            "agent: guard_agent(agent, …).as_tool(…)"
        )
    anew = types.FunctionType(
        inside.__code__,
        inside.__globals__,
        inside.__name__,
        inside.__defaults__,
        tuple(types.CellType(guarded) if _held(cell) is agent else cell for cell in cells),
    )
    anew.__kwdefaults__ = inside.__kwdefaults__
    anew.__dict__.update(inside.__dict__)
    copied = copy.copy(tool)
    copied.on_invoke_tool = _with(copied.on_invoke_tool, anew)
    copied._agent_instance = guarded  # noqa: SLF001 - the SDK reads this attribute when it loads a state
    return copied


class _Watched:
    """Proxy of an MCP server that stores the error message if a tool's result is an error."""

    def __init__(self, server: MCPServer, seen: Seen) -> None:
        self._server = server
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        result = await self._server.call_tool(*args, **kwargs)
        if getattr(result, "is_error", None) or getattr(result, "isError", None):
            said = [str(getattr(part, "text", "")) for part in result.content]
            self._seen.answer = " ".join(said).strip() or "the tool's server reported an error"
        return result


def _inside(tool: FunctionTool) -> Any:
    """Return the tool's function without the SDK's error handling around it, or None if the function is not found."""
    return getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)


def _with(invoker: Any, inside: Any) -> Invoker:
    invoker = copy.copy(invoker)
    invoker._invoke_tool_impl = inside  # noqa: SLF001 - the SDK has no public way to replace this function
    return cast("Invoker", invoker)


def _enclosed(function: Any, name: str) -> object:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or cells is None or name not in code.co_freevars:
        return None
    return _held(cells[code.co_freevars.index(name)])


def _held(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None
