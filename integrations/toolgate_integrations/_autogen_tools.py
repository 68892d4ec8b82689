"""The tools of a workbench of AutoGen: made of functions, and run with their caller's context in threads as well."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench, Workbench

from toolgate import ConfigurationError
from toolgate_integrations._arguments import ArgumentSchema, JsonSchema, ModelSchema

__all__ = ["framework_call", "function_of", "schema_of", "when_left", "workbench_of"]


def workbench_of(tools: Workbench | Sequence[BaseTool[Any, Any] | Callable[..., Any]]) -> Workbench:
    """A workbench whose functions know who acts; what was given is left as it is.

    Args:
        tools: A workbench, or what one is made of, as `AssistantAgent(tools=…)` takes it.

    Raises:
        ConfigurationError: It is neither.
    """
    if isinstance(tools, Workbench):
        if not isinstance(tools, StaticWorkbench):
            return tools
        own = copy.copy(tools)
        own._tools = [_carrying(each) for each in tools._tools]  # noqa: SLF001 - their only name
        return own
    given: object = tools
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigurationError(f"workbench is {tools!r}; pass a Workbench, or a list of tools or functions")
    made = [_carrying(_tool(each)) for each in tools]
    names = [each.name for each in made]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two tools are called {name!r}; the model could call one of them only")
    return StaticWorkbench(made)


def function_of(workbench: Workbench, name: str) -> object:
    """The Python function of a tool, if it is one of this process."""
    function = getattr(_tool_of(workbench, name), "_func", None)
    return getattr(function, "toolgate_carries", function)


def schema_of(workbench: Workbench, name: str, listed: Mapping[str, Any]) -> ArgumentSchema:
    """Return the schema by which the calls of a tool are validated.

    Args:
        workbench: The tool's workbench.
        name: The tool's name there.
        listed: JSON schemas of the tools that the workbench has listed, by name.
    """
    tool = _tool_of(workbench, name)
    if tool is None:
        return JsonSchema(listed.get(name))
    return ModelSchema(tool.args_type())


def framework_call() -> Any:
    """The coroutine in which an agent of the framework carries a call out, if that is what goes on here; or None."""
    task = asyncio.current_task()
    call = None if task is None else task.get_coro()
    return call if getattr(call, "__name__", None) == "_execute_tool_call" else None


def when_left(then: Callable[[], object]) -> None:
    """Have something done if the run that makes the current call is cancelled by its task.

    The framework leaves such calls under way, and tells nobody. What their run waits on, while they are carried out, is
    its queue of their events, which only the framework's own call of a workbench knows.

    Args:
        then: What is done; nothing, if it is no agent's run that makes the call.
    """
    call = framework_call()
    events = None if call is None else call.cr_frame.f_locals.get("stream")

    def watch() -> None:
        for waits in getattr(events, "_getters", ()):
            waits.add_done_callback(woken)

    def woken(waits: asyncio.Future[Any]) -> None:
        if waits.cancelled():
            then()
        else:
            # It was an event, and the run waits for the next one already.
            watch()

    watch()


def _tool_of(workbench: Workbench, name: str) -> BaseTool[Any, Any] | None:
    if not isinstance(workbench, StaticWorkbench):
        return None
    own = workbench._override_name_to_original.get(name, name)  # noqa: SLF001 - its only name
    return next((each for each in workbench._tools if each.name == own), None)  # noqa: SLF001 - likewise


def _tool(given: BaseTool[Any, Any] | Callable[..., Any]) -> BaseTool[Any, Any]:
    if isinstance(given, BaseTool):
        return given
    if not callable(given):
        raise ConfigurationError(f"{given!r} is no tool; pass a function or a BaseTool")
    return FunctionTool(given, description=getattr(given, "__doc__", None) or "")


def _carrying(tool: BaseTool[Any, Any]) -> BaseTool[Any, Any]:
    """A synchronous function's tool, such that its thread has the context of the call."""
    function = getattr(tool, "_func", None)
    if not isinstance(tool, FunctionTool) or function is None or asyncio.iscoroutinefunction(function):
        return tool

    async def carried(**arguments: Any) -> Any:
        return await asyncio.to_thread(function, **arguments)

    carried.toolgate_carries = function  # type: ignore[attr-defined]  # so that it is found again
    own = copy.copy(tool)
    own._func = carried  # noqa: SLF001 - its only name
    return own
