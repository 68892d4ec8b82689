"""The two filters of a guarded kernel: what a call is named stands in the one, what comes of it in the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Literal

from semantic_kernel import Kernel
from semantic_kernel.filters import AutoFunctionInvocationContext, FunctionInvocationContext
from semantic_kernel.functions import FunctionResult

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import json_copy
from toolgate_integrations._base import ToolActions, ToolCall
from toolgate_integrations._gate import Gate
from toolgate_integrations._semantic_kernel_functions import (
    AGENT,
    RUN_ID,
    function_of,
    innermost,
    ran_through,
    said,
    told_of,
)
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import shown
from toolgate_integrations.refusals import refusal_text

__all__ = ["REJECTING", "WAITING", "Filters", "OnHold", "Rejection", "guard_of"]

OnHold = Literal["terminate", "wait", "tell"]
CallNext = Callable[[Any], Awaitable[None]]

#: the member of a result's metadata that says for which approval its call waits
WAITING: Final = "toolgate"


@dataclass(frozen=True)
class Rejection:
    """A no to the call that is carried out again.

    Attributes:
        why: What was said.
        approval_id: The request of the call.
    """

    why: str
    approval_id: str


REJECTING: ContextVar[Rejection | None] = ContextVar("toolgate_semantic_kernel_rejecting", default=None)


@dataclass
class _Called:
    """A call of the model's that is under way.

    Attributes:
        context: The framework's.
        pauses: Whether the run ends for it.
        setup_error: Why no decision could be requested; ends the run.
    """

    context: AutoFunctionInvocationContext
    pauses: bool = False
    setup_error: GuardError | None = None

    def is_of(self, context: FunctionInvocationContext) -> bool:
        """Whether a function is carried out for this very call, and not by something beside it."""
        return self.context.function is context.function and self.context.arguments is context.arguments


_called: ContextVar[_Called | None] = ContextVar("toolgate_semantic_kernel_called", default=None)


class Filters:
    """What every call of a function goes through.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of functions by their names.
        agents: Agent ids by the names of the framework's agents.
        on_hold: What a held call does.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None,
        tool_actions: ToolActions | None,
        agents: Mapping[str, str] | None,
        on_hold: OnHold,
    ) -> None:
        self._gate = Gate(
            guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold, pauses="terminate"
        )

    def __deepcopy__(self, _: dict[int, Any]) -> Filters:
        # A kernel that was copied asks through the same guard, and a guard cannot be copied.
        return self

    async def around_call(self, context: AutoFunctionInvocationContext, next: CallNext) -> None:  # noqa: A002 - so it is called
        """Note which call it is; end the run if it is held."""
        innermost(context.kernel, self.around_function)
        called = _Called(context)
        token = _called.set(called)
        try:
            await next(context)
        finally:
            _called.reset(token)
        if called.setup_error is not None:
            # The framework has made text for the model of it; what a filter raises ends the run.
            raise called.setup_error
        if called.pauses:
            context.terminate = True

    async def around_function(self, context: FunctionInvocationContext, next: CallNext) -> None:  # noqa: A002 - so it is called
        """Ask, let the function run, record."""
        called = _called.get()
        if context.function.is_prompt:
            await next(context)
        else:
            # What a filter or the function itself calls beside is no call of the model's.
            mine = called is not None and called.is_of(context)
            await self._carry_out(context, next, called if mine else None)

    async def _carry_out(
        self, context: FunctionInvocationContext, call_next: CallNext, called: _Called | None
    ) -> None:
        # Other code may change the values while the gateway is asked; the framework converts them again.
        given = copy(context.arguments)
        given.update(json_copy(given))
        context.arguments = given
        call = self._named(context, called)

        async def run(approved: dict[str, Any]) -> None:
            # The framework makes the declared types again: of what has them already it may make something else.
            edited = {name: each for name, each in approved.items() if each is not call.arguments.get(name)}
            # Not in place: they may be the arguments of whoever called.
            context.arguments = given | edited
            await ran_through(context, call_next)

        try:
            if getattr(call_next, "__self__", None) is not context.function:
                innermost(context.kernel, self.around_function)
                raise ConfigurationError(
                    f"a filter that was added after the guard stands between it and {call.name!r}; "
                    "call guard_kernel(…) after adding filters"
                )
            if called is not None and (no := REJECTING.get()) is not None:
                await self._gate.bridge.areject(call, no.why, no.approval_id)
                _tell(context, f"Not done: it was rejected. {no.why}".strip())
                return
            await self._gate.bridge.arun(call, run, pauses=(ApprovalPending,))
        except SETUP_ERRORS as error:
            self._gate.bridge.report(error)
            if called is not None:
                called.setup_error = error
            raise
        except GuardError as error:
            if called is None:
                raise
            # A call without a name could not be found again.
            if self._gate.pauses_for(error) and call.call_id:
                called.pauses = True
                _tell(context, refusal_text(error, paused=True), {WAITING: shown(error)})
            else:
                _tell(context, refusal_text(error))

    def _named(self, context: FunctionInvocationContext, called: _Called | None) -> ToolCall:
        function, arguments = context.function, context.arguments
        content = None if called is None else called.context.function_call_content
        return self._gate.call(
            function.fully_qualified_name,
            told_of(context),
            None if content is None else content.id,
            run_id=said(arguments, RUN_ID),
            agent=said(arguments, AGENT),
            function=function_of(context),
            # Whoever adds a plugin names it, be it of this process or of a server.
            server=function.plugin_name,
            own_name=function.name,
        )


def guard_of(kernel: Kernel) -> Filters | None:
    """The guard of a kernel, if it has one."""
    for _, each in kernel.function_invocation_filters:
        owner = getattr(each, "__self__", None)
        if isinstance(owner, Filters):
            return owner
    return None


def _tell(context: FunctionInvocationContext, text: str, metadata: Mapping[str, Any] | None = None) -> None:
    context.result = FunctionResult(
        function=context.function.metadata, value=text, metadata=dict(metadata or {})
    )
