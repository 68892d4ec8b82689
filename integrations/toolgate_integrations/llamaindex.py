"""LlamaIndex: `agent = guard_agent(agent)`, or `tools=guard_tools([…])`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import ToolActions, require

require("llamaindex")

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolMetadata,
    ToolOutput,
    adapt_to_async_tool,
)

from toolgate_integrations._llamaindex_calls import Gate, OnHold, Way

__all__ = ["GuardedFunctionTool", "GuardedTool", "guard_agent", "guard_tools"]

A = TypeVar("A", bound="BaseWorkflowAgent | AgentWorkflow")


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "event",
) -> A:
    """Guard all tools of an agent, or of all agents of an `AgentWorkflow`; what a retriever finds, and handoffs, too.

    Args:
        agent: The agent or workflow, which is changed: there is no other one that goes unguarded.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names of the agents.
        on_hold: What a held call does: `event` pauses it with an `InputRequiredEvent`, `wait` waits for the
            person within the run, `tell` lets the model read that it waits.

    Returns:
        The same agent or workflow.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    gate = Gate(guard, tool_actions, agents, on_hold)
    if isinstance(agent, AgentWorkflow):
        for each in agent.agents.values():
            _guard_one(each, gate)
        of_all = agent.get_tools

        async def get_tools(agent_name: str, input_str: str | None = None) -> list[AsyncBaseTool]:
            return [_guarded(tool, gate, agent_name) for tool in await of_all(agent_name, input_str)]

        # The one way by which a workflow comes to tools; its handoffs are made there.
        object.__setattr__(agent, "get_tools", get_tools)
    elif isinstance(agent, BaseWorkflowAgent):
        _guard_one(agent, gate)
    else:
        raise ConfigurationError(
            f"agent is {agent!r}; pass a FunctionAgent, a ReActAgent or an AgentWorkflow"
        )
    return agent


def guard_tools(
    tools: Iterable[BaseTool | Callable[..., Any]],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "event",
) -> list[AsyncBaseTool]:
    """The guarded ones of some tools, for whatever is given tools.

    Args:
        tools: Tools or functions; those that are guarded already stay as they are.
        guard: As for `guard_agent`.
        tool_actions: As for `guard_agent`.
        agents: Agent ids by the names of the agents of an `AgentWorkflow`: elsewhere a tool is not told who has it.
        on_hold: As for `guard_agent`.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    gate = Gate(guard, tool_actions, agents, on_hold)
    return [_guarded(each, gate, None) for each in tools]


class GuardedTool(AsyncBaseTool):
    """A tool of any kind, guarded; made by `guard_tools` and `guard_agent`."""

    def __init__(self, way: Way) -> None:
        self._way = way

    @property
    def metadata(self) -> ToolMetadata:
        """What the model is told of the tool."""
        told: ToolMetadata = self._way.tool.metadata
        return told

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask, let the tool run, record; what is refused is an answer that says so."""
        return self._way.call(args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`; in an agent's run a held call can pause."""
        return await self._way.acall(args, kwargs)


class GuardedFunctionTool(FunctionTool):
    """A `FunctionTool`, guarded: one still, for whoever treats those in their own way."""

    def __init__(self, way: Way) -> None:
        # A tool of another kind is tried with a bare value first, and again with names: it would run twice.
        self.__dict__.update(vars(way.tool))
        self._way = way

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask, let the tool run, record; what is refused is an answer that says so."""
        return self._way.call(args, kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`; in an agent's run a held call can pause."""
        return await self._way.acall(args, kwargs)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function, guarded: others make tools of their own of it."""
        return self._standing_for(super().fn, coroutine=False)

    @property
    def async_fn(self) -> Callable[..., Any]:
        """As `fn`."""
        return self._standing_for(super().async_fn, coroutine=True)

    @property
    def real_fn(self) -> Callable[..., Any]:
        """As `fn`, of the kind that the tool was made of."""
        real = super().real_fn
        return self._standing_for(real, coroutine=inspect.iscoroutinefunction(real))

    def _standing_for(self, function: Callable[..., Any], *, coroutine: bool) -> Callable[..., Any]:
        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            output = self.call(*args, **kwargs)
            return output.content if output.is_error else output.raw_output

        @functools.wraps(function)
        async def other(*args: Any, **kwargs: Any) -> Any:
            output = await self.acall(*args, **kwargs)
            return output.content if output.is_error else output.raw_output

        return other if coroutine else plain


class _GuardedRetriever(ObjectRetriever[Any]):
    """What finds an agent's tools: whatever it finds is guarded."""

    def __init__(self, retriever: ObjectRetriever[Any], gate: Gate, agent: str) -> None:
        self.__dict__.update(vars(retriever))
        self._found_by, self._gate, self._agent = retriever, gate, agent

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        found = self._found_by.retrieve(str_or_query_bundle)
        return [_guarded(each, self._gate, self._agent) for each in found]

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        found = await self._found_by.aretrieve(str_or_query_bundle)
        return [_guarded(each, self._gate, self._agent) for each in found]


def _guard_one(agent: BaseWorkflowAgent, gate: Gate) -> None:
    # A workflow reads these of its agents, and asks them nothing.
    agent.tools = [_guarded(each, gate, agent.name) for each in agent.tools or ()]
    if agent.tool_retriever is not None and not isinstance(agent.tool_retriever, _GuardedRetriever):
        agent.tool_retriever = _GuardedRetriever(agent.tool_retriever, gate, agent.name)
    of_agent = agent.get_tools

    async def get_tools(input_str: str | None = None) -> list[AsyncBaseTool]:
        return [_guarded(tool, gate, agent.name) for tool in await of_agent(input_str)]

    # Tools that are added later, too; pydantic lets no other name be set.
    object.__setattr__(agent, "get_tools", get_tools)


def _guarded(tool: BaseTool | Callable[..., Any], gate: Gate, agent: str | None) -> AsyncBaseTool:
    if not isinstance(tool, BaseTool):
        if not callable(tool):
            raise ConfigurationError(f"{tool!r} is no tool; pass a function, a FunctionTool or another tool")
        tool = FunctionTool.from_defaults(tool)
    if isinstance(tool, (GuardedTool, GuardedFunctionTool)):
        return tool
    way = Way(adapt_to_async_tool(tool), gate, agent)
    return GuardedFunctionTool(way) if isinstance(tool, FunctionTool) else GuardedTool(way)
