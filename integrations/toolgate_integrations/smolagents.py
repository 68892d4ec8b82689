"""Plugin for smolagents: `guard_agent(ToolCallingAgent(…))`, or a `CodeAgent`; managed agents are guarded too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar
from weakref import WeakKeyDictionary

from toolgate import ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._options import OnHoldWithoutPause
from toolgate_integrations.base import Bridge, ToolActions, ToolCall, find_error, require

require("smolagents")

from smolagents import (
    ActionStep,
    CodeAgent,
    FinalAnswerTool,
    LocalPythonExecutor,
    MultiStepAgent,
    Tool,
    ToolCallingAgent,
)
from smolagents.local_python_executor import timeout

__all__ = ["GuardedAgent", "GuardedTool", "ToolRefused", "guard_agent"]


class ToolRefused(Exception):
    """The tool did not run; the message contains the reason.

    The exception is raised in the code that a `CodeAgent` executes, and ends this code.
    """


@dataclass(frozen=True, slots=True)
class Way:
    """The data that a guarded tool needs to run the original tool, which is stored outside of the guarded tool.

    Attributes:
        tool: The original tool.
        bridge: Bridge that checks and logs the calls.
        agent: The agent's name.
        tells: True to return a refusal as the tool's result, False to raise it. If it were raised in a step with
            several calls, the model would not receive the results of the other calls.
        interrupts: Function that returns how many times the agent was interrupted.
        fail: Function that receives a setup error, and makes the agent's run end with this error after the current
            step.
    """

    tool: Tool
    bridge: Bridge
    agent: str | None
    tells: bool
    interrupts: Callable[[], int]
    fail: Callable[[Exception], None]


class GuardedTool(Tool):  # type: ignore[misc]  # the framework has no type annotations
    """A tool that checks and logs every call of another tool, and has the same name and inputs."""

    skip_forward_signature_validation: ClassVar[bool] = True

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.name, self.description = way.tool.name, way.tool.description
        self.inputs, self.output_type = way.tool.inputs, way.tool.output_type
        self.output_schema = getattr(way.tool, "output_schema", None)
        _WAYS[self] = way

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        """Check the call, run the original tool if the call is allowed, and log the outcome."""
        way = _way(self)
        forward = way.tool.forward
        # The framework does not validate or convert the arguments, so only the defaults are added.
        given = with_signature_defaults(_by_name(way.tool, args, kwargs), forward, ("self",))
        call = ToolCall(way.tool.name, given, agent=way.agent, function=forward)
        before = way.interrupts()

        def run(approved: dict[str, Any]) -> Any:
            if way.interrupts() != before:
                raise ToolRefused("Not done: the run was interrupted while the call waited.")
            return way.tool(**approved, sanitize_inputs_outputs=sanitize_inputs_outputs)

        try:
            return way.bridge.run(call, run)
        except way.bridge.fatal as error:
            way.fail(error)
            raise
        except GuardError as error:
            if way.tells:
                return way.bridge.refusal(error)
            raise ToolRefused(way.bridge.refusal(error)) from None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool with a check, like `__call__`, because code of a `CodeAgent` may call this method directly."""
        return self(*args, **kwargs)

    def setup(self) -> None:
        """Mark the tool as initialized; the original tool initializes itself at its first call."""
        self.is_initialized = True

    def to_code_prompt(self) -> str:
        """Return the original tool's description for a `CodeAgent`."""
        return str(_way(self).tool.to_code_prompt())

    def to_tool_calling_prompt(self) -> str:
        """Return the original tool's description for a `ToolCallingAgent`."""
        return str(_way(self).tool.to_tool_calling_prompt())

    def to_dict(self) -> dict[str, Any]:
        """Raise `ConfigurationError`, because the framework would save the tool without the guard.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            f"the tool {self.name!r} is guarded, but would be saved without the guard; save the agent "
            "before calling guard_agent(…)"
        )

    def __copy__(self) -> GuardedTool:
        return self

    def __deepcopy__(self, _: Any) -> GuardedTool:
        return self


class _Carrying(LocalPythonExecutor):  # type: ignore[misc]  # the framework has no type annotations
    """Code executor that runs code with the context variables of the agent's caller, such as the agent id.

    The framework's own executor runs code with a time limit in a new thread, without these context variables.
    """

    @property
    def timeout_seconds(self) -> float | None:
        """Time limit of the code in seconds, or None for no limit.

        It is also None while this class applies the limit itself, so that the framework does not start another
        thread.
        """
        return None if _TIMED.get() is self else self.__dict__["timeout_seconds"]

    @timeout_seconds.setter
    def timeout_seconds(self, seconds: float | None) -> None:
        self.__dict__["timeout_seconds"] = seconds

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Pass the tools to the executed code; a managed agent is replaced by a function that runs it."""
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

        # The context is set for the execution of the whole code. It is not bound to each tool, because functions that
        # the code defines may be called in a later run that another caller started.
        return timeout(seconds)(partial(copy_context().run, timed))()


def carry_context(executor: LocalPythonExecutor) -> LocalPythonExecutor:
    """Make an executor run its code with the context variables of the agent's caller, and return the executor.

    Raises:
        ConfigurationError: The executor has already run code.
    """
    if not isinstance(executor, _Carrying):
        if executor.static_tools is not None:
            raise ConfigurationError(
                "the agent has already run code, which may have defined functions that call tools without "
                "the guard; guard the agent before its first run"
            )
        executor.__class__ = type(type(executor).__name__, (_Carrying, type(executor)), {})
    return executor


def tool_behind(tool: Any) -> Any:
    """Return the original tool of a guarded tool; any other tool is returned unchanged.

    Raises:
        ConfigurationError: The tool was guarded in another process.
    """
    return _way(tool).tool if isinstance(tool, GuardedTool) else tool


def _only_called(agent: MultiStepAgent) -> Callable[..., Any]:
    """Return a function that runs a managed agent.

    The executed code receives this function instead of the agent, so that it cannot read the agent's tools and
    bridge.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        return agent(*args, **kwargs)

    called.__name__ = agent.name
    return called


def _way(tool: GuardedTool) -> Way:
    way = _WAYS.get(tool)
    if way is None:
        raise ConfigurationError(
            f"the guarded tool {tool.name!r} was created in another process; guard the agent in each process"
        )
    return way


def _by_name(tool: Tool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, assigned to parameters in the same way as by the tool itself.

    Raises:
        TypeError: The arguments do not match the tool's parameters.
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
    # Some tools accept any arguments, and the inputs of some tools have other names than the parameters of `forward`.
    # The positional arguments of these tools get the names of the inputs.
    if kinds & _ANY or not names.issuperset(tool.inputs):
        if len(args) > len(tool.inputs):
            raise TypeError(f"{tool.name} takes {len(tool.inputs)} arguments, but received {len(args)}")
        return {**dict(zip(tool.inputs, args, strict=False)), **kwargs}
    # Positional arguments are assigned in the order of the parameters, which may differ from the order of the inputs.
    return dict(signature.replace(parameters=parameters).bind(*args, **kwargs).arguments)


_ANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
#: The executor whose code currently runs with the time limit of `_Carrying`.
_TIMED: Final[ContextVar[object]] = ContextVar("toolgate_smolagents_timed", default=None)
# The original tools are not stored in attributes, because code that a model wrote can read attributes.
_WAYS: Final[WeakKeyDictionary[GuardedTool, Way]] = WeakKeyDictionary()
A = TypeVar("A", bound=MultiStepAgent)


class GuardedAgent(MultiStepAgent):  # type: ignore[misc]  # the framework has no type annotations
    """A guarded agent; tools, managed agents and executors that are assigned to it later are guarded too.

    Attributes:
        bridge: Bridge that checks and logs the calls.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.
    """

    bridge: ClassVar[Bridge]

    @property
    def tools(self) -> dict[str, Any]:
        """The agent's tools in their guarded form, by name."""
        return self.__dict__["tools"]  # type: ignore[no-any-return]  # the setter stores a dictionary

    @tools.setter
    def tools(self, tools: Mapping[str, Any]) -> None:
        self.__dict__["tools"] = _Each(self._tool, tools)

    @property
    def managed_agents(self) -> dict[str, Any]:
        """The managed agents in their guarded form, by name."""
        return self.__dict__["managed_agents"]  # type: ignore[no-any-return]  # the setter stores a dictionary

    @managed_agents.setter
    def managed_agents(self, agents: Mapping[str, Any]) -> None:
        self.__dict__["managed_agents"] = _Each(self._member, agents)

    @property
    def python_executor(self) -> Any:
        """Executor that runs the code of a `CodeAgent`; None for other agents."""
        return self.__dict__.get("python_executor")

    @python_executor.setter
    def python_executor(self, executor: Any) -> None:
        if not isinstance(executor, LocalPythonExecutor):
            raise ConfigurationError(
                f"the executor {type(executor).__name__!r} runs code outside this process, where the tools "
                "are not guarded; use executor_type='local'"
            )
        members = self.__dict__.get("managed_agents", {}).values()
        guarded = [each for each in members if isinstance(each, GuardedAgent)]
        if any(each.bridge.on_hold == "wait" for each in (self, *guarded)):
            _untimed(executor)
        self.__dict__["python_executor"] = carry_context(executor)

    def interrupt(self) -> None:
        """End the run after the current step; calls that still wait for an approver do not run.

        Managed agents are interrupted too.
        """
        super().interrupt()
        self._interrupted()

    def _interrupted(self) -> None:
        # The interruptions are counted, because the next run resets the framework's own flag while a call may still
        # wait.
        self.__dict__["interrupts"] = self.__dict__.get("interrupts", 0) + 1
        for each in self.managed_agents.values():
            each._interrupted()  # noqa: SLF001 - `each` is a `GuardedAgent` too

    def raise_setup_error(self, step: ActionStep) -> None:
        """End the run if a call of the step did not run because a setting or the API key is wrong.

        The framework converts every exception of a tool to text for the model, but raises the exceptions of a step
        callback.
        """
        # A setup error of a managed agent is contained in the error of the step.
        error = self.__dict__.pop("setup_error", None) or find_error(
            getattr(step, "error", None), self.bridge.fatal
        )
        if error is not None:
            raise error

    def _tool(self, tool: Any) -> Any:
        # The final-answer tool only ends the run, so it is not guarded. It is recognized by its class, because
        # another tool may have the same name.
        if type(tool) is FinalAnswerTool:
            return tool
        # The tool may already be guarded for another agent, so the original tool is guarded again for this agent.
        tool = tool_behind(tool)
        if not isinstance(tool, Tool):
            raise ConfigurationError(
                f"tool {getattr(tool, 'name', tool)!r} is a {type(tool).__name__}, which cannot be guarded; "
                "convert it to a smolagents.Tool"
            )
        name = getattr(self, "name", None)
        return GuardedTool(
            Way(
                tool,
                self.bridge,
                name,
                tells=isinstance(self, ToolCallingAgent),
                interrupts=lambda: self.__dict__.get("interrupts", 0),
                fail=lambda error: self.__dict__.update(setup_error=error),
            )
        )

    def _member(self, agent: Any) -> Any:
        if not isinstance(agent, GuardedAgent):
            return _guarded(agent, self.bridge)
        if agent.bridge.on_hold == "wait":
            _untimed(self.python_executor)
        return agent


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHoldWithoutPause = "notify_model",
    hold_timeout: float | None = None,
) -> A:
    """Check and log all tool calls of an agent and of the agents that it manages.

    Args:
        agent: The agent; it is changed in place, because a copy would have separate memory and state.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the names of agents. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Returns:
        The same agent.

    Raises:
        ConfigurationError: An argument is invalid, or the agent has a tool or an executor that cannot be guarded.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout)
    guarded = _guarded(agent, bridge)
    bridge.verify_tools(_tool_names(guarded))
    return guarded  # type: ignore[no-any-return]  # `guarded` is the same object as `agent`


def _tool_names(agent: Any) -> Iterator[str]:
    yield from agent.tools
    for name, member in agent.managed_agents.items():
        yield name
        yield from _tool_names(member)


def _guarded(agent: Any, bridge: Bridge) -> Any:
    if not isinstance(agent, MultiStepAgent) or isinstance(agent, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass a smolagents agent that is not guarded yet")
    before = type(agent)
    kind = type(
        before.__name__,
        (GuardedAgent, before),
        {"bridge": bridge, "__module__": before.__module__, "__doc__": before.__doc__},
    )
    tools, members = agent.tools, agent.managed_agents
    agent.__class__ = kind
    try:
        # Each attribute is assigned its own value again, because the setters of `GuardedAgent` replace the value by its
        # guarded form.
        if isinstance(agent, CodeAgent):
            agent.python_executor = agent.python_executor
        agent.managed_agents = members
        agent.tools = tools
    except BaseException:
        agent.__class__ = before
        raise
    agent.step_callbacks.register(ActionStep, _raise_setup_error)
    return agent


def _raise_setup_error(step: ActionStep, agent: GuardedAgent) -> None:
    agent.raise_setup_error(step)


def _untimed(executor: Any) -> None:
    seconds = getattr(executor, "timeout_seconds", None)
    if seconds is not None:
        raise ConfigurationError(
            f"the agent's code may run for only {seconds!r} seconds, but a call can wait longer for approval; use "
            "CodeAgent(executor_kwargs={'timeout_seconds': None}), or guard_agent(…, on_hold='notify_model')"
        )


class _Each(dict[str, Any]):
    """Dictionary of tools or agents that replaces each value that is added to it by its guarded form.

    Args:
        guarded: Function that returns the guarded form of a tool or agent.
        given: The dictionary's initial values.
    """

    def __init__(self, guarded: Any, given: Mapping[str, Any]) -> None:
        self._guarded = guarded
        super().__init__()
        self.update(given)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, self._guarded(value))

    def update(self, *given: Any, **more: Any) -> None:
        for name, value in dict(*given, **more).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __reduce__(self) -> Any:
        # Copying and pickling produce a plain dict. The guarded agent to which it is assigned guards the values again.
        return dict, (dict(self),)

    def __ior__(self, given: Any) -> Self:  # type: ignore[misc,override]  # accepts fewer types than `dict.__ior__`
        self.update(given)
        return self
