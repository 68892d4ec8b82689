"""Tools of the Anthropic SDK, guarded: every call is asked for, whichever runner makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

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
from toolgate_integrations._arguments import AnnotatedSchema
from toolgate_integrations._base import ToolActions, ToolCall
from toolgate_integrations._called import Called, called_now
from toolgate_integrations._gate import Gate
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import refusal_or_raise

__all__ = ["AsyncGuardedTool", "GuardedTool", "OnHold", "guard_tools"]

OnHold = Literal["pause", "wait", "tell"]

_PAUSES = (ApprovalPending,)
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
    gate = Gate(guard, tool_actions=tool_actions, agents=agents, agent=agent, on_hold=on_hold, pauses="pause")
    found = [_guarded(each, gate) for each in tools]
    gate.bridge.verify_tools(
        [name for each in found if (name := getattr(each, "name", None))], is_complete=False
    )
    return found


class _Guarded:
    """What guarded tools of both kinds have of the tool as it was."""

    def __init__(self, inner: Any, gate: Gate) -> None:
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

    def asked(self, called: Called) -> ToolCall:
        """A call, as the gateway is to hear of it."""
        function = getattr(self.inner, "func", None)
        return self.gate.call(
            self.name,
            called.input,
            called.call_id,
            run_id=called.run_id,
            function=function,
            schema=None if function is None else AnnotatedSchema(function),
        )

    @contextmanager
    def asking(self, given: object) -> Iterator[tuple[Called, ToolCall]]:
        """While a call is carried out: why it does not run is told as the SDK's runners tell errors of tools.

        Raises:
            ToolError: It does not.
        """
        if not isinstance(given, dict):
            raise ToolError(_UNREADABLE)
        called = called_now(self.name, given)
        try:
            yield called, self.asked(called)
        except SETUP_ERRORS as error:
            if called.run is not None:
                called.run.setup_error = error
            raise ToolError(str(error)) from error
        except GuardError as error:
            paused = self.gate.pauses_for(error) and called.call_id is not None
            if self.gate.pauses_for(error):
                called.hold(error)
            raise ToolError(refusal_or_raise(error, paused=paused)) from error


class GuardedTool(_Guarded, BetaBuiltinFunctionTool):
    """A tool whose every call is asked for; made by `guard_tools`."""

    def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Ask, let the tool run, record; as the runner calls it.

        Raises:
            ToolError: The tool did not run.
        """

        def run(approved: dict[str, Any]) -> Any:
            return _kept(self.inner.call(call.to_send(approved)))

        with self.asking(input) as (called, call):
            return called.once(lambda: self.gate.bridge.run(call, run, pauses=_PAUSES))


class AsyncGuardedTool(_Guarded, BetaAsyncBuiltinFunctionTool):
    """As `GuardedTool`, for the asynchronous runners."""

    async def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Ask, let the tool run, record; as the runner calls it.

        Raises:
            ToolError: The tool did not run.
        """

        async def run(approved: dict[str, Any]) -> Any:
            return _kept(await self.inner.call(call.to_send(approved)))

        with self.asking(input) as (called, call):
            return await called.aonce(lambda: self.gate.bridge.arun(call, run, pauses=_PAUSES))


def _guarded(tool: Any, gate: Gate) -> Any:
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


def _kept(answer: Any) -> Any:
    """A tool's answer that can be told more than once."""
    return answer if answer is None or isinstance(answer, str) else list(answer)
