"""One function of Semantic Kernel: what the gateway is told of its call, and how it is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from inspect import isasyncgen, isgenerator
from typing import Any, Final

from semantic_kernel import Kernel
from semantic_kernel.filters import FunctionInvocationContext
from semantic_kernel.functions import KernelFunctionFromMethod

from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._base import text_or_none

__all__ = ["AGENT", "RUN_ID", "function_of", "innermost", "ran_through", "said", "told_of"]

#: names under which whoever runs an agent says, among its `KernelArguments`, which agent and which run it is
AGENT: Final = "toolgate_agent"
RUN_ID: Final = "toolgate_run_id"

# What the framework gives a function of its own accord.
_GIVEN: Final = frozenset({"kernel", "service", "execution_settings", "arguments"})


def function_of(context: FunctionInvocationContext) -> object:
    """The Python function that is going to be called, if one is: a function may have another for its stream."""
    return getattr(context.function, "stream_method" if context.is_streaming else "method", None)


def said(arguments: Mapping[str, Any], name: str) -> str | None:
    """The text under a name of ours, if there is one.

    Raises:
        ConfigurationError: It is no text.
    """
    return text_or_none(arguments.get(name), name)


def told_of(context: FunctionInvocationContext) -> dict[str, Any]:
    """The arguments that a function is going to be given, in the types that it declares.

    What else is among the kernel's arguments, such as those of a prompt, it is not given: unless it asks for all.

    Raises:
        Exception: They do not fit; what the framework makes of it.
    """
    function = context.function
    if not isinstance(function, KernelFunctionFromMethod):
        return dict(context.arguments)
    given = function.gather_function_parameters(context)
    told = {name: value for name, value in given.items() if name not in _GIVEN}
    told = with_signature_defaults(told, function_of(context), _GIVEN)
    if "arguments" not in given:
        return told
    beside = {name: value for name, value in context.arguments.items() if name not in (AGENT, RUN_ID)}
    return {**beside, **told}


async def ran_through(
    context: FunctionInvocationContext, call_next: Callable[[Any], Awaitable[None]]
) -> None:
    """Let the framework run the function, to its end.

    One that is streamed has not begun when its filters are through: its parts are collected here, and told after.
    """
    await call_next(context)
    if not context.is_streaming or context.result is None:
        return
    value = context.result.value
    if isasyncgen(value):
        context.result.value = _again([part async for part in value])
    elif isgenerator(value):
        context.result.value = _again(list(value))


async def _again(parts: list[Any]) -> AsyncIterator[Any]:
    for part in parts:
        yield part


def innermost(kernel: Kernel, own: Callable[..., Awaitable[None]]) -> None:
    """Put the guard's filter nearest to the functions of a kernel again, where another was added since."""
    filters = kernel.function_invocation_filters
    if filters and filters[0][1] == own:
        return
    for each in [one for one in filters if one[1] == own]:
        filters.remove(each)
        filters.insert(0, each)
