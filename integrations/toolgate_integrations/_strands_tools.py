"""What a tool of Strands is: a function of this process, one of a server, or the form of an answer."""

from __future__ import annotations

from typing import Any

from strands.tools.decorator import DecoratedFunctionTool
from strands.tools.mcp import MCPAgentTool
from strands.tools.structured_output.structured_output_tool import StructuredOutputTool
from strands.tools.tools import PythonAgentTool

from toolgate_integrations._arguments import ArgumentSchema, CustomSchema, JsonSchema, encoded

__all__ = ["function_of", "is_output", "schema_of", "served_by"]


def function_of(tool: Any) -> object:
    """The Python function that a tool calls, if it does.

    Never the tool itself: the framework calls its `stream`, past whatever was put around the tool.
    """
    if isinstance(tool, (DecoratedFunctionTool, PythonAgentTool)):
        return tool._tool_func  # noqa: SLF001 - its only name
    return None


def schema_of(tool: Any) -> ArgumentSchema:
    """Return the schema by which the framework validates the calls of a tool."""
    if isinstance(tool, DecoratedFunctionTool):
        metadata = tool._metadata  # noqa: SLF001 - the one place where it validates
        return CustomSchema(metadata.validate_input, lambda received: encoded(metadata.input_model, received))
    spec: Any = getattr(tool, "tool_spec", None) or {}
    schema = (spec.get("inputSchema") or {}).get("json")
    return JsonSchema(schema if isinstance(schema, dict) and isinstance(tool, MCPAgentTool) else None)


def is_output(tool: Any) -> bool:
    """Whether a tool is no tool, but the form in which the agent was asked to answer."""
    return isinstance(tool, StructuredOutputTool)


def served_by(tool: Any, name: str) -> tuple[str | None, str]:
    """The server of a remote tool by the prefix it has here, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty for a server that nobody named.
    """
    if not isinstance(tool, MCPAgentTool):
        return None, name
    own: str = tool.mcp_tool.name
    return name.removesuffix(own).removesuffix("_"), own
