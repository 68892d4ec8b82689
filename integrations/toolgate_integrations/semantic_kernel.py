"""Semantic Kernel: `guard_kernel(kernel)`, and `resume(kernel, chat_history)` after a pause."""

from __future__ import annotations

from collections.abc import Mapping

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import ToolActions, require

require("semantic_kernel")

from semantic_kernel import Kernel
from semantic_kernel.filters import FilterTypes

from toolgate_integrations._semantic_kernel_filters import Filters, OnHold, guard_of
from toolgate_integrations._semantic_kernel_resume import resume, waiting

__all__ = ["guard_kernel", "resume", "waiting"]


def guard_kernel(
    kernel: Kernel,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "terminate",
) -> Kernel:
    """Guard every function of a kernel: the model's calls of them, and those of `kernel.invoke`.

    Args:
        kernel: The kernel; the guard's filters are added to it, after all others.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of functions by their names, such as `bank-pay`: a mapping, or a function of the
            name. Others are `<plugin>.<function>`.
        agents: Agent ids by the names that `KernelArguments(toolgate_agent=…)` says.
        on_hold: What a held call of the model does: `terminate` ends the run, to be gone on with by `resume`,
            `wait` waits for the person within it, `tell` lets the model read that it waits.

    Returns:
        The same kernel.

    Raises:
        ConfigurationError: An argument is wrong, or the kernel is guarded already.
    """
    given: object = kernel
    if not isinstance(given, Kernel):
        raise ConfigurationError(f"kernel is {kernel!r}; pass a semantic_kernel.Kernel")
    if guard_of(kernel) is not None:
        raise ConfigurationError(
            "the kernel is guarded already, and its calls would be asked about twice; guard it once"
        )
    filters = Filters(guard, tool_actions, agents, on_hold)
    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, filters.around_call)
    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, filters.around_function)
    return kernel
