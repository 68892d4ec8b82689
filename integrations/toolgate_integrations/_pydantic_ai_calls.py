"""One call of a tool of Pydantic AI, carried out over the bridge and answered in the framework's own terms."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal

from pydantic import AnyUrl, ValidationError
from pydantic_ai import RunContext, ToolDenied, exceptions
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, SkipToolExecution
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import Url

from toolgate import ApprovalPending, Guard, GuardError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, valid_on_hold
from toolgate_integrations._during import during
from toolgate_integrations._frameworks import is_at_least
from toolgate_integrations._pydantic_ai_tools import function_of, served_by
from toolgate_integrations._telling import OtherArgumentsError, areject, refusal_or_raise, shown

__all__ = ["Gate", "OnHold", "answered", "as_denied", "as_passed", "passing"]

OnHold = Literal["defer", "wait", "tell"]
Tool = ToolsetTool[Any] | None
Handler = Callable[[dict[str, Any]], Awaitable[Any]]
logger = logging.getLogger("toolgate")

# The first is what all of pydantic's own addresses of one host are made of.
_URLS: Final = (AnyUrl.__mro__[-2], Url)
_PAUSES: Final = (ApprovalRequired, CallDeferred, ApprovalPending)
# In 2.0 no tool could say yet that it failed.
_REFUSES_ARGUMENTS: Final[tuple[type[Exception], ...]] = (
    ValueError,
    ModelRetry,
    ApprovalRequired,
    CallDeferred,
    getattr(exceptions, "ToolFailed", ModelRetry),
)
# Before, whatever a hook returns is taken for what the tool returned.
_DENIES: Final = is_at_least("pydantic_ai", "2.28")
# Which call of which run, and its arguments; an agent that a tool runs has calls of its own.
_Passed = tuple[str | None, str | None, dict[str, Any]]
_passed: ContextVar[_Passed | None] = ContextVar("toolgate_pydantic_ai_passed", default=None)


class Gate:
    """What every call of a tool goes through.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names.
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
        valid_on_hold(on_hold, "defer")
        self.bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)

    async def carry_out(
        self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, args: dict[str, Any], handler: Handler
    ) -> Any:
        """Ask, let the tool run with what was approved, record.

        Args:
            ctx: The framework's context of the call.
            call: What the model wrote; its arguments are not looked at.
            tool: The tool, if the framework says.
            args: The validated arguments.
            handler: Runs the tool.

        Returns:
            What the tool returned, or a `ToolDenied` that says why it did not run.

        Raises:
            ApprovalRequired: The call waits for a person, and the run pauses for it.
        """
        told = {name: _told(value) for name, value in args.items()}

        async def run(approved: dict[str, Any]) -> Any:
            edits = {name: value for name, value in approved.items() if value is not told.get(name)}
            given = await _validated(ctx, tool, {**args, **edits}) if edits else dict(args)
            with during(_passed, (ctx.run_id, ctx.tool_call_id, dict(given))):
                try:
                    return await handler(given)
                except SkipToolExecution as skipped:
                    return skipped.result

        try:
            return await self.bridge.arun(self.named(ctx, call, tool, told), run, _failed, _PAUSES)
        except ApprovalPending as pending:
            if self.bridge.on_hold == "defer":
                raise ApprovalRequired(metadata=shown(pending)) from None
            return ToolDenied(refusal_or_raise(pending))
        except GuardError as error:
            return ToolDenied(refusal_or_raise(error))
        except OtherArgumentsError as error:
            return ToolDenied(str(error))

    async def rejected(self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, why: str) -> None:
        """Take a no that the framework was given: the request is withdrawn, and the log says so."""
        try:
            args = call.args_as_dict()
        except ValueError:
            args = {}
        await areject(self.bridge, self.named(ctx, call, tool, args), why)

    def named(
        self, ctx: RunContext[Any], call: ToolCallPart, tool: Tool, args: Mapping[str, Any]
    ) -> ToolCall:
        """The call, as the bridge takes it."""
        server, own_name = served_by(tool, call.tool_name)
        return ToolCall(
            call.tool_name,
            args,
            # Told that it waits, a model calls again, by another name.
            call_id=None if self.bridge.on_hold == "tell" else call.tool_call_id,
            run_id=ctx.conversation_id or ctx.run_id,
            agent=None if ctx.agent is None else ctx.agent.name,
            function=function_of(tool),
            server=server,
            own_name=own_name,
        )


def passing(ctx: RunContext[Any]) -> bool:
    """Whether a guard outside has let this very call through just now."""
    run_id, call_id, _ = _passed.get() or (None, None, {})
    return call_id is not None and (run_id, call_id) == (ctx.run_id, ctx.tool_call_id)


def answered(answer: object) -> object:
    """What the framework is to take for a tool's answer: its own denial where it knows one, or else the text of it."""
    return answer.message if isinstance(answer, ToolDenied) and not _DENIES else answer


def as_denied(part: ToolReturnPart) -> None:
    """Say of a call that was refused here that it was denied, where the framework has put down a success."""
    if not _DENIES:
        part.outcome = "denied"


def as_passed(ctx: RunContext[Any], args: dict[str, Any]) -> None:
    """Hold other capabilities to the arguments that the gateway was asked about.

    Args:
        ctx: The framework's context of the call.
        args: The arguments the tool is about to be given.

    Raises:
        Exception: They changed them since; the gate tells the model.
    """
    run_id, call_id, passed = _passed.get() or (None, None, {})
    if (run_id, call_id) != (ctx.run_id, ctx.tool_call_id):
        return
    if args.keys() != passed.keys() or any(
        value is not passed[name] and value != passed[name] for name, value in args.items()
    ):
        raise OtherArgumentsError


async def _validated(ctx: RunContext[Any], tool: Tool, args: dict[str, Any]) -> dict[str, Any]:
    """What the approver made of the arguments, by the tool's own rules."""
    if tool is None:
        raise OtherArgumentsError(_UNFIT.format("the tool is not known here"))
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
        # A function of one model takes the model's fields in its place.
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


def _told(value: object) -> Any:
    """A value as the gateway is asked about it: addresses as text, which the person can read and the gateway compare."""
    if isinstance(value, _URLS):
        # One with a password stays what nobody can read.
        return value if getattr(value, "password", None) else str(value)
    if type(value) is dict:
        members = {name: _told(each) for name, each in value.items()}
        return members if any(members[name] is not each for name, each in value.items()) else value
    if type(value) is list:
        listed = [_told(each) for each in value]
        return listed if any(new is not old for new, old in zip(listed, value, strict=True)) else value
    return value


def _failed(answer: object) -> str | None:
    return answer.message if isinstance(answer, ToolDenied) else None


_UNFIT: Final = "Not done: a person approved other arguments, and they do not fit the tool: {}. Asking again makes a new request."
