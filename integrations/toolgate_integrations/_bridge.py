"""The class `Bridge`, which checks a framework's tool calls.

Each operation is written once, as a generator. The functions of `_drivers` run it synchronously or asynchronously.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard, TypeVar

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
from toolgate._callables import hides_or_derives
from toolgate._telemetry import report_setup_error
from toolgate_integrations._arguments import ArgumentSchema, ReceivedCalls, receive_or_keep
from toolgate_integrations._drivers import Begun, HeldCalls, Request, Steps, adrive, drive, leave
from toolgate_integrations._naming import ToolActions, ToolCall, ToolNames, normalize_id
from toolgate_integrations._options import text_or_none, valid_on_hold, valid_options
from toolgate_integrations.refusals import SETUP_ERRORS, refusal_text

__all__ = ["Bridge"]

T = TypeVar("T")
Pauses: TypeAlias = tuple[type[BaseException], ...]

logger = logging.getLogger("toolgate")

# Limit of the set of logged messages: messages may contain details of single responses, so the set could grow forever.
_MAX_REPORTED: Final = 100


class Bridge:
    """Runs a framework's tool calls as guarded actions.

    Frameworks copy agents and tools, so `copy.deepcopy` of a bridge returns the same bridge.

    Args:
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function, instead of the default actions.
        agents: Agent ids by the names of the framework's agents; other agents act as the guard's own agent.
        agent: Name of the agent that makes the calls, if the framework has no agent names.
        on_hold: Reaction to a call that requires an approval. `pause`: the framework pauses the run. `wait`: wait for
            the approver. `raise`: end the run with `ApprovalPending`. `notify_model`: the model reads that the call
            is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.
        can_pause: Whether the framework can pause a run.

    Attributes:
        on_hold: The reaction, by its current name.
        received: Validated arguments of recent calls.
        fatal: Exceptions that end the run instead of being shown to the model.

    Raises:
        ConfigurationError: An argument is wrong; the message names it, its value and the fix.
    """

    def __init__(
        self,
        guard: Guard | None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
        on_hold: str = "notify_model",
        hold_timeout: float | None = None,
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
        self._names = ToolNames(tool_actions)
        self._agents = dict(agents or {})
        self._hold_timeout = hold_timeout
        self._held = HeldCalls()
        self._reported: set[str] = set()

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

    def action_of(self, call: ToolCall) -> str:
        """Return the action of a call: that of its guarded function, that in `tool_actions`, or the default.

        Raises:
            ConfigurationError: Two tools have the same default action, the server's name is not usable, or the function
                wraps a guarded function that hides or derives arguments.
        """
        if not is_guarded(call.function) and hides_or_derives(call.function):
            # A check of the wrapper would send arguments that @guarded hides, and lack the amount that it derives.
            raise ConfigurationError(
                f"the tool {call.name!r} wraps a guarded function that hides or derives arguments, and a wrapper is asked "
                "about by itself; put @guarded around the wrapper, or give the tool the guarded function"
            )
        return self._names.action_of(call)

    def verify_tools(self, tools: Iterable[str], *, is_complete: bool = True) -> None:
        """Raise `ConfigurationError` if a key of `tool_actions` is a misspelt tool of the agent.

        With `is_complete`, `tools` contains all tools of the agent, and a key that names none of them is a warning.
        """
        self._names.verify(tools, is_complete=is_complete)

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

    def acting(
        self, call: ToolCall, pauses: Pauses = (), *, is_named: bool = False
    ) -> AbstractContextManager[None]:
        """Set the agent and run of a call for guarded functions inside the block; with `is_named` also the call's id."""
        return self._identity(call, pauses, is_named=is_named)

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
        begun = self.begin(call, pauses)
        return begun.run(lambda: tool(dict(begun.arguments)), failed)

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
        begun = await self.abegin(call, pauses, waits=waits)
        return await begun.arun(lambda: tool(dict(begun.arguments)), failed)

    async def apreview(self, call: ToolCall) -> Decision:
        """Return the decision that a check would have now, without an approval request or log entry."""
        return await adrive(self.preview_steps(call))

    def find_pending(self, call: ToolCall) -> ApprovalPending | None:
        """Return the pending approval of a call, or None if the call is already decided; the tool does not run.

        If the call requires an approval and has no approval request yet, the request is created. The result is also
        None for a function that is itself guarded. If no gateway responds, raise `GatewayUnavailable`.
        """
        return drive(self.find_pending_steps(call))

    async def afind_pending(self, call: ToolCall) -> ApprovalPending | None:
        """Asynchronous form of `find_pending`."""
        return await adrive(self.find_pending_steps(call))

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True) -> None:
        """Cancel the approval request of a call that a user rejected in the framework, and log the rejection.

        An approval that was already given is cancelled too. The call does not run even if the cancellation fails, so
        errors other than setup errors are only logged. The request of a function that is itself guarded is cancelled
        if this bridge ran the function. With `final`, the call stays denied under its id, even if an earlier state of
        its run is resumed.

        Raises:
            ConfigurationError: A setting is missing or wrong, or the gateway rejects the API key.
        """
        drive(self.reject_steps(call, why, approval_id, final=final))

    async def areject(
        self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True
    ) -> None:
        """Asynchronous form of `reject`."""
        await adrive(self.reject_steps(call, why, approval_id, final=final))

    def report(self, error: ConfigurationError | GatewayProtocolError) -> None:
        """Log a setup error, each message once, and pass it to the pytest plugin."""
        report_setup_error(error)
        text = str(error)
        if text not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(text)
            logger.error("tool calls are not carried out: %s", text)

    def request(self, method: str, *args: Any, **options: Any) -> Request:
        """Return a request to call a method of the guard, such as `check`, or its asynchronous form, such as `acheck`."""
        guard = self.guard
        return Request(
            partial(getattr(guard, method), *args, **options),
            partial(getattr(guard, f"a{method}"), *args, **options),
        )

    def begin_steps(self, call: ToolCall, pauses: Pauses = (), *, waits: bool = False) -> Steps[Begun]:
        """Operation of `begin`."""
        if is_guarded(call.function):

            @contextmanager
            def watched() -> Iterator[None]:
                with self._identity(call, pauses, is_named=True), self._held.watching(call):
                    yield

            return Begun(call.arguments, watched, None)
        with self._identity(call, pauses, is_named=True):
            block = self.block(call, call.arguments, waits=waits)
            yield Request(block.__enter__, block.__aenter__)
        stack = ExitStack()
        stack.push(partial(leave, block))
        wraps = guarded_action(call.function) is not None

        @contextmanager
        def inside() -> Iterator[None]:
            # The guarded function that the tool's function wraps is not checked again: this decision covers it.
            with self._identity(call, pauses), block.proof() if wraps else nullcontext():
                yield

        return Begun(block.context, inside, stack)

    def preview_steps(self, call: ToolCall) -> Steps[Decision]:
        """Operation of `apreview`."""
        with self._identity(call):
            decision: Decision = yield self.request(
                "check",
                self.action_of(call),
                call.arguments,
                call_id=normalize_id(call.call_id),
                dry_run=True,
            )
            return decision

    def find_pending_steps(self, call: ToolCall) -> Steps[ApprovalPending | None]:
        """Operation of `find_pending`."""
        if is_guarded(call.function):
            return None
        try:
            decision = yield from self.preview_steps(call)
            if not decision.held:
                return None
            if decision.approval_id is not None:
                newest: Approval = yield self.request("approval", decision.approval_id, newest=True)
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
            block = self.guard.action(
                self.action_of(call), call.arguments, on_hold=_raise_pending, edits=True
            )
            with self._identity(call, (_NotRunError,), is_named=True):
                yield Request(block.__enter__, block.__aenter__)
            not_run = _NotRunError()
            leave(block, _NotRunError, not_run, None)
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except GuardError:
            # The call is decided: the check before it runs will return the same decision.
            return None
        return None

    def reject_steps(
        self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True
    ) -> Steps[None]:
        """Operation of `reject`."""
        try:
            with self._identity(call):
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

    def _cancel(self, approval_id: str, final: bool) -> Steps[bool]:  # noqa: FBT001 - passed on as it is
        """Cancel a request, or the one that replaced it after an approver's edit; return whether it is cancelled."""
        approval: Approval = yield self.request("cancel", approval_id, rejected=final)
        if approval.status == "replaced":
            newest: Approval = yield self.request("approval", approval_id, newest=True)
            approval = yield self.request("cancel", newest.approval_id or approval_id, rejected=final)
        return approval.status == "cancelled"

    @contextmanager
    def _identity(self, call: ToolCall, pauses: Pauses = (), *, is_named: bool = False) -> Iterator[None]:
        agent_id = None if call.agent is None else self._agents.get(call.agent)
        call_id = normalize_id(call.call_id) if is_named else None
        with ExitStack() as stack:
            if agent_id is not None:
                stack.enter_context(acting_as(agent_id))
            stack.enter_context(tool_call(call_id, run_id=normalize_id(call.run_id), pauses=pauses))
            try:
                yield
            except SETUP_ERRORS as error:
                self.report(error)
                raise


class _NotRunError(Exception):
    """Ends a call that was allowed although `find_pending` only looked for its approval request."""


def _raise_pending(pending: ApprovalPending) -> NoReturn:
    raise pending
