"""The class `Bridge`, which checks, runs and logs the tool calls of an agent framework.

Each method that sends requests is implemented once, as a generator whose name ends in `_steps`. The generator yields
the requests and function calls to perform. The SDK's drivers perform them: `drive` synchronously, `adrive`
asynchronously.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias, TypeGuard, TypeVar

from toolgate import (
    Approval,
    ApprovalPending,
    ConfigurationError,
    Decision,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    GuardError,
    acting_as,
    default_guard,
    guarded_action,
    is_guarded,
    tool_call,
)
from toolgate._action import Action
from toolgate._drivers import adrive, drive
from toolgate._effects import Invoke, Steps
from toolgate_integrations._arguments import ArgumentSchema, ReceivedCalls, receive_or_keep
from toolgate_integrations._calls import (
    Begun,
    HeldCalls,
    NotRunError,
    PausedCall,
    invoke,
    leave,
    raise_pending,
)
from toolgate_integrations._naming import ToolActions, ToolCall, ToolNames, normalize_id
from toolgate_integrations._options import text_or_none, valid_on_hold, valid_options
from toolgate_integrations.refusals import SETUP_ERRORS, ReportedErrors, refusal_text

__all__ = ["Bridge"]

T = TypeVar("T")
Pauses: TypeAlias = tuple[type[BaseException], ...]

logger = logging.getLogger("toolgate")


class Bridge:
    """Checks a framework's tool calls with the gateway, runs the allowed ones, and logs their outcomes.

    Frameworks copy agents and tools, so `copy.deepcopy` of a bridge returns the bridge itself.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. Tools without an entry have their
            default action.
        agents: Toolgate agent ids by the names of the framework's agents. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the framework pauses the run. `wait`: wait for
            the approver. `raise`: end the run with `ApprovalPending`. `notify_model`: the model reads that the call is
            pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.
        agent: Name of the agent that makes the calls, if the framework has no agent names.
        can_pause: True if the framework can pause a run, so that `on_hold` may be `pause`.

    Attributes:
        on_hold: The validated value of `on_hold`; a deprecated value is replaced by its current name.
        received: Cache of the validated arguments of recent calls.
        fatal: Exception classes that end the run instead of being shown to the model.
        action_of: Function that returns the action of a `ToolCall`; see `ToolNames.action_of`.
        verify_tools: Function that compares the keys of `tool_actions` with tool names; see `ToolNames.verify`.

    Raises:
        ConfigurationError: An argument is invalid; the message contains its name, its value and the fix.
    """

    def __init__(
        self,
        guard: Guard | None,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: str = "notify_model",
        hold_timeout: float | None = None,
        *,
        agent: str | None = None,
        can_pause: bool = False,
    ) -> None:
        valid_options(guard, agents, hold_timeout)
        self.agent = text_or_none(agent, "agent")
        self.on_hold = valid_on_hold(on_hold, can_pause=can_pause)
        self.received = ReceivedCalls()
        self.fatal: tuple[type[GuardError], ...] = SETUP_ERRORS
        if self.on_hold == "raise":
            self.fatal = (*SETUP_ERRORS, ApprovalPending)
        self._guard = guard
        names = ToolNames(tool_actions)
        self.action_of, self.verify_tools = names.action_of, names.verify
        self._agents = dict(agents or {})
        self._hold_timeout = hold_timeout
        self._held = HeldCalls()
        self._reported = ReportedErrors()

    def __deepcopy__(self, memo: object) -> Bridge:
        return self

    @property
    def guard(self) -> Guard:
        """The guard that sends the checks: the one that was passed, or else the default guard."""
        return default_guard() if self._guard is None else self._guard

    @property
    def names_calls(self) -> bool:
        """True if checks contain the framework's call id.

        An approval of a call with an id covers only the call with that id. The id is therefore omitted if the model
        has to repeat a pending call, because the repeated call has a new id.
        """
        return self.on_hold == "pause" or (self.on_hold == "wait" and self._hold_timeout is None)

    def sends_id(self, function: object, *, can_pause: bool) -> bool:
        """Return whether the check of a call to this tool contains the framework's call id.

        Args:
            function: The tool's function. If it is decorated with `@guarded`, it waits for the approver by its own
                options, possibly with a time limit. The id is then omitted unless `on_hold` is `pause`.
            can_pause: True if the run that makes the call can pause.
        """
        return can_pause if self.on_hold == "pause" else self.names_calls and not is_guarded(function)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        call_id: str | None,
        *,
        schema: ArgumentSchema | None = None,
        **more: Any,
    ) -> ToolCall:
        """Return a `ToolCall` with the arguments that the gateway checks.

        Args:
            name: The tool's name.
            arguments: The model's arguments.
            call_id: The framework's id of the call; it is omitted from the result unless `names_calls` is true.
            schema: Schema with which the framework validates the arguments; None if the tool receives them unchanged.
            **more: Further attributes of `ToolCall`.
        """
        more.setdefault("agent", self.agent)
        if schema is not None:
            more["received"] = received = receive_or_keep(arguments, schema)
            arguments = received.values
        return ToolCall(name, arguments, call_id if self.names_calls else None, **more)

    def pauses_for(self, error: GuardError | None) -> TypeGuard[ApprovalPending]:
        """Return whether this error makes the framework pause the run: a pending approval while `on_hold` is `pause`."""
        return self.on_hold == "pause" and isinstance(error, ApprovalPending)

    def refusal(self, error: GuardError, *, paused: bool = False) -> str:
        """Return the text that the model reads instead of a tool's result, or raise `error` if it must end the run."""
        if isinstance(error, self.fatal):
            raise error
        return refusal_text(error, paused=paused)

    @contextmanager
    def acting(self, call: ToolCall, pauses: Pauses = (), *, is_named: bool = False) -> Iterator[None]:
        """Set the agent id and run id of a call for guarded functions that run inside the `with` block.

        Args:
            call: The call.
            pauses: Exceptions with which a tool requests to be called again later; they are not logged as failures.
            is_named: True to set the call id too.
        """
        agent_id = None if call.agent is None else self._agents.get(call.agent)
        call_id = normalize_id(call.call_id) if is_named else None
        run = tool_call(call_id, run_id=normalize_id(call.run_id), pauses=pauses)
        with nullcontext() if agent_id is None else acting_as(agent_id), run:
            try:
                yield
            except SETUP_ERRORS as error:
                self.report(error)
                raise

    def block(self, call: ToolCall, context: Mapping[str, Any], *, waits: bool = False) -> Action:
        """Return an action block: a context manager that checks a call on entry and logs its outcome on exit.

        Args:
            call: The call.
            context: Values that the check contains.
            waits: True to wait for the approver even if `on_hold` has another value than `wait`.
        """
        on_hold: Any = {"on_hold": "raise"}
        if waits or self.on_hold == "wait":
            on_hold = {"on_hold": "wait", "hold_timeout": self._hold_timeout}
        return self.guard.action(self.action_of(call), context, edits=True, **on_hold)

    def begin(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Begun:
        """Check a call, and return when it may run.

        A function that is decorated with `@guarded` is not checked here, because it checks the call when it runs.

        Raises:
            GuardError: The tool must not run.
        """
        return drive(self.begin_steps(call, pauses, waits=waits))

    async def abegin(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Begun:
        """Asynchronous form of `begin`."""
        return await adrive(self.begin_steps(call, pauses, waits=waits))

    def run(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], T],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: Pauses = (),
    ) -> T:
        """Check a call, run the tool with the approved arguments, and log the outcome.

        Args:
            call: The call.
            tool: Function that runs the tool with the approved arguments.
            failed: Function that returns the error message in a result, or None if the result is not an error; for
                frameworks that return errors instead of raising them.
            pauses: Exceptions with which a tool requests to be called again later; they are not logged as failures.

        Raises:
            GuardError: The tool did not run.
        """
        result: T = drive(self.run_steps(call, partial(invoke, tool), failed, pauses))
        return result

    async def arun(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], Awaitable[T]],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: Pauses = (),
        *,
        waits: bool = False,
    ) -> T:
        """Asynchronous form of `run`; with `waits`, wait for the approver even if `on_hold` is not `wait`."""
        steps = self.run_steps(call, partial(invoke, tool), failed, pauses, waits=waits)
        result: T = await adrive(steps)
        return result

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True) -> str:
        """Cancel the approval request of a call that a user rejected in the framework, and log the rejection.

        The request is cancelled even if it was already approved. A failed cancellation is only logged, because the
        call does not run in any case. If the tool's function is decorated with `@guarded`, the approval request is
        cancelled only if this bridge ran the function.

        Args:
            call: The rejected call.
            why: The user's reason.
            approval_id: Id of the approval request; None to find it by the call.
            final: True if the call stays denied under its id, even if an earlier state of its run is resumed.

        Returns:
            Text that the model reads instead of the tool's result.

        Raises:
            ConfigurationError: A setting is missing or wrong, or the gateway rejects the API key.
        """
        return drive(self.reject_steps(call, why, approval_id, final=final))

    async def areject(
        self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True
    ) -> str:
        """Asynchronous form of `reject`."""
        return await adrive(self.reject_steps(call, why, approval_id, final=final))

    def report(self, error: ConfigurationError | GatewayProtocolError) -> None:
        """Log a setup error unless its message was logged before, and pass it to Toolgate's pytest plugin if active."""
        self._reported.add(error)

    def begin_steps(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Steps[Begun]:
        """Generator behind `begin` and `abegin`: checks the call, and returns the call that may run."""
        wraps, block = False, None
        if not is_guarded(call.function):
            wraps = guarded_action(call.function) is not None
            with self.acting(call, pauses, is_named=True):
                block = self.block(call, call.arguments, waits=waits)
                yield Invoke(block.__enter__, block.__aenter__)

        @contextmanager
        def inside() -> Iterator[None]:
            with self.acting(call, pauses, is_named=block is None):
                # If the tool's function wraps a guarded function, the wrapped function is not checked a second time:
                # the decision about the outer call covers it.
                proof = block.proof() if block is not None and wraps else nullcontext()
                with self._held.watching(call) if block is None else proof:
                    yield

        if block is None:
            return Begun(call.arguments, inside, None)
        stack = ExitStack()
        stack.push(partial(leave, block))
        return Begun(block.context, inside, stack)

    def run_steps(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], Steps[T]],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: Pauses = (),
        *,
        waits: bool = False,
    ) -> Steps[T]:
        """Generator behind `run` and `arun`: checks the call, runs the tool, and returns the tool's result.

        `tool` returns a generator that runs the tool.
        """
        begun = yield from self.begin_steps(call, pauses, waits=waits)
        return (yield from begun.steps(tool(dict(begun.arguments)), failed))

    def preview_steps(self, call: ToolCall) -> Steps[Decision]:
        """Generator that returns the gateway's decision about a call, without an approval request or a log entry."""
        with self.acting(call):
            options = {"call_id": normalize_id(call.call_id), "dry_run": True}
            decision: Decision = yield self._request("check", self.action_of(call), call.arguments, **options)
            return decision

    def find_pending_steps(self, call: ToolCall) -> Steps[ApprovalPending | None]:
        """Generator that returns the pending approval of a call, or None if the call is allowed or denied already.

        If the call requires an approval and has no approval request yet, the request is created. For a function that
        is decorated with `@guarded` the result is None, because the function checks the call when it runs.

        Raises:
            GatewayUnavailable: The gateway does not respond.
        """
        if is_guarded(call.function):
            return None
        try:
            decision = yield from self.preview_steps(call)
            if not decision.held:
                return None
            if decision.approval_id is not None:
                newest: Approval = yield self._request("approval", decision.approval_id, newest=True)
                if newest.status != "pending":
                    return None
                return ApprovalPending(
                    action=self.action_of(call),
                    agent_id=newest.agent_id or "",
                    approval_id=decision.approval_id,
                    reason=decision.reason,
                )
            # `on_hold` is a function that raises, and not "raise": with "raise", the SDK checks a call with an id a
            # second time, and the second check would consume an approval that was given in the meantime.
            block = self.guard.action(self.action_of(call), call.arguments, on_hold=raise_pending, edits=True)
            with self.acting(call, (NotRunError,), is_named=True):
                yield Invoke(block.__enter__, block.__aenter__)
            leave(block, NotRunError, NotRunError(), None)
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except GuardError:
            # The gateway has denied the call. The check before the call runs returns the same decision, and the model
            # reads it then.
            return None
        return None

    def settle_steps(self, calls: Iterable[PausedCall]) -> Steps[list[ApprovalPending | None]]:
        """Generator that processes the user's rejections of paused calls, and finds the other calls that are pending.

        Returns:
            The pending approval of each call. It is None for a call that is rejected, allowed or denied. It is also
            None if the gateway does not respond; the check before the call runs then fails, and the model reads the
            error.
        """
        found: list[ApprovalPending | None] = []
        for each in calls:
            pending = None
            if each.rejected is not None:
                yield from self.reject_steps(each.call, each.rejected, each.approval_id)
            else:
                with suppress(GatewayUnavailable):
                    pending = yield from self.find_pending_steps(each.call)
            found.append(pending)
        return found

    def reject_steps(
        self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True
    ) -> Steps[str]:
        """Generator behind `reject` and `areject`: cancels the approval request, and returns the text for the model."""
        try:
            with self.acting(call):
                action, call_id = self.action_of(call), normalize_id(call.call_id)
                arguments = None if is_guarded(call.function) else call.arguments
                approval_id = approval_id or self._held.forget(call)
                try:
                    is_cancelled = approval_id is not None and (yield from self._cancel(approval_id, final))
                    # The known approval request may have expired and been replaced by a new one, so the current
                    # request is looked up.
                    if not is_cancelled and arguments is not None:
                        decision = yield from self.preview_steps(call)
                        if decision.approval_id is not None:
                            yield from self._cancel(decision.approval_id, final)
                except (GatewayUnavailable, GatewayProtocolError, ConfigurationError) as error:
                    is_known = isinstance(error.__cause__, GatewayProtocolError)
                    if isinstance(error, ConfigurationError) and not is_known:
                        raise
                    logger.warning(
                        "the approval request of a rejected tool call (action %r) could not be cancelled: %s",
                        action,
                        error,
                    )
                # The log entry is written without the approval id, so that rejecting the call again does not create a
                # second entry.
                self.guard.record(action, "denied", arguments, call_id=call_id, reason=why)
        except SETUP_ERRORS:
            raise
        except GuardError as error:
            logger.warning(
                "the rejection of a tool call (action %r) could not be logged: %s", call.name, error
            )
        return f"Not done: the call was rejected. {why}".strip()

    def _cancel(self, approval_id: str, final: bool) -> Steps[bool]:  # noqa: FBT001 - only passed to `cancel`
        """Cancel an approval request, or the one that replaced it after an approver's edit; return True on success."""
        approval: Approval = yield self._request("cancel", approval_id, rejected=final)
        if approval.status == "replaced":
            newest: Approval = yield self._request("approval", approval_id, newest=True)
            approval = yield self._request("cancel", newest.approval_id or approval_id, rejected=final)
        return approval.status == "cancelled"

    def _request(self, method: str, *args: Any, **options: Any) -> Invoke:
        """Return the effect that calls a method of the guard, such as `check`, or its asynchronous form `acheck`."""
        guard = self.guard
        return Invoke(
            partial(getattr(guard, method), *args, **options),
            partial(getattr(guard, f"a{method}"), *args, **options),
        )
