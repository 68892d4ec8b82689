"""Plugin for the OpenAI Agents SDK: `agent = guard_agent(agent)`, and `resume(agent, state)` after a pause."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from toolgate import ConfigurationError, Guard
from toolgate_integrations._options import OnHold
from toolgate_integrations.base import Bridge, ToolActions, require

require("openai_agents")

import agents as sdk
from agents import Agent, FunctionTool, Handoff, RunContextWrapper, Tool

from toolgate_integrations.openai_agents.internals import agent_of, replace_agent
from toolgate_integrations.openai_agents.resume import (
    Settled,
    aresume,
    aresume_streamed,
    resume,
    resume_streamed,
    resume_sync,
    settle,
)
from toolgate_integrations.openai_agents.tools import GuardedTool, guarded_tool

__all__ = [
    "GuardedAgent",
    "Settled",
    "aresume",
    "aresume_streamed",
    "guard_agent",
    "resume",
    "resume_streamed",
    "resume_sync",
    "settle",
]


# Classes of tools that the model's provider runs. Calls to these tools do not reach this process, so they cannot be
# checked here.
_ELSEWHERE: Final = tuple(
    getattr(sdk, name)
    for name in (
        "CodeInterpreterTool",
        "FileSearchTool",
        "HostedMCPTool",
        "ImageGenerationTool",
        "ToolSearchTool",
        "WebSearchTool",
    )
    if hasattr(sdk, name)
)


class _Guarding:
    """A bridge, and the guarded copies of a group of agents that hand off to each other or are tools of each other."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        self.bridge = Bridge(None, on_hold="pause", can_pause=True) if bridge is None else bridge
        # The original agent is stored too, because Python may reuse the id() of a deleted object.
        self._made: dict[int, tuple[Agent[Any], GuardedAgent]] = {}

    def agent(self, agent: Agent[Any]) -> GuardedAgent:
        """Return the guarded copy of an agent; the same agent always has the same copy."""
        if isinstance(agent, GuardedAgent):
            return agent
        if id(agent) in self._made:
            return self._made[id(agent)][1]
        guarded = cast("GuardedAgent", copy.copy(agent))
        object.__setattr__(guarded, "__class__", _guarded_kind(type(agent)))
        guarded.guarding = self
        # The copy is stored before its handoffs are guarded, because they may lead back to this agent.
        self._made[id(agent)] = (agent, guarded)
        guarded.tools = [self.tool(tool, agent.name) for tool in agent.tools]
        guarded.handoffs = [self.handoff(each) for each in agent.handoffs]
        return guarded

    def verify_tools(self) -> None:
        """Compare the keys of `tool_actions` with the tools of all agents in the group.

        Tools of MCP servers are not compared, because they are not known before a run.

        Raises:
            ConfigurationError: A key of `tool_actions` matches no tool, and is probably misspelt.
        """
        made = [guarded for _, guarded in self._made.values()]
        names = [tool.name for guarded in made for tool in guarded.tools]
        dynamic = any(guarded.mcp_servers or guarded.handoffs for guarded in made)
        self.bridge.verify_tools(names, is_complete=not dynamic)

    def tool(self, tool: Tool, agent_name: str) -> Tool:
        """Return the guarded copy of an agent's tool.

        Raises:
            ConfigurationError: Tools of this class cannot be guarded.
        """
        given: object = tool
        if isinstance(given, _ELSEWHERE):
            return tool
        if not isinstance(tool, FunctionTool):
            raise ConfigurationError(
                f"agent {agent_name!r} has the tool {tool.name!r} of type {type(tool).__name__}, which "
                "cannot be guarded; remove it, or replace it with a function tool"
            )
        inner = tool
        if isinstance(tool.on_invoke_tool, GuardedTool):
            if tool.on_invoke_tool.agent_name == agent_name:
                return tool
            inner = tool.on_invoke_tool.tool
        nested = agent_of(inner)
        if nested is not None and not isinstance(nested, GuardedAgent):
            inner = replace_agent(inner, nested, self.agent(nested))
        return guarded_tool(inner, agent_name, self.bridge)

    def handoff(self, handoff: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        """Return a copy of a handoff that leads to the guarded copy of the target agent."""
        if isinstance(handoff, Agent):
            return self.agent(handoff)
        if isinstance(handoff.on_invoke_handoff, _GuardedHandoff):
            return handoff
        guarded = copy.copy(handoff)
        guarded.on_invoke_handoff = _GuardedHandoff(self, handoff.on_invoke_handoff)
        target = None if handoff._agent_ref is None else handoff._agent_ref()  # noqa: SLF001 - there is no public attribute
        if isinstance(target, Agent):
            # The SDK uses this weak reference to find the agents when it loads a stored state. `_made` keeps the
            # guarded agents alive.
            guarded._agent_ref = weakref.ref(self.agent(target))  # noqa: SLF001 - there is no public attribute
        return guarded


class _GuardedHandoff:
    """Function of a guarded handoff, which returns the guarded copy of the target agent."""

    def __init__(self, guarding: _Guarding, invoke: Callable[..., Awaitable[Agent[Any]]]) -> None:
        self._guarding = guarding
        self._invoke = invoke

    async def __call__(self, context: RunContextWrapper[Any], text: str) -> Agent[Any]:
        return self._guarding.agent(await self._invoke(context, text))


@dataclass
class GuardedAgent(Agent[Any]):
    """An agent whose tool calls are all checked and logged; created by `guard_agent`.

    Attributes:
        guarding: Bridge and guarded copies; shared by the agent's clones and the agents to which it hands off.
    """

    guarding: _Guarding = field(default_factory=_Guarding, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[no-untyped-call]  # the SDK does not annotate this method
        self.tools = [self.guarding.tool(tool, self.name) for tool in self.tools]
        self.handoffs = [self.guarding.handoff(each) for each in self.handoffs]

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return the guarded tools of the agent and of its MCP servers.

        Raises:
            ConfigurationError: A tool cannot be guarded, or a handoff was added after `guard_agent`.
        """
        for each in self.handoffs:
            if self.guarding.handoff(each) is not each:
                raise ConfigurationError(
                    f"agent {self.name!r} received a handoff to {_led_to(each)!r} after it was guarded; add "
                    "the handoff before calling guard_agent(…)"
                )
        tools = await super().get_all_tools(run_context)
        return [self.guarding.tool(tool, self.name) for tool in tools]


def guard_agent(
    agent: Agent[Any],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> GuardedAgent:
    """Return a guarded copy of an agent, of the agents that are its tools, and of those to which it hands off.

    Args:
        agent: The agent; it is not changed.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<server>.<tool>` for a tool of an MCP server.
        agents: Toolgate agent ids by the names of agents. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses; continue it with `resume`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Returns:
        The guarded copy.

    Raises:
        ConfigurationError: An argument is invalid, or the agent has a tool of a class that cannot be guarded.
    """
    given: object = agent
    if not isinstance(given, Agent) or isinstance(given, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass an agents.Agent that is not guarded yet")
    guarding = _Guarding(Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True))
    guarded = guarding.agent(agent)
    guarding.verify_tools()
    return guarded


def _guarded_kind(kind: type[Agent[Any]]) -> type[GuardedAgent]:
    if kind is Agent:
        return GuardedAgent
    return dataclass(type(f"Guarded{kind.__name__}", (GuardedAgent, kind), {}))


def _led_to(handoff: Agent[Any] | Handoff[Any, Any]) -> str:
    return handoff.name if isinstance(handoff, Agent) else handoff.agent_name
