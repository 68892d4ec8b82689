"""Microsoft Agent Framework: `Agent(…, middleware=[*GuardMiddleware()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError, is_guarded
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import shown
from toolgate_integrations.refusals import refusal_text

require("agent_framework")

from agent_framework import (
    AgentMiddleware,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    MiddlewareFailure,
)

from toolgate_integrations._agent_framework_calls import (
    PAUSES,
    AskedBehindError,
    Behind,
    arguments_of,
    kept,
    request_id,
)
from toolgate_integrations._agent_framework_runs import (
    RUN,
    Run,
    RunMiddleware,
    forget,
    remember,
    served_by,
)

__all__ = ["GuardMiddleware", "GuardSetupError", "MisplacedGuardError"]

OnHold = Literal["approval", "wait", "tell"]


class MisplacedGuardError(ConfigurationError, MiddlewareFailure):
    """The guard is not told of runs, and has to be: nothing ran, and the run ends."""

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardSetupError(ConfigurationError, MiddlewareFailure):
    """A call was not carried out because of the settings or the API key: the run ends, and `__cause__` says why.

    Of the exceptions of a middleware, the framework makes text for the model, but not of this kind.
    """

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardMiddleware(FunctionMiddleware):
    """Guards every tool call of an agent; given to it with a star, as it is two middlewares.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`, and `<server>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `Agent(name=…)`.
        on_hold: What a held call does: `approval` pauses the run with the framework's own approval request, `wait`
            waits for the person within the run, `tell` lets the model read that it waits.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "approval",
    ) -> None:
        valid_on_hold(on_hold, "approval")
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        self._on_hold = on_hold
        self._needs_runs = on_hold == "approval" or bool(agents)
        self._runs = RunMiddleware(self._bridge)

    def __iter__(self) -> Iterator[AgentMiddleware | FunctionMiddleware]:
        """Yield what is told of runs, and what guards their calls: an agent is given both."""
        yield self._runs
        yield self

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        """Ask, let the tool run, record; what is refused is told to the model.

        Raises:
            MisplacedGuardError: Runs are not told of, and would have to be.
        """
        run = self._told_run(context)
        try:
            await self._asked(context, run, call_next)
        finally:
            if run is not None:
                # Middleware in front may make the call once more.
                context.kwargs[RUN] = run

    async def _asked(
        self, context: FunctionInvocationContext, run: Run | None, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        arguments = arguments_of(context)
        args = kept(arguments) if run is not None and run.pauses and self._on_hold == "approval" else None
        # What the framework leaves out has the default of the function.
        own = getattr(context.function, "_context_parameter_name", None)
        told = with_signature_defaults(arguments, context.function.func, () if own is None else (own,))
        call = self._call(context, run, told, pauses=args is not None)
        behind = Behind(context, run, told, call_next)
        # Answered within its own run, by a rule: pausing again would go on for ever.
        again = run is not None and request_id(context) in run.paused
        try:
            await self._bridge.arun(call, behind, pauses=PAUSES, waits=again)
        except AskedBehindError:
            pass
        except MiddlewareFailure:
            raise
        except SETUP_ERRORS as error:
            raise GuardSetupError(str(error)) from error
        except ApprovalPending as pending:
            if run is not None and args is not None and not again:
                run.paused.add(request_id(context))
                context.result = self._request(context, call, args, pending)
                return
            context.result = refusal_text(pending)
        except GuardError as error:
            context.result = refusal_text(error)
        forget(context.session, request_id(context))
        if behind.ended is not None:
            raise behind.ended

    def _told_run(self, context: FunctionInvocationContext) -> Run | None:
        # Out of the runtime arguments: an MCP server may ask for any of them by its name.
        run = context.kwargs.pop(RUN, None)
        if run is None and self._needs_runs:
            raise MisplacedGuardError(
                f"the guard of the tool {context.function.name!r} is not told of runs, or is given twice; use "
                "middleware=[…, *GuardMiddleware()] once, or on_hold='wait' or 'tell' and no agents without an agent"
            )
        return run if isinstance(run, Run) else None

    def _call(
        self,
        context: FunctionInvocationContext,
        run: Run | None,
        arguments: Mapping[str, Any],
        *,
        pauses: bool,
    ) -> ToolCall:
        server, own_name = served_by(context.function, run)
        function = context.function.func
        # A model that was told asks again by another id: bound to this one, its approval would be of no use to it.
        waits = self._on_hold == "wait" and not is_guarded(function)
        session_id = None if run is None else run.session_id
        return ToolCall(
            context.function.name,
            arguments,
            call_id=request_id(context) if pauses or (waits and session_id) else None,
            run_id=session_id,
            agent=None if run is None else run.name,
            function=function,
            server=server,
            own_name=own_name,
        )

    def _request(
        self,
        context: FunctionInvocationContext,
        call: ToolCall,
        args: Mapping[str, Any],
        pending: ApprovalPending,
    ) -> Content:
        """The framework's own request, by which the run pauses and this very call is made again."""
        name = request_id(context)
        if context.session is not None:
            remember(context.session, name, call, pending.approval_id, args)
        called = Content.from_function_call(
            call_id=context.metadata["call_id"], name=call.name, arguments=args, id=name
        )
        return Content.from_function_approval_request(
            id=name, function_call=called, additional_properties=shown(pending)
        )
