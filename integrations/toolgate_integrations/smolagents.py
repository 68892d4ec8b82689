"""smolagents: `guard_agent(ToolCallingAgent(…))`, or a `CodeAgent`, with the agents it manages."""

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
    """The tool did not run; raised in the code of a `CodeAgent`, which stops there. The message says why."""


@dataclass(frozen=True, slots=True)
class Way:
    """The tool behind a guarded tool, with its agent and bridge.

    Attributes:
        tool: The tool.
        bridge: Bridge that checks and logs the calls.
        agent: The agent's name.
        tells: Whether a refusal is returned instead of raised; if it were raised in a turn with several calls, the
            model would lose the results of the others.
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
    """Guarded form of a tool, with the same name and inputs."""

    skip_forward_signature_validation: ClassVar[bool] = True

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.name, self.description = way.tool.name, way.tool.description
        self.inputs, self.output_type = way.tool.inputs, way.tool.output_type
        self.output_schema = getattr(way.tool, "output_schema", None)
        _WAYS[self] = way

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        """Check the call, and run the tool if it is allowed."""
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
        except way.bridge.fatal as error:
            way.fail(error)
            raise
        except GuardError as error:
            if way.tells:
                return way.bridge.refusal(error)
            raise ToolRefused(way.bridge.refusal(error)) from None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool; code may use this method too."""
        return self(*args, **kwargs)

    def setup(self) -> None:
        """Do nothing; the original tool initializes itself on its first call."""
        self.is_initialized = True

    def to_code_prompt(self) -> str:
        """Return the original tool's prompt."""
        return str(_way(self).tool.to_code_prompt())

    def to_tool_calling_prompt(self) -> str:
        """Return the original tool's prompt."""
        return str(_way(self).tool.to_tool_calling_prompt())

    def to_dict(self) -> dict[str, Any]:
        """Refuse to save the tool.

        Raises:
            ConfigurationError: Always; the saved source would be without the guard.
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
    """Return the executor; its code now runs with the context of the agent's caller.

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
    """Return the original tool of a guarded tool.

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
    """Return the arguments of a call by name, as the tool itself would bind them.

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
A = TypeVar("A", bound=MultiStepAgent)


class GuardedAgent(MultiStepAgent):  # type: ignore[misc]  # the framework leaves it without types
    """A guarded agent: tools, managed agents and executors that are assigned to it are guarded too.

    Attributes:
        bridge: Bridge that checks and logs the calls.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.
    """

    bridge: ClassVar[Bridge]

    @property
    def tools(self) -> dict[str, Any]:
        """Tools by name."""
        return self.__dict__["tools"]  # type: ignore[no-any-return]  # what the setter put there

    @tools.setter
    def tools(self, tools: Mapping[str, Any]) -> None:
        self.__dict__["tools"] = _Each(self._tool, tools)

    @property
    def managed_agents(self) -> dict[str, Any]:
        """Managed agents by name."""
        return self.__dict__["managed_agents"]  # type: ignore[no-any-return]  # likewise

    @managed_agents.setter
    def managed_agents(self, agents: Mapping[str, Any]) -> None:
        self.__dict__["managed_agents"] = _Each(self._member, agents)

    @property
    def python_executor(self) -> Any:
        """Executor of a `CodeAgent`'s code; None for other agents."""
        return self.__dict__.get("python_executor")

    @python_executor.setter
    def python_executor(self, executor: Any) -> None:
        if not isinstance(executor, LocalPythonExecutor):
            raise ConfigurationError(
                f"the executor {type(executor).__name__!r} runs code elsewhere, with the source of the tools and without "
                "their guard; use executor_type='local'"
            )
        members = self.__dict__.get("managed_agents", {}).values()
        guarded = [each for each in members if isinstance(each, GuardedAgent)]
        if any(each.bridge.on_hold == "wait" for each in (self, *guarded)):
            _untimed(executor)
        self.__dict__["python_executor"] = carrying(executor)

    def interrupt(self) -> None:
        """End the run after this step, as ever; calls that wait, also of the agents it manages, do not run any more."""
        super().interrupt()
        self._interrupted()

    def _interrupted(self) -> None:
        # Counted, for the framework's own sign is taken away by the next run.
        self.__dict__["interrupts"] = self.__dict__.get("interrupts", 0) + 1
        for each in self.managed_agents.values():
            each._interrupted()  # noqa: SLF001 - one of this class

    def raise_setup_error(self, step: ActionStep) -> None:
        """End the run where a call of a step was not carried out because of the settings or the API key.

        The framework turns every exception of a tool into text for the model, but none of a step's callback.
        """
        # Of an agent that this one manages, the framework keeps the error in the step.
        error = self.__dict__.pop("setup_error", None) or find_error(
            getattr(step, "error", None), self.bridge.fatal
        )
        if error is not None:
            raise error

    def _tool(self, tool: Any) -> Any:
        # What only ends the run; a tool of another class by this name may do anything.
        if type(tool) is FinalAnswerTool:
            return tool
        # Another agent's answers in that one's name, and perhaps in words where code is to be stopped.
        tool = tool_behind(tool)
        if not isinstance(tool, Tool):
            raise ConfigurationError(
                f"tool {getattr(tool, 'name', tool)!r} is a {type(tool).__name__}, which cannot be guarded; make it a "
                "smolagents.Tool"
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
    """Guard an agent, and the agents it manages, where they are.

    Args:
        agent: The agent; its memory and state are its own, so it is no copy that is guarded.
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function of the name. The default action is `tools.<name>`.
        agents: Agent ids by the names given to agents; other agents act as the guard's own agent.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.

    Returns:
        The same agent.

    Raises:
        ConfigurationError: An argument is wrong, or the agent has something that cannot be guarded.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout)
    guarded = _guarded(agent, bridge)
    bridge.verify_tools(_tool_names(guarded))
    return guarded  # type: ignore[no-any-return]  # the agent itself


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
        if isinstance(agent, CodeAgent):
            agent.python_executor = agent.python_executor
        # All of it is looked at before any of it is taken.
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
            f"the code is given {seconds!r} seconds, and a call may wait longer; use "
            "CodeAgent(executor_kwargs={'timeout_seconds': None}), or guard_agent(…, on_hold='notify_model')"
        )


class _Each(dict[str, Any]):
    """A mapping in whose place things are guarded as they come in."""

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
        # Copied, it is a plain one, and guarded again by the agent it is given to.
        return dict, (dict(self),)

    def __ior__(self, given: Any) -> Self:  # type: ignore[misc,override]  # narrower than a plain dict's
        self.update(given)
        return self
