"""Agno: `agent = guard_agent(Agent(…))`, and `resume(agent, run)` where held calls pause the run."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import ToolActions, require, valid_on_hold

require("agno")

from agno.agent import Agent
from agno.run.agent import RunOutput

from toolgate_integrations._agno_resume import Waking
from toolgate_integrations._agno_tools import AgnoBridge, OnHold, guarded_tool

__all__ = ["GuardedAgent", "aresume", "guard_agent", "resume"]

A = TypeVar("A", bound=Agent)


class GuardedAgent(Agent):
    """An agent whose every tool call is asked for; made by `guard_agent`.

    Its copies are guarded too, as each guarded agent has a class of its own.

    Attributes:
        bridge: Asks and records.
    """

    bridge: ClassVar[AgnoBridge]

    def get_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The tools of one run, guarded: also those that were added later, and those the framework adds.

        Raises:
            ConfigurationError: A tool pauses by itself where held calls pause the run.
        """
        return [guarded_tool(tool, self.bridge) for tool in super().get_tools(*args, **kwargs)]

    async def aget_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As `get_tools`."""
        return [guarded_tool(tool, self.bridge) for tool in await super().aget_tools(*args, **kwargs)]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As of any agent.

        Raises:
            ConfigurationError: A call was not carried out because of the settings or the API key.
            GatewayProtocolError: A call was not carried out because what answered is not the gateway.
        """
        return self._ended(super().run(*args, **kwargs))

    def arun(self, *args: Any, **kwargs: Any) -> Any:
        """As `run`."""
        return self._aended(super().arun(*args, **kwargs))

    def continue_run(self, *args: Any, **kwargs: Any) -> Any:
        """As `run`."""
        return self._ended(super().continue_run(*args, **kwargs))

    def acontinue_run(self, *args: Any, **kwargs: Any) -> Any:
        """As `run`."""
        return self._aended(super().acontinue_run(*args, **kwargs))

    def _ended(self, run: Any) -> Any:
        """What the framework returned; it keeps every exception of a tool, so setup errors are raised here."""
        if isinstance(run, Iterator):
            return self._streamed(run)
        self._raise_setup_error(run)
        return run

    def _aended(self, run: Any) -> Any:
        return self._astreamed(run) if isinstance(run, AsyncIterator) else self._awaited(run)

    async def _awaited(self, run: Awaitable[Any]) -> Any:
        return self._ended(await run)

    def _streamed(self, run: Iterator[Any]) -> Iterator[Any]:
        for event in run:
            yield event
            self._raise_setup_error(event)

    async def _astreamed(self, run: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in run:
            yield event
            self._raise_setup_error(event)

    def _raise_setup_error(self, seen: Any) -> None:
        error = self.bridge.setup_errors.pop(getattr(seen, "run_id", None) or "", None)
        if error is not None:
            raise error


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
) -> A:
    """Guard the tools of an agent.

    Args:
        agent: The agent; it stays as it is.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names given to `Agent(name=…)`; others act as the guard's own agent.
        on_hold: What a held call does: `pause` pauses the run, and `resume` goes on with it; `wait` waits for the
            person within the run; `tell` lets the model read that it waits.

    Returns:
        A guarded copy.

    Raises:
        ConfigurationError: An argument is wrong, or a tool pauses by itself where held calls pause the run.
    """
    given: object = agent
    if not isinstance(given, Agent) or isinstance(given, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass an agno.agent.Agent that is not guarded yet")
    valid_on_hold(on_hold, "pause")
    bridge = AgnoBridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
    for tool in agent.tools if isinstance(agent.tools, (list, tuple)) else ():
        # Said here: what is wrong in a run the framework only writes into its answer.
        guarded_tool(tool, bridge)
    guarded = copy.copy(agent)
    if isinstance(agent.tools, list):
        # Its own, so that what is added to it is not added to the agent that is not guarded.
        guarded.tools = list(agent.tools)
    kind = type(f"Guarded{type(agent).__name__}", (GuardedAgent, type(agent)), {"bridge": bridge})
    object.__setattr__(guarded, "__class__", kind)
    return guarded


def resume(agent: Agent, run: RunOutput) -> RunOutput:
    """Take a run as far as the gateway lets it: with `pause` each call of a tool pauses it first.

    What was said of its requirements in the framework is taken so: `reject` refuses the call and withdraws its
    request, `confirm` decides nothing.

    Args:
        agent: The guarded agent, in this process or another one than began the run.
        run: What `agent.run`, `agent.get_run_output` or this function returned.

    Returns:
        The run: ended, or paused by calls that wait for a person. The `tool_execution.approval_id` of their
        requirements names what they wait for.

    Raises:
        ConfigurationError: The agent is not guarded.
    """
    while run.is_paused:
        waking = Waking(_bridge(agent), agent.name, run)
        if not waking.settle():
            return run
        with waking.named():
            run = agent.continue_run(run_response=run)
    return run


async def aresume(agent: Agent, run: RunOutput) -> RunOutput:
    """As `resume`."""
    while run.is_paused:
        waking = Waking(_bridge(agent), agent.name, run)
        if not await waking.asettle():
            return run
        with waking.named():
            run = await agent.acontinue_run(run_response=run)
    return run


def _bridge(agent: Agent) -> AgnoBridge:
    if not isinstance(agent, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass what guard_agent(…) returned")
    return agent.bridge
