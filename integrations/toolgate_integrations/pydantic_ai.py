"""Plugin for Pydantic AI: `Agent(…, capabilities=[GuardCapability()])`, or a toolset in `GuardToolset(…)`."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._options import OnHold, set_context
from toolgate_integrations._registry import is_at_least
from toolgate_integrations.base import Bridge, ToolActions, ToolCall, describe_pending, require
from toolgate_integrations.refusals import OtherArgumentsError

require("pydantic_ai")

from pydantic import AnyUrl, ValidationError
from pydantic_ai import AgentRunResult, CallToolsNode, RunContext, ToolDenied, exceptions
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, SkipToolExecution, UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)

# The class is imported from a private module, because version 2.0, the oldest supported one, has no public name for it.
from pydantic_ai.toolsets._dynamic import DynamicToolset
from pydantic_core import Url

__all__ = ["GuardCapability", "GuardToolset"]

# Names of the modules that define the classes of MCP toolsets. The names are compared instead of the classes, because
# importing the modules would require an extra of the framework.
_REMOTE: Final = frozenset({"pydantic_ai.mcp", "pydantic_ai.toolsets.fastmcp"})


def function_of(tool: ToolsetTool[Any] | None) -> object:
    """Return the Python function of a tool, or None if it has none in this process."""
    while tool is not None and (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(schema, "function", None)


def served_by(tool: ToolsetTool[Any] | None, name: str) -> tuple[str | None, str]:
    """Return the server name of a tool, and the tool's name on that server.

    Returns:
        Server name and tool name. The server name is None for a local tool, and empty if the server has no name. For a
        remote tool, it is the toolset's id, or else the prefix of its tools, or else the host of its address.
    """
    if tool is None:
        return None, name
    toolset: AbstractToolset[Any] | None = getattr(tool, "source_toolset", tool.toolset)
    tool, own, prefix = getattr(tool, "source_tool", tool), name, ""
    while True:
        match toolset:
            case PrefixedToolset():
                prefix, own = prefix or toolset.prefix, own.removeprefix(f"{toolset.prefix}_")
                toolset = toolset.wrapped
            case RenamedToolset():
                own = toolset.name_map.get(own, own)
                toolset = toolset.wrapped
            case WrapperToolset():
                toolset = toolset.wrapped
            case CombinedToolset():
                toolset, tool = getattr(tool, "source_toolset", None), getattr(tool, "source_tool", tool)
            case DynamicToolset():
                toolset = getattr(toolset, "_toolset", None)
            case _:
                break
    if toolset is None or not any(each.__module__ in _REMOTE for each in type(toolset).__mro__):
        return None, name
    return getattr(toolset, "_explicit_id", toolset.id) or prefix or toolset.id or "", own


Tool = ToolsetTool[Any] | None
Handler = Callable[[dict[str, Any]], Awaitable[Any]]
logger = logging.getLogger("toolgate")
# Base classes of the URL types of Pydantic. The first one is the base class of all types for URLs with a single host.
_URLS: Final = (AnyUrl.__mro__[-2], Url)
_PAUSES: Final = (ApprovalRequired, CallDeferred, ApprovalPending)
# Exceptions with which a tool's validator rejects arguments. `ToolFailed` is read by its name, because version 2.0
# lacks it.
_REFUSES_ARGUMENTS: Final[tuple[type[Exception], ...]] = (
    ValueError,
    ModelRetry,
    ApprovalRequired,
    CallDeferred,
    getattr(exceptions, "ToolFailed", ModelRetry),
)
# True if the installed framework version lets a hook deny a call by returning `ToolDenied`. Older versions treat every
# value that a hook returns as the tool's result.
_DENIES: Final = is_at_least("pydantic_ai", "2.28")
# Run id, call id and arguments of the allowed call that is running. The ids are compared, so that calls by an agent
# that the tool itself runs are not mistaken for this call.
_Passed = tuple[str | None, str | None, dict[str, Any]]
_passed: ContextVar[_Passed | None] = ContextVar("toolgate_pydantic_ai_passed", default=None)


class Gate:
    """Checks every tool call of an agent; all guarded toolsets of the agent share one object.

    Args:
        bridge: The bridge that checks and logs the calls.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    async def carry_out(
        self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, args: dict[str, Any], handler: Handler
    ) -> Any:
        """Check the call, run the tool with the approved arguments if the call is allowed, and log the outcome.

        Args:
            ctx: The framework's context of the call.
            call: The call as the model made it; its arguments are not used, because they are not validated.
            tool: The tool; None if the framework does not pass it.
            args: The validated arguments.
            handler: Function that runs the tool.

        Returns:
            The tool's result, or a `ToolDenied` with the reason why the tool did not run.

        Raises:
            ApprovalRequired: The call requires an approval, and the run pauses.
        """
        told = {name: _with_readable_urls(value) for name, value in args.items()}

        async def run(approved: dict[str, Any]) -> Any:
            edits = {name: value for name, value in approved.items() if value is not told.get(name)}
            given = await _validated(ctx, tool, {**args, **edits}) if edits else dict(args)
            with set_context(_passed, (ctx.run_id, ctx.tool_call_id, dict(given))):
                try:
                    return await handler(given)
                except SkipToolExecution as skipped:
                    return skipped.result

        try:
            return await self.bridge.arun(self.named(ctx, call, tool, told), run, _failed, _PAUSES)
        except ApprovalPending as pending:
            if self.bridge.on_hold == "pause":
                raise ApprovalRequired(metadata=describe_pending(pending)) from None
            return ToolDenied(self.bridge.refusal(pending))
        except GuardError as error:
            return ToolDenied(self.bridge.refusal(error))
        except OtherArgumentsError as error:
            return ToolDenied(str(error))

    async def rejected(self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, why: str) -> None:
        """Cancel the approval request of a call that a user rejected in the framework, and log the rejection."""
        try:
            args = call.args_as_dict()
        except ValueError:
            args = {}
        await self.bridge.areject(self.named(ctx, call, tool, args), why)

    def named(
        self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, args: Mapping[str, Any]
    ) -> ToolCall:
        """Return the `ToolCall` with which a call is checked."""
        server, own_name = served_by(tool, call.tool_name)
        return ToolCall(
            call.tool_name,
            args,
            # The id is omitted if the model has to repeat the call: the repeated call has another id, which the
            # approval would not cover.
            call_id=call.tool_call_id if self.bridge.names_calls else None,
            run_id=ctx.conversation_id or ctx.run_id,
            agent=None if ctx.agent is None else ctx.agent.name,
            function=function_of(tool),
            server=server,
            own_name=own_name,
        )


def is_already_allowed(ctx: RunContext[Any]) -> bool:
    """Return whether another guard around this one has already allowed the current call."""
    run_id, call_id, _ = _passed.get() or (None, None, {})
    return call_id is not None and (run_id, call_id) == (ctx.run_id, ctx.tool_call_id)


def to_hook_result(answer: object) -> object:
    """Return the value that a hook returns to the framework for a call.

    A denial is replaced by its text in framework versions in which a hook cannot deny a call.
    """
    return answer.message if isinstance(answer, ToolDenied) and not _DENIES else answer


def mark_denied(part: ToolReturnPart) -> None:
    """Set the outcome of a refused call to `denied`, if the framework is too old to do so and would store a success."""
    if not _DENIES:
        part.outcome = "denied"


def verify_arguments(ctx: RunContext[Any], args: dict[str, Any]) -> None:
    """Verify that no other capability changed the arguments after the check.

    Args:
        ctx: The framework's context of the call.
        args: The arguments that the tool will receive.

    Raises:
        OtherArgumentsError: The arguments were changed; the model reads the message.
    """
    run_id, call_id, passed = _passed.get() or (None, None, {})
    if (run_id, call_id) != (ctx.run_id, ctx.tool_call_id):
        return
    if args.keys() != passed.keys() or any(
        value is not passed[name] and value != passed[name] for name, value in args.items()
    ):
        raise OtherArgumentsError


async def _validated(ctx: RunContext[Any], tool: Tool, args: dict[str, Any]) -> dict[str, Any]:
    """Validate arguments that contain an approver's edit, with the tool's schema and validator, and return them."""
    if tool is None:
        raise OtherArgumentsError(_UNFIT.format("the toolset does not contain the tool"))
    try:
        given: dict[str, Any] = _by_schema(ctx, tool, args)
        if tool.args_validator_func is not None:
            result = tool.args_validator_func(ctx, **given)
            if inspect.isawaitable(result):
                await result
    except _REFUSES_ARGUMENTS as error:
        raise OtherArgumentsError(_UNFIT.format(_first_line(error))) from error
    return given


def _by_schema(ctx: RunContext[Any], tool: ToolsetTool[Any], args: dict[str, Any]) -> dict[str, Any]:
    validate = tool.args_validator.validate_python
    try:
        return dict(validate(args, context=ctx.validation_context))
    except ValidationError:
        # If the only parameter of a function is a Pydantic model, the framework's schema describes the fields of this
        # model instead of the parameter. So the value of the parameter is validated with the schema.
        if len(args) != 1:
            raise
        given: dict[str, Any] = validate(next(iter(args.values())), context=ctx.validation_context)
        if given.keys() != args.keys():
            raise
        return dict(given)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(each) for each in first['loc'])}: {first['msg']}"
    return str(error) or type(error).__name__


def _with_readable_urls(value: object) -> Any:
    """Convert the URL objects inside an argument to strings for the check, so that an approver can read them.

    A value that contains no URL objects is returned unchanged, as the same object.
    """
    if isinstance(value, _URLS):
        # A URL with a password is not converted, because the string would reveal the password.
        return value if getattr(value, "password", None) else str(value)
    if type(value) is dict:
        members = {name: _with_readable_urls(each) for name, each in value.items()}
        return members if any(members[name] is not each for name, each in value.items()) else value
    if type(value) is list:
        listed = [_with_readable_urls(each) for each in value]
        return listed if any(new is not old for new, old in zip(listed, value, strict=True)) else value
    return value


def _failed(answer: object) -> str | None:
    return answer.message if isinstance(answer, ToolDenied) else None


_UNFIT: Final = (
    "Not done: the approver changed the arguments, and the tool does not accept the changed arguments: {}. "
    "Calling the tool again creates a new approval request."
)


class GuardCapability(AbstractCapability[Any]):
    """Capability that checks and logs every tool call of an agent, with all its toolsets.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<server>.<name>` for a tool of an MCP server.
        agents: Toolgate agent ids by the names given to `Agent(name=…)`. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run ends with `DeferredToolRequests`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

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
    ) -> None:
        self._gate = Gate(Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True))
        self._held: dict[str, str] = {}
        self._refused: set[str] = set()

    def get_ordering(self) -> CapabilityOrdering:
        """Make this the innermost capability, so that it checks the arguments after others have changed them."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> GuardCapability:  # noqa: ARG002 - the framework's signature
        """Return a copy of the capability for one run, without the stored calls of other runs."""
        own = copy.copy(self)
        own._held, own._refused = {}, set()  # noqa: SLF001 - `own` is a copy of this object
        return own

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,  # noqa: ARG002 - the framework's signature
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Check the call, run the tool if it is allowed, and log the outcome; else the model reads the reason."""
        try:
            answer = await self._gate.carry_out(ctx, call, _tool(ctx, call.tool_name), args, handler)
        except ApprovalRequired as held:
            if held.metadata is not None and isinstance(held.metadata.get("approval_id"), str):
                self._held[call.tool_call_id] = held.metadata["approval_id"]
            raise
        if isinstance(answer, ToolDenied):
            self._refused.add(call.tool_call_id)
        return to_hook_result(answer)

    async def before_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,  # noqa: ARG002 - the framework's signature
        tool_def: ToolDefinition,  # noqa: ARG002 - the framework's signature
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Raise `OtherArgumentsError` if another capability changed the arguments after the check."""
        verify_arguments(ctx, args)
        return args

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Log the rejections with which a paused run is resumed, and cancel the approval requests of the rejected calls.

        This hook is used because the framework calls no tool hook for a rejected call.
        """
        if isinstance(node, CallToolsNode):
            for call in node.model_response.tool_calls:
                answer = (node.tool_call_results or {}).get(call.tool_call_id)
                if isinstance(answer, ToolDenied):
                    await self._rejected(ctx, call, answer.message)
        return node

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Log the rejections by a handler of deferred calls, and cancel the approval requests of these calls."""
        messages = request_context.messages
        for part in messages[-1].parts if messages else ():
            if not isinstance(part, ToolReturnPart):
                continue
            if part.tool_call_id in self._refused:
                mark_denied(part)
            elif part.outcome == "denied":
                for message in reversed(messages):
                    calls = message.tool_calls if isinstance(message, ModelResponse) else ()
                    if call := next((one for one in calls if one.tool_call_id == part.tool_call_id), None):
                        await self._rejected(ctx, call, str(part.content))
                        break
        return request_context

    async def on_run_error(self, ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:  # noqa: ARG002 - the framework's signature
        """Cancel the request of a pending call that could not pause the run, and raise an error with the fix."""
        if self._held and isinstance(error, UserError) and "DeferredToolRequests" in str(error):
            for approval_id in self._held.values():
                try:
                    await self._gate.bridge.guard.acancel(approval_id)
                except GuardError as failure:
                    logger.warning("the approval request %s could not be cancelled: %s", approval_id, failure)
            raise ConfigurationError(
                "a call needs approval, but this run cannot pause; add DeferredToolRequests to the agent's "
                "output_type, or use GuardCapability(on_hold='wait') or 'notify_model'"
            ) from error
        raise error

    async def _rejected(self, ctx: RunContext[Any], call: ToolCallPart, why: str) -> None:
        self._refused.add(call.tool_call_id)
        await self._gate.rejected(ctx, call, _tool(ctx, call.tool_name), why)


@dataclass
class GuardToolset(WrapperToolset[Any]):
    """Toolset that checks and logs the tool calls of another toolset, for agents without capabilities.

    If a user rejects a pending call in the framework, its approval request stays pending, because the framework does
    not notify toolsets of rejections.

    Attributes:
        wrapped: The other toolset.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: As for `GuardCapability`.
        agents: As for `GuardCapability`.
        on_hold: As for `GuardCapability`.
        hold_timeout: As for `GuardCapability`.
        gate: Object that checks the calls; created from the other attributes.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    guard: Guard | None = None
    _: KW_ONLY
    tool_actions: ToolActions | None = None
    agents: Mapping[str, str] | None = None
    on_hold: OnHold = "pause"
    hold_timeout: float | None = None
    gate: Gate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # The framework copies the toolset for each run. The copies keep the gate of the original instead of creating
        # one.
        given = (self.guard, self.tool_actions, self.agents, self.on_hold, self.hold_timeout)
        self.gate = self.gate or Gate(Bridge(*given, can_pause=True))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Check the call, run the tool if it is allowed, and log the outcome; else the model reads the reason."""
        if self.gate is None:
            raise ConfigurationError("the guarded toolset is incomplete; create it with GuardToolset(…)")
        if is_already_allowed(ctx):
            raise ConfigurationError(
                f"the tool {name!r} is guarded twice, so its calls would be checked twice; use either "
                "GuardCapability or one GuardToolset, not both"
            )
        below = super().call_tool

        async def run(args: dict[str, Any]) -> Any:
            return await below(name, args, ctx, tool)

        call = ToolCallPart(name, tool_args, tool_call_id=ctx.tool_call_id or "")
        return to_hook_result(await self.gate.carry_out(ctx, call, tool, tool_args, run))


def _tool(ctx: RunContext[Any], name: str) -> ToolsetTool[Any] | None:
    tools = None if ctx.tool_manager is None else ctx.tool_manager.tools
    return None if tools is None else tools.get(name)
