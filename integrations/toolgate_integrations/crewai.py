"""CrewAI: `GuardHooks().register()` for the process, or `with GuardHooks():` around a kickoff."""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Self

from toolgate import (
    ApprovalPending,
    ConfigurationError,
    GatewayUnavailable,
    Guard,
    GuardError,
    guarded_action,
)
from toolgate_integrations._base import Begun, Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations.refusals import refusal_text

require("crewai")

from crewai.flow.flow_context import current_flow_id, current_flow_name
from crewai.hooks import (
    ToolCallHookContext,
    get_before_tool_call_hooks,
    register_after_tool_call_hook,
    register_before_tool_call_hook,
    unregister_after_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.hooks.dispatch import InterceptionPoint, get_global_hook_list, unregister
from crewai.utilities.string_utils import sanitize_tool_name

from toolgate_integrations._crewai_bodies import ChangedError, Passing, function_of, passing, watched

__all__ = ["GuardHooks"]

logger = logging.getLogger("toolgate")

OnHold = Literal["wait", "tell"]


class GuardHooks:
    """Guards every tool call of every agent of the process, while it is registered.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the roles given to `Agent(role=…)`.
        on_hold: What a held call does: `wait` waits for the person, `tell` lets the model read that it waits.
        hold_timeout: Seconds that `wait` waits until the model is told; None waits as long as it takes.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "wait",
        hold_timeout: float | None = None,
    ) -> None:
        valid_on_hold(on_hold)
        self._bridge = Bridge(
            guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold, hold_timeout=hold_timeout
        )
        self._answers = itertools.count(1)

    def register(self) -> None:
        """Guard from now on, until `unregister`.

        Raises:
            ConfigurationError: Guard hooks are registered already: each call would be asked about twice.
        """
        with _registering:
            if any(
                isinstance(getattr(one, "__self__", None), GuardHooks) for one in get_before_tool_call_hooks()
            ):
                raise ConfigurationError(
                    "guard hooks are registered in this process already; unregister them first, and say by agents= or "
                    "acting_as(…) which agent acts"
                )
            # Before all others: it sees the tool and the arguments that will be run, whatever they put in their place.
            for point in _POINTS:
                get_global_hook_list(point).insert(0, self._first)
            register_before_tool_call_hook(self._before)
            register_after_tool_call_hook(self._after)

    def unregister(self) -> None:
        """Guard no longer; to be called when no crew is running."""
        with _registering:
            for point in _POINTS:
                unregister(point, self._first)
            unregister_before_tool_call_hook(self._before)
            unregister_after_tool_call_hook(self._after)

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unregister()

    def _first(self, context: ToolCallHookContext) -> None:
        setattr(context, _MADE, copy.copy(context))

    def _before(self, context: ToolCallHookContext) -> bool | None:
        # Whatever is raised here is swallowed, and the tool runs; so is a coroutine, which nobody awaits.
        made: ToolCallHookContext | None = getattr(context, _MADE, None)
        call = Passing((made or context).tool_input, passing.get())
        passing.set(call)
        try:
            self._begin(made, call)
        except Exception as error:  # noqa: BLE001 - as above: nothing but False keeps the tool from running
            if isinstance(call.carrier, Begun):
                call.carrier.not_run(error)
            call.error, call.carrier = error, None
            return False
        except BaseException:
            passing.set(call.outer)
            raise
        return None

    def _begin(self, context: ToolCallHookContext | None, call: Passing) -> None:
        if context is None:
            raise ConfigurationError(
                "the guard's first hook was taken away; unregister the guard, and register it again"
            )
        named = _named(context)
        if guarded_action(named.function) is not None:
            call.carrier = _Own(self._bridge, named)
        else:
            call.carrier = begun = self._bridge.begin(named)
            if begun.arguments != context.tool_input:
                context.tool_input.clear()
                context.tool_input.update(begun.arguments)
        call.approved = copy.deepcopy(context.tool_input)
        # What asks by itself is not asked about where its result comes from the cache.
        call.leave = watched(context.tool, cached=isinstance(call.carrier, Begun))

    def _after(self, context: ToolCallHookContext) -> str | None:
        made: ToolCallHookContext = getattr(context, _MADE, context)
        call = passing.get()
        while call is not None and call.arguments is not made.tool_input:
            call = call.outer
        if call is None:
            return None
        passing.set(call.outer)
        call.leave()
        if isinstance(call.carrier, Begun) and not call.ran:
            call.carrier.not_run(NotSeenError(_NOT_SEEN))
        return self._told(context.tool_name, call)

    def _told(self, tool: str, call: Passing) -> str | None:
        """What the model reads in place of the framework's words; None leaves them."""
        asked_here = (
            call.carrier is None or isinstance(call.carrier, _Own) or isinstance(call.error, ChangedError)
        )
        match call.error:
            case GuardError() as error if asked_here:
                if isinstance(error, ConfigurationError):
                    logger.warning("a call of the tool %r was refused: %s", tool, error)
                if isinstance(error, ApprovalPending | GatewayUnavailable):
                    # Five equal answers end the run, and to ask again about these is no mistake.
                    return f"{refusal_text(error)} This is answer {next(self._answers)}."
                return refusal_text(error)
            case Exception() as error if call.carrier is None:
                logger.warning(
                    "a call of the tool %r was refused: the guard failed with %r", tool, type(error)
                )
                return f"Not done: the guard failed with {type(error).__name__}. Tell the operator."
        return None


class NotSeenError(Exception):
    """The framework has answered a call by itself."""


class _Own:
    """Runs a function that is guarded itself, and asks about its own action."""

    def __init__(self, bridge: Bridge, call: ToolCall) -> None:
        self._bridge = bridge
        self._call = call

    def run(self, tool: Callable[[], Any], failed: Callable[[Any], str | None]) -> Any:
        return self._bridge.run(self._call, lambda _: tool(), failed)

    async def arun(self, tool: Callable[[], Awaitable[Any]], failed: Callable[[Any], str | None]) -> Any:
        return await self._bridge.arun(self._call, lambda _: tool(), failed)


def _named(context: ToolCallHookContext) -> ToolCall:
    """A call as the gateway is asked about it; there is no id of it.

    Raises:
        ConfigurationError: Nobody can say which tool it is.
    """
    # As the framework does: those of the task, or else those of the agent.
    tools = getattr(context.task, "tools", None) or getattr(context.agent, "tools", None) or ()
    if len({id(one) for one in tools if sanitize_tool_name(one.name) == context.tool_name}) > 1:
        raise ConfigurationError(
            f"two tools are called {context.tool_name!r}, and the framework may run another than it shows to hooks; "
            "rename one"
        )
    role = getattr(context.agent, "_original_role", None) or getattr(context.agent, "role", None)
    # An agent's loop is a flow too, if there is none around it, and its id no longer lived than the call.
    flow = None if current_flow_name.get() == "AgentExecutor" else current_flow_id.get()
    return ToolCall(
        context.tool_name,
        context.tool_input,
        run_id=flow,
        agent=role.strip() if isinstance(role, str) else None,
        function=function_of(context.tool),
    )


_POINTS: Final = (InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.POST_TOOL_CALL)
#: by which a hook's context bears a copy of itself as the framework has made it
_MADE: Final = "_toolgate_made"
_NOT_SEEN: Final = (
    "the tool was not seen to run: the framework answered by itself, as from its cache, at a usage limit or where "
    "arguments do not fit"
)
_registering = threading.Lock()
