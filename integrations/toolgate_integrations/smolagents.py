"""smolagents: `guard_agent(ToolCallingAgent(…))`, or a `CodeAgent`, with the agents it manages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import Bridge, ToolActions, require, valid_on_hold

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

from toolgate_integrations._setup_errors import setup_error_in
from toolgate_integrations._smolagents_tools import GuardedTool, ToolRefused, Way, carrying, tool_behind

__all__ = ["GuardedAgent", "GuardedTool", "ToolRefused", "guard_agent"]

OnHold = Literal["wait", "tell"]
A = TypeVar("A", bound=MultiStepAgent)


class GuardedAgent(MultiStepAgent):  # type: ignore[misc]  # the framework leaves it without types
    """What an agent becomes by `guard_agent`: whatever tools, members or executor it is given are guarded too.

    Attributes:
        bridge: Asks and records.
        on_hold: What a held call does.
    """

    bridge: ClassVar[Bridge]
    on_hold: ClassVar[OnHold]

    @property
    def tools(self) -> dict[str, Any]:
        """The tools, by name."""
        return self.__dict__["tools"]  # type: ignore[no-any-return]  # what the setter put there

    @tools.setter
    def tools(self, tools: Mapping[str, Any]) -> None:
        self.__dict__["tools"] = _Each(self._tool, tools)

    @property
    def managed_agents(self) -> dict[str, Any]:
        """The agents it manages, by name."""
        return self.__dict__["managed_agents"]  # type: ignore[no-any-return]  # likewise

    @managed_agents.setter
    def managed_agents(self, agents: Mapping[str, Any]) -> None:
        self.__dict__["managed_agents"] = _Each(self._member, agents)

    @property
    def python_executor(self) -> Any:
        """What runs the code of a `CodeAgent`; None for other agents."""
        return self.__dict__.get("python_executor")

    @python_executor.setter
    def python_executor(self, executor: Any) -> None:
        if not isinstance(executor, LocalPythonExecutor):
            raise ConfigurationError(
                f"the executor {type(executor).__name__!r} runs code elsewhere, with the source of the tools and without "
                "their guard; use executor_type='local'"
            )
        members = self.__dict__.get("managed_agents", {}).values()
        if "wait" in (self.on_hold, *(each.on_hold for each in members if isinstance(each, GuardedAgent))):
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
        error = self.__dict__.pop("setup_error", None) or setup_error_in(getattr(step, "error", None))
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
            return _guarded(agent, self.bridge, self.on_hold)
        if agent.on_hold == "wait":
            _untimed(self.python_executor)
        return agent


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "tell",
) -> A:
    """Guard an agent, and the agents it manages, where they are.

    Args:
        agent: The agent; its memory and state are its own, so it is no copy that is guarded.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names given to agents; others act as the guard's own agent.
        on_hold: What a held call does: `tell` lets the model read that it waits, `wait` waits for the person.

    Returns:
        The same agent.

    Raises:
        ConfigurationError: An argument is wrong, or the agent has something that cannot be guarded.
    """
    valid_on_hold(on_hold, None)
    bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
    guarded = _guarded(agent, bridge, on_hold)
    bridge.verify_tools(_tool_names(guarded))
    return guarded  # type: ignore[no-any-return]  # the agent itself


def _tool_names(agent: Any) -> Iterator[str]:
    yield from agent.tools
    for name, member in agent.managed_agents.items():
        yield name
        yield from _tool_names(member)


def _guarded(agent: Any, bridge: Bridge, on_hold: OnHold) -> Any:
    if not isinstance(agent, MultiStepAgent) or isinstance(agent, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass a smolagents agent that is not guarded yet")
    before = type(agent)
    kind = type(
        before.__name__,
        (GuardedAgent, before),
        {"bridge": bridge, "on_hold": on_hold, "__module__": before.__module__, "__doc__": before.__doc__},
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
            "CodeAgent(executor_kwargs={'timeout_seconds': None}), or guard_agent(…, on_hold='tell')"
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
