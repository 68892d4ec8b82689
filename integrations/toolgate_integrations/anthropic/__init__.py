"""Plugin for the Anthropic SDK: `tool_runner(…, tools=guard_tools([…]))`, `GuardedRun(runner)`, and `resume(state, …)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate._drivers import adrive, drive
from toolgate._telemetry import warn_renamed
from toolgate_integrations._options import OnHold
from toolgate_integrations.base import AnnotatedSchema, Bridge, ToolActions, ToolCall, require
from toolgate_integrations.refusals import UNREADABLE

require("anthropic")

from anthropic.lib.tools import (
    BetaAsyncBuiltinFunctionTool,
    BetaAsyncFunctionTool,
    BetaAsyncRunnableToolset,
    BetaBuiltinFunctionTool,
    BetaFunctionTool,
    BetaRunnableToolset,
    ToolError,
)

from toolgate_integrations.anthropic.runs import (
    AsyncGuardedRun,
    Called,
    CallsOfRun,
    GuardedRun,
    HeldCall,
    PausedRun,
    Resumption,
    call_ids,
    find_called,
)

__all__ = [
    "AsyncGuardedRun",
    "AsyncGuardedTool",
    "GuardedRun",
    "GuardedTool",
    "HeldCall",
    "OnHold",
    "aresume",
    "guard_tools",
    "resume",
    "resume_async",
]

_PAUSES: Final = (ApprovalPending,)


def guard_tools(
    tools: Iterable[Any],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    agent: str | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> list[Any]:
    """Return tools for a tool runner of the SDK that check and log every call.

    Args:
        tools: Tools created by `beta_tool` and `beta_async_tool`, or tools of the SDK that run in this process.
            Definitions of tools that the provider runs are returned unchanged.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by agent names. All other agents use the guard's agent id.
        agent: Name of the agent that has these tools.
        on_hold: Reaction to a call that requires an approval. `pause`: a `GuardedRun` pauses; with any other runner,
            the model reads that the call is pending. `wait`: wait for the approver within the run. `raise`: end the
            run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid, or a tool cannot be guarded.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, agent=agent, can_pause=True)
    guarded = [_guarded(each, bridge) for each in tools]
    bridge.verify_tools(
        [name for each in guarded if (name := getattr(each, "name", None))], is_complete=False
    )
    return guarded


class _Guarded:
    """Base class of synchronous and asynchronous guarded tools; other attributes are read from the original tool."""

    def __init__(self, inner: Any, bridge: Bridge) -> None:
        self.inner = inner
        self.bridge = bridge

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "bridge"}:
            # `copy` creates an object without attributes. Reading its missing attribute `inner` would call this method
            # again and recurse forever.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def to_dict(self) -> Any:
        """Return the definition of the original tool, which the runner sends to the model."""
        return self.inner.to_dict()

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.inner.name)

    def asked(self, called: Called) -> ToolCall:
        """Return the `ToolCall` that the gateway checks for this execution of the tool."""
        function = getattr(self.inner, "func", None)
        return self.bridge.call(
            self.name,
            called.input,
            called.call_id,
            run_id=called.run_id,
            function=function,
            schema=None if function is None else AnnotatedSchema(function),
        )

    @contextmanager
    def asking(self, given: object) -> Iterator[tuple[Called, ToolCall]]:
        """Yield the SDK's call and the `ToolCall` for the gateway; errors that refuse the call become a `ToolError`.

        The runners show a `ToolError` to the model.

        Raises:
            ToolError: The tool did not run.
        """
        if not isinstance(given, dict):
            raise ToolError(UNREADABLE)
        called = find_called(self.name, given)
        try:
            yield called, self.asked(called)
        except self.bridge.fatal as error:
            if called.run is not None:
                called.run.setup_error = error
            raise ToolError(str(error)) from error
        except GuardError as error:
            paused = self.bridge.pauses_for(error) and called.call_id is not None
            if self.bridge.pauses_for(error):
                called.hold(error)
            raise ToolError(self.bridge.refusal(error, paused=paused)) from error


class GuardedTool(_Guarded, BetaBuiltinFunctionTool):
    """A tool of the synchronous runners that checks and logs every call; created by `guard_tools`."""

    def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Check the call, run the tool, and log the outcome; the runner calls this method.

        Raises:
            ToolError: The tool did not run.
        """

        def run(approved: dict[str, Any]) -> Any:
            return _kept(self.inner.call(call.to_send(approved)))

        with self.asking(input) as (called, call):
            return called.once(lambda: self.bridge.run(call, run, pauses=_PAUSES))


class AsyncGuardedTool(_Guarded, BetaAsyncBuiltinFunctionTool):
    """A tool of the asynchronous runners that checks and logs every call; created by `guard_tools`."""

    async def call(self, input: object) -> Any:  # noqa: A002 - the SDK's signature
        """Check the call, run the tool, and log the outcome; the runner calls this method.

        Raises:
            ToolError: The tool did not run.
        """

        async def run(approved: dict[str, Any]) -> Any:
            return _kept(await self.inner.call(call.to_send(approved)))

        with self.asking(input) as (called, call):
            return await called.aonce(lambda: self.bridge.arun(call, run, pauses=_PAUSES))


def resume(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: Callable[[list[Any]], Any],
    *,
    rejected: Mapping[str, str] | None = None,
) -> GuardedRun:
    """Resume a paused run: check its pending calls again, and run those that are approved.

    Args:
        state: The `state` of the paused run.
        tools: The guarded tools.
        runner: Function that receives the messages of the conversation, and returns a tool runner that continues it.
        rejected: Reasons by call id for calls that must not run, even if the approver has approved them.

    Returns:
        The resumed run; iterate over it, or call its method `until_done`. If calls are still pending, it is paused and
        has a new `state`.

    Raises:
        ConfigurationError: An argument is invalid, a tool is missing, or a rejected call is not pending.
    """
    again = _resumption(state, tools, runner, rejected, GuardedTool)
    drive(again.execute())
    return GuardedRun(_next_runner(again, runner), run_id=again.calls.run_id, state=again.state())


async def aresume(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: Callable[[list[Any]], Any],
    *,
    rejected: Mapping[str, str] | None = None,
) -> AsyncGuardedRun:
    """Asynchronous form of `resume`, for asynchronous tools and runners."""
    again = _resumption(state, tools, runner, rejected, AsyncGuardedTool)
    await adrive(again.execute())
    return AsyncGuardedRun(_next_runner(again, runner), run_id=again.calls.run_id, state=again.state())


async def resume_async(*args: Any, **options: Any) -> AsyncGuardedRun:
    """Deprecated name of `aresume`."""
    warn_renamed("resume_async", "aresume")
    return await aresume(*args, **options)


def _resumption(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: object,
    rejected: Mapping[str, str] | None,
    kind: type[Any],
) -> Resumption:
    paused = PausedRun.read(state, call_ids)
    if not callable(runner):
        raise ConfigurationError(
            f"runner is {runner!r}; pass a function that accepts messages and returns a tool runner"
        )
    guarded = [each for each in tools if isinstance(each, kind)]
    return Resumption(paused, CallsOfRun(paused.run_id), guarded, rejected)


def _next_runner(again: Resumption, runner: Callable[[list[Any]], Any]) -> Any:
    return None if again.calls.held else runner(again.conversation())


def _guarded(tool: Any, bridge: Bridge) -> Any:
    if isinstance(tool, Mapping):
        return tool
    if isinstance(tool, _Guarded):
        raise ConfigurationError(
            f"the tool {tool.name!r} is already guarded; pass it to guard_tools only once"
        )
    if isinstance(tool, (BetaFunctionTool, BetaBuiltinFunctionTool)):
        return GuardedTool(tool, bridge)
    if isinstance(tool, (BetaAsyncFunctionTool, BetaAsyncBuiltinFunctionTool)):
        return AsyncGuardedTool(tool, bridge)
    if isinstance(tool, (BetaRunnableToolset, BetaAsyncRunnableToolset)):
        raise ConfigurationError(
            f"the toolset {tool.toolset_name!r} cannot be guarded; pass its tools one by one, or remove it"
        )
    raise ConfigurationError(f"{tool!r} is not a tool; create one with beta_tool or beta_async_tool")


def _kept(result: Any) -> Any:
    """Return a tool's result; an iterator is converted to a list, because the result is read more than once."""
    return result if result is None or isinstance(result, str) else list(result)
