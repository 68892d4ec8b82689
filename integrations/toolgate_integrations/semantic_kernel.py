"""Plugin for Semantic Kernel: `guard_kernel(kernel)`, and `aresume(kernel, chat_history)` after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from inspect import isasyncgen, isgenerator
from typing import Any, Final

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate._telemetry import warn_renamed
from toolgate_integrations._arguments import json_copy, with_signature_defaults
from toolgate_integrations._options import OnHold, text_or_none, valid_rejections
from toolgate_integrations.base import (
    SETUP_ERRORS,
    Bridge,
    ToolActions,
    ToolCall,
    describe_pending,
    refusal_text,
    require,
)

require("semantic_kernel")

from semantic_kernel import Kernel
from semantic_kernel.contents import (
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
)
from semantic_kernel.filters import AutoFunctionInvocationContext, FilterTypes, FunctionInvocationContext
from semantic_kernel.functions import FunctionResult, KernelArguments, KernelFunctionFromMethod

__all__ = ["aresume", "guard_kernel", "resume", "waiting"]

#: Names of the `KernelArguments` that contain the agent's name and the run id.
AGENT: Final = "toolgate_agent"
RUN_ID: Final = "toolgate_run_id"
# Names of function parameters that the framework fills in itself, so they are not arguments that the model sends.
_GIVEN: Final = frozenset({"kernel", "service", "execution_settings", "arguments"})


def function_of(context: FunctionInvocationContext) -> object:
    """Return the Python function that the call will run, or None; streamed calls may run a separate function."""
    return getattr(context.function, "stream_method" if context.is_streaming else "method", None)


def read_kernel_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    """Return the value of one of this plugin's own kernel arguments, `AGENT` or `RUN_ID`, or None if it is missing.

    Raises:
        ConfigurationError: The argument is not a string.
    """
    return text_or_none(arguments.get(name), name)


def collect_arguments(context: FunctionInvocationContext) -> dict[str, Any]:
    """Return the arguments that a function will receive, converted to the types that it declares.

    The kernel's arguments may contain further values, such as those of a prompt. They are included only if the
    function has a parameter `arguments`, with which it receives all of them.

    Raises:
        Exception: The framework's own error about invalid arguments.
    """
    function = context.function
    if not isinstance(function, KernelFunctionFromMethod):
        return dict(context.arguments)
    given = function.gather_function_parameters(context)
    told = {name: value for name, value in given.items() if name not in _GIVEN}
    told = with_signature_defaults(told, function_of(context), _GIVEN)
    if "arguments" not in given:
        return told
    beside = {name: value for name, value in context.arguments.items() if name not in (AGENT, RUN_ID)}
    return {**beside, **told}


async def run_to_end(context: FunctionInvocationContext, call_next: Callable[[Any], Awaitable[None]]) -> None:
    """Run the remaining filters and the function, and return after the function has ended.

    The framework starts a streamed function only after its filters have returned. So this function collects all parts
    of the stream, and replaces the result by an iterator over them.
    """
    await call_next(context)
    if not context.is_streaming or context.result is None:
        return
    value = context.result.value
    if isasyncgen(value):
        context.result.value = _again([part async for part in value])
    elif isgenerator(value):
        context.result.value = _again(list(value))


async def _again(parts: list[Any]) -> AsyncIterator[Any]:
    for part in parts:
        yield part


def move_innermost(kernel: Kernel, own: Callable[..., Awaitable[None]]) -> None:
    """Make the guard's filter the innermost one again, in case other filters were added after it."""
    filters = kernel.function_invocation_filters
    if filters and filters[0][1] == own:
        return
    for each in [one for one in filters if one[1] == own]:
        filters.remove(each)
        filters.insert(0, each)


CallNext = Callable[[Any], Awaitable[None]]
#: Key under which the metadata of a result contains the approval request of the pending call.
WAITING: Final = "toolgate"


@dataclass(frozen=True)
class Rejection:
    """A user's rejection of a pending call, which is passed to the filters when the call is executed again.

    Attributes:
        why: The user's reason.
        approval_id: Id of the call's approval request.
    """

    why: str
    approval_id: str


REJECTING: ContextVar[Rejection | None] = ContextVar("toolgate_semantic_kernel_rejecting", default=None)


@dataclass
class _Called:
    """A tool call that the model requested, and that is being executed.

    Attributes:
        context: The framework's context of the call.
        pauses: True if the run must end because the call requires an approval.
        setup_error: Error that prevented the check of the call, and must end the run; None if there is no such
            error.
    """

    context: AutoFunctionInvocationContext
    pauses: bool = False
    setup_error: GuardError | None = None

    def is_executed_by(self, context: FunctionInvocationContext) -> bool:
        """Return whether `context` is the function invocation that executes this call.

        The result is False if a filter or a function invokes another function meanwhile.
        """
        return self.context.function is context.function and self.context.arguments is context.arguments


_called: ContextVar[_Called | None] = ContextVar("toolgate_semantic_kernel_called", default=None)


class Filters:
    """The guard's two filters: one around the calls that the model requests, and one around all function invocations.

    Args:
        bridge: The bridge that checks and logs the calls.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def __deepcopy__(self, _: dict[int, Any]) -> Filters:
        # A copied kernel uses the same filters, because a guard cannot be copied.
        return self

    async def around_call(self, context: AutoFunctionInvocationContext, next: CallNext) -> None:  # noqa: A002 - the framework's signature
        """Filter around a call that the model requested: store it for `around_function`; end the run if pending."""
        move_innermost(context.kernel, self.around_function)
        called = _Called(context)
        token = _called.set(called)
        try:
            await next(context)
        finally:
            _called.reset(token)
        if called.setup_error is not None:
            # The error is raised here and not in `around_function`, because the framework converts an error there to
            # text for the model, but an exception of this filter ends the run.
            raise called.setup_error
        if called.pauses:
            context.terminate = True

    async def around_function(self, context: FunctionInvocationContext, next: CallNext) -> None:  # noqa: A002 - the framework's signature
        """Filter around a function invocation: check it, run the function if it is allowed, and log the outcome."""
        called = _called.get()
        if context.function.is_prompt:
            await next(context)
        else:
            # True if the model requested this invocation; it is False if a filter or another function invokes the
            # function.
            mine = called is not None and called.is_executed_by(context)
            await self._carry_out(context, next, called if mine else None)

    async def _carry_out(
        self, context: FunctionInvocationContext, call_next: CallNext, called: _Called | None
    ) -> None:
        # The arguments are copied, because other code may change them during the check, and the framework reads them
        # again later.
        given = copy(context.arguments)
        given.update(json_copy(given))
        context.arguments = given
        call = self._named(context, called)

        async def run(approved: dict[str, Any]) -> None:
            # Only edited values are replaced. The framework converts all values again, and the conversion could
            # change a value that already has its declared type.
            edited = {name: each for name, each in approved.items() if each is not call.arguments.get(name)}
            # A new object is stored, because the caller of the kernel may still use the old one.
            context.arguments = given | edited
            await run_to_end(context, call_next)

        try:
            if getattr(call_next, "__self__", None) is not context.function:
                move_innermost(context.kernel, self.around_function)
                raise ConfigurationError(
                    "a filter that was added after the guard would run between the guard and "
                    f"{call.name!r}; call guard_kernel(…) after adding all filters"
                )
            if called is not None and (no := REJECTING.get()) is not None:
                _tell(context, await self._bridge.areject(call, no.why, no.approval_id))
                return
            await self._bridge.arun(call, run, pauses=(ApprovalPending,))
        except self._bridge.fatal as error:
            if isinstance(error, SETUP_ERRORS):
                self._bridge.report(error)
            if called is not None:
                called.setup_error = error
            raise
        except GuardError as error:
            if called is None:
                raise
            # A call without an id does not pause the run, because `aresume` could not find it in the chat history.
            if self._bridge.pauses_for(error) and call.call_id:
                called.pauses = True
                _tell(context, refusal_text(error, paused=True), {WAITING: describe_pending(error)})
            else:
                _tell(context, refusal_text(error))

    def _named(self, context: FunctionInvocationContext, called: _Called | None) -> ToolCall:
        function, arguments = context.function, context.arguments
        content = None if called is None else called.context.function_call_content
        return self._bridge.call(
            function.fully_qualified_name,
            collect_arguments(context),
            None if content is None else content.id,
            run_id=read_kernel_argument(arguments, RUN_ID),
            agent=read_kernel_argument(arguments, AGENT),
            function=function_of(context),
            # The name of the kernel plugin is used as the server name, for local plugins and for plugins of an MCP
            # server.
            server=function.plugin_name,
            own_name=function.name,
        )


def guard_of(kernel: Kernel) -> Filters | None:
    """Return the guard's filters of a kernel, or None if the kernel is not guarded."""
    for _, each in kernel.function_invocation_filters:
        owner = getattr(each, "__self__", None)
        if isinstance(owner, Filters):
            return owner
    return None


def _tell(context: FunctionInvocationContext, text: str, metadata: Mapping[str, Any] | None = None) -> None:
    context.result = FunctionResult(
        function=context.function.metadata, value=text, metadata=dict(metadata or {})
    )


def waiting(chat_history: ChatHistory) -> dict[str, str]:
    """Return the pending calls of a chat history.

    Args:
        chat_history: The chat history.

    Returns:
        The ids of the approval requests, by call id; empty if no call is pending.
    """
    return {str(item.id): item.metadata[WAITING]["approval_id"] for _, _, item in _held(chat_history)}


async def aresume(
    kernel: Kernel,
    chat_history: ChatHistory,
    *,
    arguments: KernelArguments | None = None,
    rejected: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Execute the pending calls of a run again; each call runs if the gateway allows it now.

    In the chat history, the results of these calls replace the messages about pending calls. Afterwards, continue the
    run with `get_response(thread=ChatHistoryAgentThread(chat_history=…))` of the agent, and store the history.

    Args:
        kernel: The guarded kernel.
        chat_history: The chat history of the run, with all its messages; it is changed.
        arguments: The kernel arguments of the run.
        rejected: Reasons by call id for calls that must not run, even if an approver has approved them. Their
            approval requests are cancelled.

    Returns:
        The ids of the approval requests that are still pending, by call id; empty if the run can continue.

    Raises:
        ConfigurationError: The kernel is not guarded, the history lacks a pending call, or a rejected call is not
            pending.
    """
    if guard_of(kernel) is None:
        raise ConfigurationError("the kernel is not guarded; call guard_kernel(kernel) first")
    held = list(_held(chat_history))
    noes = valid_rejections(rejected, [str(item.id) for _, _, item in held])
    calls = {
        item.id: item
        for message in chat_history.messages
        for item in message.items
        if isinstance(item, FunctionCallContent)
    }
    # The history is verified before any call is executed, because an error during the calls below would lose the
    # results of the others.
    if lost := [item.id for _, _, item in held if item.id not in calls]:
        raise ConfigurationError(
            f"the chat history contains a result, but not the call {lost[0]!r} to which it belongs"
        )

    async def again(message: ChatMessageContent, at: int, item: FunctionResultContent) -> None:
        if item.id in noes:
            REJECTING.set(Rejection(noes[item.id], item.metadata[WAITING]["approval_id"]))
        told = ChatHistory()
        await kernel.invoke_function_call(calls[item.id], told, arguments=arguments)
        # The result is stored immediately, so that it is kept even if another call raises.
        message.items[at] = told.messages[-1].items[0]

    # `gather` runs each call in its own task, as the framework does with the calls of one model response.
    await asyncio.gather(*(again(*each) for each in held))
    return waiting(chat_history)


async def resume(*args: Any, **options: Any) -> dict[str, str]:
    """Deprecated name of `aresume`."""
    warn_renamed("resume", "aresume")
    return await aresume(*args, **options)


def _held(chat_history: ChatHistory) -> Iterator[tuple[ChatMessageContent, int, FunctionResultContent]]:
    for message in chat_history.messages:
        for at, item in enumerate(message.items):
            if isinstance(item, FunctionResultContent) and WAITING in item.metadata:
                yield message, at, item


def guard_kernel(
    kernel: Kernel,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> Kernel:
    """Check and log every function invocation of a kernel, whether the model or `kernel.invoke` requests it.

    Args:
        kernel: The kernel, which is changed in place: the guard's filters are added after all its other filters.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by function name such as `bank-pay`, as a mapping or a function of the name. The default
            action is `<plugin>.<function>`.
        agents: Toolgate agent ids by the names that `KernelArguments(toolgate_agent=…)` contains. All other agents
            use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run ends; continue it with `aresume`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Returns:
        The same kernel.

    Raises:
        ConfigurationError: An argument is invalid, or the kernel is already guarded.
    """
    given: object = kernel
    if not isinstance(given, Kernel):
        raise ConfigurationError(f"kernel is {kernel!r}; pass a semantic_kernel.Kernel")
    if guard_of(kernel) is not None:
        raise ConfigurationError("the kernel is already guarded; guard it only once")
    filters = Filters(Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True))
    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, filters.around_call)
    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, filters.around_function)
    return kernel
