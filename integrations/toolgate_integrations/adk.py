"""Plugin for Google's Agent Development Kit: `App(…, plugins=[GuardPlugin()])`."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from toolgate import (
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    GuardError,
    is_guarded,
)
from toolgate_integrations._arguments import as_json, with_signature_defaults
from toolgate_integrations._options import OnHold, set_context
from toolgate_integrations.base import (
    SETUP_ERRORS,
    ArgumentSchema,
    Begun,
    Bridge,
    CustomSchema,
    InvalidArgumentsError,
    RawSchema,
    ToolActions,
    ToolCall,
    describe_pending,
    require,
)

require("adk")

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

__all__ = ["GuardPlugin"]

#: Name of the function call with which the framework asks its user to confirm a tool call.
CONFIRMATION: Final = "adk_request_confirmation"


class StoppedError(Exception):
    """A tool ended in order to request input from its user; the framework calls it again with the response."""


#: Exceptions after which the framework executes the call again later, so the call is not logged as failed.
PAUSES = (StoppedError, ApprovalPending)
# The outermost tool call that is running. Calls inside it do not pause: an agent that a tool runs has a temporary
# session, from which the framework could not resume the run.
_outer: ContextVar[ToolCall | None] = ContextVar("toolgate_adk_outer", default=None)


@dataclass(slots=True)
class Open:
    """A tool call that was allowed, and whose outcome the framework has not reported yet.

    Attributes:
        context: The framework's context, which is the same object in all callbacks of one call.
        call: The call.
        begun: The checked call, which logs the outcome; None if the tool's function is decorated with `@guarded`.
        around: Context managers that stay open while the call runs.
    """

    context: ToolContext
    call: ToolCall
    begun: Begun | None
    around: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True, slots=True)
class Asked:
    """A confirmation request in a session, by which the framework asks its user about a tool call.

    Attributes:
        author: Name of the agent that makes the call.
        request: The framework's function call that represents the request.
        approval_id: Id of the gateway's approval request; None if another component than this plugin requested the
            confirmation.
    """

    author: str
    request: types.FunctionCall
    approval_id: str | None


def outer() -> ToolCall | None:
    """Return the outermost tool call in which the current code runs, or None if the code runs outside of a tool."""
    return _outer.get()


def inside(call: ToolCall) -> AbstractContextManager[None]:
    """Make `outer` return `call` inside the `with` block, unless another call is already the outermost one."""
    return set_context(_outer, _outer.get() or call)


def find_confirmation_request(events: Sequence[Event], wanted: str | None) -> Asked | None:
    """Return the newest confirmation request with the id `wanted` in `events`, or None.

    The id is that of the confirmation request itself, or that of the tool call that the user must confirm.
    """
    for event in reversed(events):
        for request in event.get_function_calls():
            original = (request.args or {}).get("originalFunctionCall")
            if request.name != CONFIRMATION or not isinstance(original, Mapping) or wanted is None:
                continue
            if wanted in (request.id, original.get("id")):
                said = (request.args or {}).get("toolConfirmation")
                payload = said.get("payload") if isinstance(said, Mapping) else None
                approval_id = payload.get("approval_id") if isinstance(payload, Mapping) else None
                return Asked(event.author, request, approval_id if isinstance(approval_id, str) else None)
    return None


def find_confirmed_request_id(part: types.Part) -> str | None:
    """Return the id of the confirmation request if a part of a user's message confirms one, else None."""
    answer = part.function_response
    if answer is None or answer.name != CONFIRMATION or not isinstance(answer.response, Mapping):
        return None
    said: Any = answer.response
    if set(said) == {"response"}:
        # The framework's own client sends the confirmation as a JSON string instead of an object.
        try:
            said = json.loads(said["response"])
        except (TypeError, ValueError):
            return None
    return answer.id if isinstance(said, Mapping) and said.get("confirmed") is True else None


def has_requested_input(context: ToolContext) -> bool:
    """Return whether a tool ended only in order to request a confirmation or credentials from its user."""
    name = context.function_call_id
    asked = (context.actions.requested_tool_confirmations, context.actions.requested_auth_configs)
    return any(name in each for each in asked)


def failure(result: object) -> str | None:
    """Return the error message in a tool's result, or None if the result is not an error.

    An error is marked by a key `error`, as ADK does, or by `isError`, as MCP does.
    """
    if not isinstance(result, Mapping):
        return None
    if result.get("isError") is True:
        return str(result.get("content"))
    return str(result["error"]) if result.get("error") else None


def recordable(error: BaseException) -> Exception:
    """Return the exception to log for a call that ended with `error`.

    A `BaseException` such as a cancellation is replaced, because the log accepts only subclasses of `Exception`.
    """
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)


def schema_of(tool: BaseTool) -> ArgumentSchema:
    """Return the schema with which the framework converts the arguments of a tool."""
    if not isinstance(tool, FunctionTool):
        return RawSchema()
    own = {"tool_context", "input_stream", *getattr(tool, "_ignore_params", ())}

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        validate = getattr(tool, "_preprocess_args_with_validation", None)
        # Older versions of the framework have only the other method, which does not return a list of errors.
        found, errors = (tool._preprocess_args(sent), []) if validate is None else validate(sent)  # noqa: SLF001 - ADK converts arguments only in these methods
        if errors:
            raise ValueError("\n".join(errors))
        parameters = inspect.signature(tool.func).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            # The framework omits arguments for which the function has no parameter.
            found = {name: value for name, value in found.items() if name in parameters}
        found = {name: value for name, value in found.items() if name not in own}
        return with_signature_defaults(found, tool.func, own)

    return CustomSchema(receive, as_json)


def served_by(tool: BaseTool) -> tuple[str | None, str | None]:
    """Return the server name and the original tool name of a remote tool, or (None, None) for a local tool.

    The server name is the prefix that the toolset adds to the names of its tools; it is empty without a prefix. The
    original tool name is the one on the server.
    """
    if not any(each.__module__.startswith("google.adk.tools.mcp_tool.") for each in type(tool).__mro__):
        return None, None
    own_name = str(getattr(tool, "raw_mcp_tool", tool).name)
    prefix = tool.name.removesuffix(own_name)
    return ("" if prefix == tool.name else prefix.rstrip("_")), own_name


_WHY = "rejected when the session was resumed"
_REJECTED = "Not done: the call was rejected. Do not call the tool again for it."
_ENDED = "Not done: the call's approval request is no longer pending. Calling the tool again creates a new request."
logger = logging.getLogger("toolgate")


class GuardPlugin(BasePlugin):
    """Plugin that checks and logs every tool call of all agents of an ADK app.

    It must be the first plugin in the list: the framework skips later plugins if an earlier one handles a callback.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<prefix>.<name>` for a tool of an MCP server.
        agents: Toolgate agent ids by the names given to `LlmAgent(name=…)`. All other agents use the guard's agent
            id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run ends with a confirmation request of
            the framework. `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`.
            `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.
        name: The plugin's name in the app.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = None,
        name: str = "toolgate",
    ) -> None:
        super().__init__(name=name)
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
        # Keyed by the id() of the framework's context. The value refers to the context too, so that no other object
        # gets the same id().
        self._open: dict[int, Open] = {}
        self._undecided: dict[str, list[Asked]] = {}

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Check a call before its tool runs; if it must not run, return the reason as the tool's result for the model."""
        try:
            call = self._call(tool, tool_args, tool_context)
        except InvalidArgumentsError as error:
            return {"error": f"Invoking `{tool.name}()` failed: {error.__cause__}"}
        answered = tool_context.tool_confirmation
        # The guard handles the user's rejection itself, because the framework does that only for tools that require a
        # confirmation by their own settings, and would run the others.
        if answered is not None and answered.confirmed is not True:
            return await self._rejected(call, tool_context)
        if answered is not None and (ended := await self._expired(call, tool_context)) is not None:
            return ended
        begun = None
        try:
            if isinstance(tool, AgentTool) and not getattr(tool, "include_plugins", True):
                raise ConfigurationError(
                    f"the calls of the agent {tool.name!r}, which is used as a tool, would not be checked; "
                    "create its AgentTool with include_plugins=True"
                )
            if not is_guarded(call.function):
                begun = await self._bridge.abegin(call, PAUSES)
                tool_args.clear()
                tool_args.update(call.to_send(begun.arguments))
        except ApprovalPending as pending:
            if answered is None:
                return self._refusal_result(tool_context, pending)
            # The framework accepts only one confirmation request per call, so the model has to make a new call.
            await self._bridge.areject(call, _ENDED, pending.approval_id, final=False)
            return {"error": _ENDED}
        except GuardError as error:
            return self._refusal_result(tool_context, error)
        opened = Open(tool_context, call, begun)
        opened.around.enter_context(self._bridge.acting(call, PAUSES, is_named=begun is None))
        opened.around.enter_context(inside(call))
        self._open[id(tool_context)] = opened
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(partial(self._log_broken_call, tool_context))
        return None

    async def after_tool_callback(
        self, *, tool_context: ToolContext, result: dict[str, Any], **_: Any
    ) -> dict[str, Any] | None:
        """Log the outcome of a tool that ran.

        The framework also calls this method for denied calls, which are ignored.
        """
        opened = self._closed(tool_context)
        if opened is not None and opened.begun is not None:
            if has_requested_input(tool_context):
                opened.begun.not_run(StoppedError("the tool waits for input from its user"))
            else:
                opened.begun.run(lambda: result, failure)
        return None

    async def on_tool_error_callback(
        self, *, tool_context: ToolContext, error: BaseException, **_: Any
    ) -> dict[str, Any] | None:
        """Log the failure of a tool that raised an exception.

        If the tool's function is decorated with `@guarded` and denied the call, the reason is returned for the model.
        """
        opened = self._closed(tool_context)
        if opened is not None and opened.begun is not None:
            opened.begun.not_run(recordable(error))
        elif opened is not None and isinstance(error, GuardError):
            return self._refusal_result(tool_context, error)
        return None

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Remove the user's confirmations of calls that are still pending, so that these calls can be confirmed later."""
        undecided: list[Asked] = []
        left: list[types.Part] = []
        for part in user_message.parts or ():
            asked = find_confirmation_request(
                invocation_context.session.events, find_confirmed_request_id(part)
            )
            if asked is not None and await self._waits(asked):
                undecided.append(asked)
            else:
                left.append(part)
        if undecided and left:
            return types.Content(role=user_message.role, parts=left)
        if undecided:
            self._undecided[invocation_context.invocation_id] = undecided
        return None

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        """End the run immediately and repeat its confirmation requests, if all confirmed calls are still pending."""
        undecided = self._undecided.get(invocation_context.invocation_id)
        if undecided is None:
            return None
        return types.Content(
            role="model", parts=[types.Part(function_call=each.request) for each in undecided]
        )

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """Replace the author of an event that repeats confirmation requests: the new author is the calling agent.

        The event is the result of `before_run_callback`. With this author, the framework accepts the user's response to
        a repeated request like the response to the first one.
        """
        undecided = self._undecided.pop(invocation_context.invocation_id, None)
        if undecided is None:
            return None
        ids = {each.request.id for each in undecided if each.request.id}
        return event.model_copy(update={"author": undecided[0].author, "long_running_tool_ids": ids})

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log a warning for each call whose outcome was not reported because another plugin handled the callback first."""
        for opened in list(self._open.values()):
            if opened.context.invocation_id == invocation_context.invocation_id:
                self._closed(opened.context)
                logger.warning(
                    "the result of a call to the tool %r was not logged, because another plugin handled "
                    "it first; put the guard first in plugins=[…]",
                    opened.call.name,
                )

    async def _waits(self, asked: Asked) -> bool:
        if asked.approval_id is None:
            return False
        try:
            newest = await self._bridge.guard.aapproval(asked.approval_id, newest=True)
        except (GatewayUnavailable, GatewayProtocolError):
            # The state of the request is unknown. The call is treated as pending, so that it does not run and its
            # confirmation request stays open.
            return True
        except GuardError:
            return False
        return newest.status == "pending"

    async def _expired(self, call: ToolCall, context: ToolContext) -> dict[str, Any] | None:
        """Return the tool result for the model if the call's approval request has expired, else None.

        An expired request is not replaced by a new one here; the model decides whether to make a new call.
        """
        asked = find_confirmation_request(context.session.events, context.function_call_id)
        if asked is None or asked.approval_id is None:
            return None
        try:
            newest = await self._bridge.guard.aapproval(asked.approval_id, newest=True)
        except GuardError:
            # The error is not handled here: the check of the call follows and raises the same error.
            return None
        if newest.status != "expired":
            return None
        action = self._bridge.action_of(call)
        expired = ApprovalExpired(
            action=action, agent_id=newest.agent_id or "", approval_id=asked.approval_id
        )
        return {"error": self._bridge.refusal(expired)}

    async def _rejected(self, call: ToolCall, context: ToolContext) -> dict[str, Any]:
        """Cancel the approval request of a call that the user rejected, and return the tool result for the model.

        The approval id is read from the session and not from the user's message, which could contain the id of
        another request.
        """
        asked = find_confirmation_request(context.session.events, context.function_call_id)
        await self._bridge.areject(call, _WHY, None if asked is None else asked.approval_id)
        return {"error": _REJECTED}

    def _refusal_result(self, context: ToolContext, error: GuardError) -> dict[str, Any]:
        """Return the tool result with which the model reads why a call did not run.

        If the call is pending and the run can pause, the framework is also made to end the run with a confirmation
        request.
        """
        if isinstance(error, SETUP_ERRORS):
            self._bridge.report(error)
        pauses = isinstance(error, ApprovalPending) and self._pauses(context)
        if isinstance(error, ApprovalPending) and pauses:
            context.request_confirmation(hint=error.reason, payload=describe_pending(error))
            # Without this flag, the framework would call the model again immediately instead of ending the run.
            context.actions.skip_summarization = True
        return {"error": self._bridge.refusal(error, paused=pauses)}

    def _pauses(self, context: ToolContext) -> bool:
        within = outer() is not None
        return self._bridge.on_hold == "pause" and bool(context.function_call_id) and not within

    def _closed(self, context: ToolContext) -> Open | None:
        opened = self._open.pop(id(context), None)
        if opened is not None:
            # A context variable cannot be reset from another task than the one that set it. In that case its value
            # ended with the task.
            with suppress(ValueError):
                opened.around.close()
        return opened

    def _log_broken_call(self, context: ToolContext, task: asyncio.Task[Any]) -> None:
        """Log a call whose task ended without a callback that reports the outcome.

        That happens if a later plugin's callback raises, or if the tool raises a `BaseException` that is not an
        `Exception`.
        """
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        opened = None if error is None else self._closed(context)
        if error is not None and opened is not None and opened.begun is not None:
            opened.begun.not_run(recordable(error))

    def _call(self, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext) -> ToolCall:
        server, own_name = served_by(tool)
        function = getattr(tool, "func", None)
        around = outer()
        is_named = self._bridge.sends_id(function, can_pause=self._pauses(context))
        run_id = context.session.id if around is None else around.run_id
        call_id = context.function_call_id
        received = self._bridge.received.of(tool.name, arguments, schema_of(tool), run_id, call_id)
        return ToolCall(
            tool.name,
            received.values,
            call_id=call_id if is_named else None,
            run_id=run_id,
            received=received,
            agent=context.agent_name,
            function=function,
            server=server,
            own_name=own_name,
        )
