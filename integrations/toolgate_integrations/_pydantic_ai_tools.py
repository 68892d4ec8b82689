"""Where a tool of Pydantic AI comes from: its function, or the name of its server, below prefixes and wrappers."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)

# Its public name is younger than 2.0.
from pydantic_ai.toolsets._dynamic import DynamicToolset

__all__ = ["function_of", "served_by"]

# They are installed by an extra of the framework; importing them to compare classes would need it.
_REMOTE: Final = frozenset({"pydantic_ai.mcp", "pydantic_ai.toolsets.fastmcp"})


def function_of(tool: ToolsetTool[Any] | None) -> object:
    """The Python function of a tool, if it is one."""
    while tool is not None and (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(schema, "function", None)


def served_by(tool: ToolsetTool[Any] | None, name: str) -> tuple[str | None, str]:
    """The server of a remote tool by the name it has here, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty for a server that nobody named; its name is
        the toolset's id, else the prefix of its tools, else the host of its address.
    """
    if tool is None:
        return None, name
    toolset: AbstractToolset[Any] | None = getattr(tool, "source_toolset", tool.toolset)
    tool, own, prefix = getattr(tool, "source_tool", tool), name, ""
    while True:
        match toolset:
            case PrefixedToolset():
                prefix, own = prefix or toolset.prefix, own.removeprefix(f"{toolset.prefix}_")
                toolset = toolset.wrapped
            case RenamedToolset():
                own = toolset.name_map.get(own, own)
                toolset = toolset.wrapped
            case WrapperToolset():
                toolset = toolset.wrapped
            case CombinedToolset():
                toolset, tool = getattr(tool, "source_toolset", None), getattr(tool, "source_tool", tool)
            case DynamicToolset():
                toolset = getattr(toolset, "_toolset", None)
            case _:
                break
    if toolset is None or not any(each.__module__ in _REMOTE for each in type(toolset).__mro__):
        return None, name
    return getattr(toolset, "_explicit_id", toolset.id) or prefix or toolset.id or "", own
