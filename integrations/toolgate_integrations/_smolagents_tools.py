"""A tool in whose place the gateway is asked, and the local executor that calls it from the code a model wrote."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from smolagents import LocalPythonExecutor, MultiStepAgent, Tool

from toolgate import ConfigurationError, GuardError, carry
from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations.refusals import refusal_text

__all__ = ["GuardedTool", "ToolRefused", "Way", "carrying"]


class ToolRefused(Exception):
    """The tool did not run; raised in the code of a `CodeAgent`, which stops there. The message says why."""


@dataclass(frozen=True, slots=True)
class Way:
    """What lies behind a guarded tool.

    Attributes:
        tool: The tool.
        bridge: Asks and records.
        agent: The agent's name.
        tells: A refusal is the tool's answer, and not raised: one that is raised in a turn of several calls takes the
            others' answers away from the model.
    """

    tool: Tool
    bridge: Bridge
    agent: str | None
    tells: bool


class GuardedTool(Tool):  # type: ignore[misc]  # the framework leaves it without types
    """Asks, and lets the tool run; to the agent it looks like the tool."""

    skip_forward_signature_validation: ClassVar[bool] = True

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.name, self.description = way.tool.name, way.tool.description
        self.inputs, self.output_type = way.tool.inputs, way.tool.output_type
        self.output_schema = getattr(way.tool, "output_schema", None)
        _WAYS[self] = way

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        way = _way(self)
        call = ToolCall(
            way.tool.name, _by_name(way.tool, args, kwargs), agent=way.agent, function=way.tool.forward
        )
        try:
            return way.bridge.run(
                call, lambda approved: way.tool(**approved, sanitize_inputs_outputs=sanitize_inputs_outputs)
            )
        except GuardError as error:
            if way.tells:
                return refusal_text(error)
            raise ToolRefused(refusal_text(error)) from None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As calling it: code may call this as well."""
        return self(*args, **kwargs)

    def setup(self) -> None:
        """Nothing: the tool sets itself up when it first runs."""
        self.is_initialized = True

    def to_code_prompt(self) -> str:
        """The tool's own."""
        return str(_way(self).tool.to_code_prompt())

    def to_tool_calling_prompt(self) -> str:
        """The tool's own."""
        return str(_way(self).tool.to_tool_calling_prompt())

    def to_dict(self) -> dict[str, Any]:
        """Nothing that could be run elsewhere.

        Raises:
            ConfigurationError: Always: it would be the tool's source, without the guard.
        """
        raise ConfigurationError(
            f"the tool {self.name!r} is guarded, and is saved as its source, without the guard; save the agent before "
            "guard_agent(…)"
        )

    def __copy__(self) -> GuardedTool:
        return self

    def __deepcopy__(self, _: Any) -> GuardedTool:
        return self


class _Carrying(LocalPythonExecutor):  # type: ignore[misc]  # likewise
    """Runs code in a thread of its own, as ever, but as whoever called the agent.

    The framework begins that thread without the caller's context, in which stands who acts.
    """

    static_tools: dict[str, Any] | None

    def __call__(self, code_action: str) -> Any:
        tools = self.static_tools
        self.static_tools = {
            name: carry(each) if isinstance(each, (GuardedTool, MultiStepAgent)) else each
            for name, each in (tools or {}).items()
        }
        try:
            return super().__call__(code_action)
        finally:
            self.static_tools = tools


def carrying(executor: LocalPythonExecutor) -> LocalPythonExecutor:
    """The same executor, whose code acts as whoever called the agent."""
    if not isinstance(executor, _Carrying):
        executor.__class__ = type(type(executor).__name__, (_Carrying, type(executor)), {})
    return executor


def _way(tool: GuardedTool) -> Way:
    way = _WAYS.get(tool)
    if way is None:
        raise ConfigurationError(
            f"the guarded tool {tool.name!r} was not made here; guard the agent in each process"
        )
    return way


def _by_name(tool: Tool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, by name: as the tool itself would take them.

    Raises:
        TypeError: They do not fit it.
    """
    if (
        len(args) == 1
        and not kwargs
        and isinstance(args[0], dict)
        and all(key in tool.inputs for key in args[0])
    ):
        return dict(args[0])
    if not args:
        return dict(kwargs)
    # In the order of its parameters, which need not be that of its inputs.
    signature = inspect.signature(tool.forward)
    parameters = [each for name, each in signature.parameters.items() if name != "self"]
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        if len(args) > len(tool.inputs):
            raise TypeError(f"{tool.name} takes {len(tool.inputs)} arguments, and was given {len(args)}")
        return {**dict(zip(tool.inputs, args, strict=False)), **kwargs}
    return dict(signature.replace(parameters=parameters).bind(*args, **kwargs).arguments)


# Beside the tools, and not in them: code that a model wrote may read any attribute that has no two underscores.
_WAYS: Final[WeakKeyDictionary[GuardedTool, Way]] = WeakKeyDictionary()
