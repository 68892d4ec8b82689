"""LlamaIndex: `agent = guard_agent(agent)`, or `tools=guard_tools([…])`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import Bridge, ToolActions, require, valid_on_hold

require("llamaindex")

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool

from toolgate_integrations._llamaindex_tools import GuardedFunctionTool, GuardedTool, guarded, like
from toolgate_integrations._setup_errors import setup_error_in

__all__ = ["GuardedFunctionTool", "GuardedTool", "guard_agent", "guard_tools"]

OnHold = Literal["event", "wait", "tell"]
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
        agent: The agent or workflow, which is changed: there is no other one that goes unguarded. Copies of it are
            guarded as well.
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
    valid_on_hold(on_hold, "event")
    bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
    if not isinstance(agent, (AgentWorkflow, BaseWorkflowAgent)):
        raise ConfigurationError(f"agent is {agent!r}; pass a FunctionAgent, ReActAgent or AgentWorkflow")
    if isinstance(agent, AgentWorkflow):
        for each in agent.agents.values():
            _become(each, _GuardedAgent, bridge)
    _become(agent, _GuardedWorkflow if isinstance(agent, AgentWorkflow) else _GuardedAgent, bridge)
    members = agent.agents.values() if isinstance(agent, AgentWorkflow) else [agent]
    tools = [tool for each in members for tool in each.tools or () if isinstance(tool, BaseTool)]
    names = [tool.metadata.name or "" for tool in tools]
    # Retrieved tools and handoffs come later.
    bridge.verify_tools(names, is_complete=False)
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
    valid_on_hold(on_hold, "event")
    bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
    found = guarded(tools, bridge, None)
    bridge.verify_tools([tool.metadata.name or "" for tool in found], is_complete=False)
    return found


class _GuardedAgent(BaseWorkflowAgent):
    """An agent in whom nobody finds a tool that is not guarded."""

    guarded_by: ClassVar[Bridge]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        # A workflow reads these of its agents, and asks them nothing.
        if name == "tools" and found is not None:
            # Kept, if it is another list: whoever adds to what they read adds to the agent's.
            if (own := guarded(found, self.guarded_by, self.name)) != found:
                found = self.__dict__["tools"] = own
        elif name == "tool_retriever" and found is not None:
            found = _GuardedRetriever(found, self.guarded_by, self.name)
        return found

    async def handle_tool_call_results(self, ctx: Any, results: list[Any], memory: Any) -> None:
        """Take the results of a step's tools.

        Raises:
            ConfigurationError: A call was not carried out because of the settings or the API key. The framework has
                made text for the model of it.
            GatewayProtocolError: As for `ConfigurationError`.
        """
        for each in results:
            if (error := setup_error_in(each.tool_output.exception)) is not None:
                raise error
        kind_of_agent: Any = super()
        await kind_of_agent.handle_tool_call_results(ctx, results, memory)

    async def get_tools(self, input_str: str | None = None) -> list[AsyncBaseTool]:
        """The tools of a step, with those that an agent of another kind has besides."""
        return guarded(await super().get_tools(input_str), self.guarded_by, self.name)


class _GuardedWorkflow(AgentWorkflow):
    """A workflow of guarded agents, which makes their handoffs."""

    guarded_by: ClassVar[Bridge]

    async def get_tools(self, agent_name: str, input_str: str | None = None) -> list[AsyncBaseTool]:
        """The one way by which a workflow comes to tools."""
        return guarded(await super().get_tools(agent_name, input_str), self.guarded_by, agent_name)


class _GuardedRetriever(ObjectRetriever[Any]):
    """What finds an agent's tools: whatever it finds is guarded."""

    def __init__(self, retriever: ObjectRetriever[Any], bridge: Bridge, agent: str) -> None:
        like(self, retriever)
        self._found_by, self._bridge, self._agent = retriever, bridge, agent

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return guarded(self._found_by.retrieve(str_or_query_bundle), self._bridge, self._agent)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return guarded(await self._found_by.aretrieve(str_or_query_bundle), self._bridge, self._agent)


def _become(one: Any, kind: Any, bridge: Bridge) -> None:
    """Make a guarded one of an agent or a workflow, by a class of its own: of that its copies are, too."""
    was = type(one)
    if issubclass(was, kind):
        return
    # By its name the framework knows runs that were kept.
    names = {"__module__": was.__module__, "__qualname__": was.__qualname__}
    made: Any = type(was.__name__, (kind, was), names)
    made.guarded_by = bridge
    # The framework's classes inherit no steps that were added to them.
    made._step_functions = was._step_functions  # noqa: SLF001 - there is no public way to tell of them
    object.__setattr__(one, "__class__", made)
