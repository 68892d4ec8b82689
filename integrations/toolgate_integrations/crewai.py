"""CrewAI: `GuardHooks().register()` for the process, or `with GuardHooks():` around a kickoff."""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from collections.abc import Mapping
from typing import Final, Literal, Self

from toolgate import ApprovalPending, ConfigurationError, GatewayUnavailable, Guard, GuardError
from toolgate_integrations._arguments import receive_or_keep
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations.refusals import refusal_text

require("crewai")

from crewai.flow.flow_context import current_flow_id, current_flow_name
from crewai.hooks import LLMCallHookContext, ToolCallHookContext
from crewai.hooks.dispatch import HookAborted, InterceptionPoint, get_global_hook_list, unregister
from crewai.utilities.string_utils import sanitize_tool_name

from toolgate_integrations._crewai_calls import Call, Passing, Refused, passing
from toolgate_integrations._crewai_functions import function_of, schema_of
from toolgate_integrations._setup_errors import setup_error_in

__all__ = ["GuardHooks", "SetupAborted"]

logger = logging.getLogger("toolgate")

OnHold = Literal["wait", "tell"]


class SetupAborted(ConfigurationError, HookAborted):  # type: ignore[misc]  # the framework is not in this environment
    """A tool call was not carried out because of the settings or the API key; the run has ended for it."""


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
        # By the identity of the agent, which is kept with it.
        self._setup_errors: dict[int, tuple[object, Exception]] = {}

    def register(self) -> None:
        """Guard from now on, until `unregister`.

        Raises:
            ConfigurationError: Guard hooks are registered already: each call would be asked about twice.
        """
        with _registering:
            before, after = map(get_global_hook_list, _POINTS)
            if any(isinstance(getattr(one, "__self__", None), GuardHooks) for one in before):
                raise ConfigurationError(
                    "guard hooks are registered in this process already; unregister them first, and say by agents= or "
                    "acting_as(…) which agent acts"
                )
            # Before all others: it sees the tool and the arguments that will be run, whatever they put in their place.
            for hooks, hook in ((before, self._before), (after, self._after)):
                hooks.insert(0, self._first)
                hooks.append(hook)
            get_global_hook_list(InterceptionPoint.PRE_MODEL_CALL).append(self._before_model)

    def unregister(self) -> None:
        """Guard no longer; to be called when no crew is running."""
        with _registering:
            for point in _POINTS:
                for hook in (self._first, self._before, self._after):
                    unregister(point, hook)
            unregister(InterceptionPoint.PRE_MODEL_CALL, self._before_model)

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.unregister()
        if kind is None and self._setup_errors:
            # No model was called after it: the tool's result was the answer.
            _key, (_text, error) = self._setup_errors.popitem()
            raise error

    def _first(self, context: ToolCallHookContext) -> None:
        setattr(context, _MADE, copy.copy(context))

    def _before(self, context: ToolCallHookContext) -> bool | None:
        # Whatever is raised here is swallowed, and the tool runs; so is a coroutine, which nobody awaits.
        made: ToolCallHookContext | None = getattr(context, _MADE, None)
        outer = passing.get()
        try:
            passing.set(self._let_through(made, outer))
        except Exception as error:  # noqa: BLE001 - as above: nothing but False keeps the tool from running
            passing.set(Refused((made or context).tool_input, outer, error))
            self._note(made or context, error)
            return False
        return None

    def _before_model(self, context: LLMCallHookContext) -> None:
        """End the run of an agent whose call was not carried out because of the settings or the API key.

        Raises:
            SetupAborted: The one error of a hook that the framework does not swallow.
        """
        if (noted := self._setup_errors.pop(id(context.agent), None)) is not None:
            raise SetupAborted(str(noted[1]), "toolgate") from noted[1]

    def _note(self, context: ToolCallHookContext, error: Exception) -> None:
        if (found := setup_error_in(error)) is not None:
            self._bridge.report(found)
            self._setup_errors[id(context.agent)] = context.agent, found

    def _let_through(self, context: ToolCallHookContext | None, outer: Call | None) -> Passing:
        """Ask about a call.

        Raises:
            Exception: It must not run.
        """
        if context is None:
            raise ConfigurationError(
                "the guard's first hook was taken away; unregister the guard, and register it again"
            )
        call = _named(context)
        begun = self._bridge.begin(call)
        try:
            sent = call.to_send(begun.arguments)
            if sent != context.tool_input:
                context.tool_input.clear()
                context.tool_input.update(sent)
            return Passing(begun, context.tool, context.tool_input, outer)
        except Exception as error:
            begun.not_run(error)
            raise

    def _after(self, context: ToolCallHookContext) -> str | None:
        made: ToolCallHookContext = getattr(context, _MADE, context)
        call = passing.get()
        while call is not None and call.arguments is not made.tool_input:
            call = call.outer
        if call is None:
            return None
        passing.set(call.outer)
        if isinstance(call, Passing):
            call.end()
        # What else a tool raises, the framework has told the model in its own words.
        if call.refusal is None:
            return None
        self._note(made, call.refusal)
        return self._told(context.tool_name, call.refusal)

    def _told(self, tool: str, refusal: Exception) -> str:
        """What the model reads in place of the framework's words."""
        if not isinstance(refusal, GuardError):
            logger.warning("a call of the tool %r was refused: the guard failed with %r", tool, type(refusal))
            return f"Not done: the guard failed with {type(refusal).__name__}. Tell the operator."
        text = refusal_text(refusal)
        if isinstance(refusal, ApprovalPending | GatewayUnavailable):
            # Five equal answers end the run, and to ask again about these is no mistake.
            return f"{text} This is answer {next(self._answers)}."
        return text


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
    received = receive_or_keep(context.tool_input, schema_of(context.tool))
    return ToolCall(
        context.tool_name,
        received.values,
        received=received,
        run_id=flow,
        agent=role.strip() if isinstance(role, str) else None,
        function=function_of(context.tool),
    )


_POINTS: Final = (InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.POST_TOOL_CALL)
#: by which a hook's context bears a copy of itself as the framework has made it
_MADE: Final = "_toolgate_made"
_registering = threading.Lock()
