"""The class `Bridge`, which checks a framework's tool calls.

Each operation is written once, as a generator (`…_steps`). The drivers of the SDK run it synchronously or asynchronously.
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
    """Runs a framework's tool calls as guarded actions.

    Frameworks copy agents and tools, so `copy.deepcopy` of a bridge returns the same bridge.

    Args:
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function, instead of the default actions.
        agents: Agent ids by the names of the framework's agents; other agents act as the guard's own agent.
        on_hold: Reaction to a call that requires an approval. `pause`: the framework pauses the run. `wait`: wait for
            the approver. `raise`: end the run with `ApprovalPending`. `notify_model`: the model reads that the call
            is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.
        agent: Name of the agent that makes the calls, if the framework has no agent names.
        can_pause: Whether the framework can pause a run.

    Attributes:
        on_hold: The reaction, by its current name.
        received: Validated arguments of recent calls.
        fatal: Exceptions that end the run instead of being shown to the model.
        action_of: Function that returns the action of a `ToolCall`; see `ToolNames.action_of`.
        verify_tools: Function that compares the keys of `tool_actions` with tool names; see `ToolNames.verify`.

    Raises:
        ConfigurationError: An argument is wrong; the message names it, its value and the fix.
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
        """The guard; the default guard is created when it is first needed."""
        return default_guard() if self._guard is None else self._guard

    @property
    def names_calls(self) -> bool:
        """True if checks contain the framework's call ids.

        An approval of a call with an id covers only that id. Ids are therefore omitted if the model has to repeat a
        pending call, which it does under a new id.
        """
        return self.on_hold == "pause" or (self.on_hold == "wait" and self._hold_timeout is None)

    def sends_id(self, function: object, *, can_pause: bool) -> bool:
        """Return whether the check of a call contains the call id, in a run that can pause, or that cannot.

        A function that is itself guarded waits by its own options, so with `wait` the id is omitted.
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
        """Return a tool call in the form in which the gateway checks it.

        The call id is omitted unless `names_calls` is true. `schema` is the schema by which the framework validates
        the arguments, and `more` contains further attributes of `ToolCall`.
        """
        more.setdefault("agent", self.agent)
        if schema is not None:
            more["received"] = received = receive_or_keep(arguments, schema)
            arguments = received.values
        return ToolCall(name, arguments, call_id if self.names_calls else None, **more)

    def pauses_for(self, error: GuardError | None) -> TypeGuard[ApprovalPending]:
        """Return whether the run pauses because of this error."""
        return self.on_hold == "pause" and isinstance(error, ApprovalPending)

    def refusal(self, error: GuardError, *, paused: bool = False) -> str:
        """Return the text that the model reads instead of a result, or raise an error that must end the run."""
        if isinstance(error, self.fatal):
            raise error
        return refusal_text(error, paused=paused)

    @contextmanager
    def acting(self, call: ToolCall, pauses: Pauses = (), *, is_named: bool = False) -> Iterator[None]:
        """Set the agent and run of a call for guarded functions inside the block; with `is_named` also the call's id."""
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
        """Return an action block that checks a call with the values in `context`.

        With `waits`, the block waits for the approver whatever `on_hold` is.
        """
        on_hold: Any = {"on_hold": "raise"}
        if waits or self.on_hold == "wait":
            on_hold = {"on_hold": "wait", "hold_timeout": self._hold_timeout}
        return self.guard.action(self.action_of(call), context, edits=True, **on_hold)

    def begin(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Begun:
        """Check a call, and return once it may run.

        A function that is itself guarded is not checked here: it checks the call when it runs.

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

        `failed` returns the error message in a result, if the framework returns errors instead of raising them.
        `pauses` contains exceptions that the tool raises to be called again later.

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
        """Asynchronous form of `run`; with `waits` it waits for the approver whatever `on_hold` is."""
        steps = self.run_steps(call, partial(invoke, tool), failed, pauses, waits=waits)
        result: T = await adrive(steps)
        return result

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True) -> str:
        """Cancel the approval request of a call that a user rejected in the framework, and log the rejection.

        An approval that was already given is cancelled too. The call does not run even if the cancellation fails, so
        errors other than setup errors are only logged. The request of a function that is itself guarded is cancelled
        if this bridge ran the function. With `final`, the call stays denied under its id, even if an earlier state of
        its run is resumed.

        Returns:
            Text that the model reads instead of a result.

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
        """Log a setup error, each message once, and pass it to the pytest plugin."""
        self._reported.add(error)

    def begin_steps(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Steps[Begun]:
        """Operation of `begin`."""
        wraps, block = False, None
        if not is_guarded(call.function):
            wraps = guarded_action(call.function) is not None
            with self.acting(call, pauses, is_named=True):
                block = self.block(call, call.arguments, waits=waits)
                yield Invoke(block.__enter__, block.__aenter__)

        @contextmanager
        def inside() -> Iterator[None]:
            with self.acting(call, pauses, is_named=block is None):
                # The guarded function that the tool's function wraps is not checked again: this decision covers it.
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
        """Operation of `run`; `tool` returns the operation that runs the tool."""
        begun = yield from self.begin_steps(call, pauses, waits=waits)
        return (yield from begun.steps(tool(dict(begun.arguments)), failed))

    def preview_steps(self, call: ToolCall) -> Steps[Decision]:
        """Operation that returns the decision of a check at this time, without an approval request or log entry."""
        with self.acting(call):
            options = {"call_id": normalize_id(call.call_id), "dry_run": True}
            decision: Decision = yield self._request("check", self.action_of(call), call.arguments, **options)
            return decision

    def find_pending_steps(self, call: ToolCall) -> Steps[ApprovalPending | None]:
        """Operation that returns the pending approval of a call, or None if the call is already decided.

        If the call requires an approval and has no approval request yet, the request is created. The result is also
        None for a function that is itself guarded. If no gateway responds, raise `GatewayUnavailable`.
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
            # A function is passed instead of on_hold="raise": with "raise", the SDK checks a call with an id a second
            # time, which would consume an approval that was given in the meantime.
            block = self.guard.action(self.action_of(call), call.arguments, on_hold=raise_pending, edits=True)
            with self.acting(call, (NotRunError,), is_named=True):
                yield Invoke(block.__enter__, block.__aenter__)
            leave(block, NotRunError, NotRunError(), None)
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except GuardError:
            # The call is decided: the check before it runs will return the same decision.
            return None
        return None

    def settle_steps(self, calls: Iterable[PausedCall]) -> Steps[list[ApprovalPending | None]]:
        """Operation that rejects the calls of a turn that the user rejected, and finds those that are still pending.

        The result contains the pending approval of each call. It is None for a decided or rejected call, and if no
        gateway responds: the check before the call runs then fails too, and the model reads its error.
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
        """Operation of `reject`."""
        try:
            with self.acting(call):
                action, call_id = self.action_of(call), normalize_id(call.call_id)
                arguments = None if is_guarded(call.function) else call.arguments
                approval_id = approval_id or self._held.forget(call)
                try:
                    is_cancelled = approval_id is not None and (yield from self._cancel(approval_id, final))
                    # The known request may have expired, and another one may have replaced it.
                    if not is_cancelled and arguments is not None:
                        decision = yield from self.preview_steps(call)
                        if decision.approval_id is not None:
                            yield from self._cancel(decision.approval_id, final)
                except (GatewayUnavailable, GatewayProtocolError, ConfigurationError) as error:
                    is_known = isinstance(error.__cause__, GatewayProtocolError)
                    if isinstance(error, ConfigurationError) and not is_known:
                        raise
                    logger.warning(
                        "the request of a rejected call of %r was not cancelled: %s", action, error
                    )
                # The log entry has no approval id, so that a repeated rejection does not create a second entry.
                self.guard.record(action, "denied", arguments, call_id=call_id, reason=why)
        except SETUP_ERRORS:
            raise
        except GuardError as error:
            logger.warning("the rejection of a call of %r was not recorded: %s", call.name, error)
        return f"Not done: it was rejected. {why}".strip()

    def _cancel(self, approval_id: str, final: bool) -> Steps[bool]:  # noqa: FBT001 - passed on as it is
        """Cancel a request, or the one that replaced it after an approver's edit; return whether it is cancelled."""
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
