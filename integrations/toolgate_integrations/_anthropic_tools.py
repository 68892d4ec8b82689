"""Tools of the Anthropic SDK, guarded: every call is asked for, whichever runner makes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn

from anthropic.lib.tools import (
    BetaAsyncBuiltinFunctionTool,
    BetaAsyncFunctionTool,
    BetaAsyncRunnableToolset,
    BetaBuiltinFunctionTool,
    BetaFunctionTool,
    BetaRunnableToolset,
    ToolError,
)

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._anthropic_turns import Turns, now
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, valid_on_hold
from toolgate_integrations.refusals import refusal_text

__all__ = ["AsyncGuardedTool", "GuardedTool", "OnHold", "guard_tools"]

OnHold = Literal["pause", "wait", "tell"]
logger = logging.getLogger("toolgate")

_PAUSES = (ApprovalPending,)
_INTERRUPTED = "The call was interrupted, and may have been carried out in part. It is not carried out again."
_UNREADABLE = "Not done: the arguments are not a JSON object. Call the tool again with valid JSON."


def guard_tools(
    tools: Iterable[Any],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    agent: str | None = None,
    on_hold: OnHold = "pause",
) -> list[Any]:
    """Guard the tools of a runner.

    Args:
        tools: Made by `beta_tool` and `beta_async_tool`, or of the SDK's own that run here. Definitions of tools that
            the provider runs stay as they are.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names of agents; others act as the guard's own agent.
        agent: The name of the agent whose tools these are.
        on_hold: What a held call does: `pause` pauses a `GuardedRun` (any other runner's model is told), `wait` waits
            for the person, `tell` lets the model read that it waits.

    Returns:
        The guarded tools, to be given to a runner.

    Raises:
        ConfigurationError: An argument is wrong, or a tool cannot be guarded.
    """
    valid_on_hold(on_hold, "pause")
    if agent is not None and not isinstance(agent, str):
        raise ConfigurationError(f"agent is {agent!r}; pass the agent's name as text")
    gate = _Gate(Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold), on_hold, agent)
    return [_guarded(each, gate) for each in tools]


class _Gate:
    """What the calls of some tools go through."""

    def __init__(self, bridge: Bridge, on_hold: str, agent: str | None) -> None:
        self.bridge, self.on_hold, self.agent = bridge, on_hold, agent

    def call(
        self, tool: Any, arguments: Mapping[str, Any], call_id: str | None, run_id: str | None
    ) -> ToolCall:
        """A call, as the gateway is to hear of it."""
        return ToolCall(
            tool.name,
            arguments,
            # Told that it waits, a model calls again, by another name.
            call_id=None if self.on_hold == "tell" else call_id,
            run_id=run_id,
            agent=self.agent,
            function=getattr(tool, "func", None),
        )

    def refuse(self, name: str, error: GuardError, turns: Turns | None, block: Any) -> NoReturn:
        """Say to the model why a call did not run.

        Raises:
            ToolError: Always; the SDK's runners tell it as it is.
        """
        if isinstance(error, ConfigurationError):
            logger.warning("a call of the tool %r was refused: %s", name, error)
        if isinstance(error, ApprovalPending) and turns is not None and self.on_hold == "pause":
            turns.hold(block, error)
        raise ToolError(refusal_text(error)) from error


class _Guarded:
    """What guarded tools of both kinds have of the tool as it was."""

    def __init__(self, inner: Any, gate: _Gate) -> None:
        self.inner = inner
        self.gate = gate

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "gate"):
            # A copy that is being made has neither yet.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def to_dict(self) -> Any:
        """The tool's definition, unchanged."""
        return self.inner.to_dict()

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.inner.name)


class GuardedTool(_Guarded, BetaBuiltinFunctionTool):
    """A tool whose every call is asked for; made by `guard_tools`."""

    def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Ask, let the tool run, record; as the runner calls it.

        Raises:
            ToolError: The tool did not run.
        """
        turns, block = now(input) or (None, None)
        if turns is None or block is None:
            return self.carry_out(input)
        if block.id not in turns.answers:
            # Told if the loop is left by no mere exception, and entered again.
            turns.answers[block.id] = _raising(ToolError(_INTERRUPTED))
            try:
                answer = self.carry_out(input, turns, block)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told again
                turns.answers[block.id] = _raising(error)
            else:
                turns.answers[block.id] = lambda: answer
        return turns.answers[block.id]()

    def carry_out(self, given: object, turns: Turns | None = None, block: Any = None) -> Any:
        """As `call`, for a call of a run."""
        arguments = _read(given)
        call = self.gate.call(
            self.inner,
            arguments,
            None if block is None else block.id,
            None if turns is None else turns.run_id,
        )
        try:
            return self.gate.bridge.run(call, lambda told: _kept(self.inner.call(told)), pauses=_PAUSES)
        except GuardError as error:
            self.gate.refuse(self.name, error, turns, block)


class AsyncGuardedTool(_Guarded, BetaAsyncBuiltinFunctionTool):
    """As `GuardedTool`, for the asynchronous runners."""

    async def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Ask, let the tool run, record; as the runner calls it.

        Raises:
            ToolError: The tool did not run.
        """
        turns, block = now(input) or (None, None)
        if turns is None or block is None:
            return await self.carry_out(input)
        if block.id not in turns.answers:
            # Told if the loop is left by no mere exception, and entered again.
            turns.answers[block.id] = _raising(ToolError(_INTERRUPTED))
            try:
                answer = await self.carry_out(input, turns, block)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told again
                turns.answers[block.id] = _raising(error)
            else:
                turns.answers[block.id] = lambda: answer
        return turns.answers[block.id]()

    async def carry_out(self, given: object, turns: Turns | None = None, block: Any = None) -> Any:
        """As `call`, for a call of a run."""
        arguments = _read(given)
        call = self.gate.call(
            self.inner,
            arguments,
            None if block is None else block.id,
            None if turns is None else turns.run_id,
        )

        async def run(told: dict[str, Any]) -> Any:
            return _kept(await self.inner.call(told))

        try:
            return await self.gate.bridge.arun(call, run, pauses=_PAUSES)
        except GuardError as error:
            self.gate.refuse(self.name, error, turns, block)


def _guarded(tool: Any, gate: _Gate) -> Any:
    if isinstance(tool, Mapping):
        return tool
    if isinstance(tool, _Guarded):
        raise ConfigurationError(f"the tool {tool.name!r} is guarded already; give it to guard_tools once")
    if isinstance(tool, (BetaFunctionTool, BetaBuiltinFunctionTool)):
        return GuardedTool(tool, gate)
    if isinstance(tool, (BetaAsyncFunctionTool, BetaAsyncBuiltinFunctionTool)):
        return AsyncGuardedTool(tool, gate)
    if isinstance(tool, (BetaRunnableToolset, BetaAsyncRunnableToolset)):
        raise ConfigurationError(
            f"the toolset {tool.toolset_name!r} cannot be guarded; give its runner the single tools, or leave it out"
        )
    raise ConfigurationError(f"{tool!r} is no tool; make one with beta_tool or beta_async_tool")


def _read(given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ToolError(_UNREADABLE)
    return dict(given)


def _kept(answer: Any) -> Any:
    """A tool's answer that can be told more than once."""
    return answer if answer is None or isinstance(answer, str) else list(answer)


def _raising(error: Exception) -> Callable[[], NoReturn]:
    def again() -> NoReturn:
        raise error

    return again
