"""A tool in whose place the gateway is asked, and the local executor that calls it from the code a model wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from smolagents import LocalPythonExecutor, MultiStepAgent, Tool
from smolagents.local_python_executor import timeout

from toolgate import ConfigurationError, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import refusal_or_raise

__all__ = ["GuardedTool", "ToolRefused", "Way", "carrying", "tool_behind"]


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
        interrupts: How often the agent was interrupted.
        fail: Ends the agent's run with a setup error after the step.
    """

    tool: Tool
    bridge: Bridge
    agent: str | None
    tells: bool
    interrupts: Callable[[], int]
    fail: Callable[[Exception], None]


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
        forward = way.tool.forward
        # The framework converts nothing.
        given = with_signature_defaults(_by_name(way.tool, args, kwargs), forward, ("self",))
        call = ToolCall(way.tool.name, given, agent=way.agent, function=forward)
        before = way.interrupts()

        def run(approved: dict[str, Any]) -> Any:
            if way.interrupts() != before:
                raise ToolRefused("Not done: the run was interrupted while the call waited.")
            return way.tool(**approved, sanitize_inputs_outputs=sanitize_inputs_outputs)

        try:
            return way.bridge.run(call, run)
        except SETUP_ERRORS as error:
            way.fail(error)
            raise
        except GuardError as error:
            if way.tells:
                return refusal_or_raise(error)
            raise ToolRefused(refusal_or_raise(error)) from None

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

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds the code is given; none of its own within a run that is timed here."""
        return None if _TIMED.get() is self else self.__dict__["timeout_seconds"]

    @timeout_seconds.setter
    def timeout_seconds(self, seconds: float | None) -> None:
        self.__dict__["timeout_seconds"] = seconds

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Make tools known to the code; of an agent only that it may be called."""
        super().send_tools(
            {
                name: _only_called(each) if isinstance(each, MultiStepAgent) else each
                for name, each in tools.items()
            }
        )

    def __call__(self, code_action: str) -> Any:
        run, seconds = partial(super().__call__, code_action), self.timeout_seconds
        if seconds is None:
            return run()

        def timed() -> Any:
            _TIMED.set(self)
            return run()

        # All of the code, and not each tool: what code defines is kept, and may be called in another's run.
        return timeout(seconds)(partial(copy_context().run, timed))()


def carrying(executor: LocalPythonExecutor) -> LocalPythonExecutor:
    """The same executor, whose code acts as whoever called the agent.

    Raises:
        ConfigurationError: It has run code before.
    """
    if not isinstance(executor, _Carrying):
        if executor.static_tools is not None:
            raise ConfigurationError(
                "code was run already, and functions it has defined would call the tools without the guard; guard the "
                "agent before its first run"
            )
        executor.__class__ = type(type(executor).__name__, (_Carrying, type(executor)), {})
    return executor


def tool_behind(tool: Any) -> Any:
    """The tool itself, of one that is guarded.

    Raises:
        ConfigurationError: It was guarded in another process.
    """
    return _way(tool).tool if isinstance(tool, GuardedTool) else tool


def _only_called(agent: MultiStepAgent) -> Callable[..., Any]:
    """An agent of which code can have nothing but its answer: its members, and who asks for it, are in it."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return agent(*args, **kwargs)

    called.__name__ = agent.name
    return called


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
        return _by_name(tool, (), args[0])
    signature = inspect.signature(tool.forward)
    parameters = [each for name, each in signature.parameters.items() if name != "self"]
    names, kinds = {each.name for each in parameters}, {each.kind for each in parameters}
    # Some take whatever comes, and some are called by other names than those they go on with.
    if kinds & _ANY or not names.issuperset(tool.inputs):
        if len(args) > len(tool.inputs):
            raise TypeError(f"{tool.name} takes {len(tool.inputs)} arguments, and was given {len(args)}")
        return {**dict(zip(tool.inputs, args, strict=False)), **kwargs}
    # In the order of its parameters, which need not be that of its inputs.
    return dict(signature.replace(parameters=parameters).bind(*args, **kwargs).arguments)


_ANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
#: The executor that runs code in this context, in a time of ours.
_TIMED: Final[ContextVar[object]] = ContextVar("toolgate_smolagents_timed", default=None)
# Beside the tools, and not in them: code that a model wrote may read any attribute that has no two underscores.
_WAYS: Final[WeakKeyDictionary[GuardedTool, Way]] = WeakKeyDictionary()
