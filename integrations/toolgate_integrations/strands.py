"""Plugin for Strands Agents: `Agent(…, plugins=[GuardPlugin()])`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from toolgate import ApprovalPending, Guard, GuardError
from toolgate_integrations._arguments import encoded, json_copy, receive_or_keep
from toolgate_integrations._calls import find_rejection
from toolgate_integrations._options import OnHold
from toolgate_integrations.base import (
    ArgumentSchema,
    Bridge,
    CustomSchema,
    JsonSchema,
    ToolActions,
    ToolCall,
    describe_pending,
    find_error,
    require,
)
from toolgate_integrations.refusals import UNREADABLE, OtherArgumentsError

require("strands")

import wrapt
from strands.hooks import AfterToolCallEvent
from strands.interrupt import InterruptException
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent, TypedEvent
from strands.plugins import Plugin
from strands.tools.decorator import DecoratedFunctionTool
from strands.tools.mcp import MCPAgentTool
from strands.tools.structured_output.structured_output_tool import StructuredOutputTool
from strands.tools.tools import PythonAgentTool

__all__ = ["GuardPlugin"]

Next: TypeAlias = Callable[[ExecuteToolContext], AsyncGenerator[TypedEvent, None]]
Emit: TypeAlias = Callable[[TypedEvent], Awaitable[None]]


class StoppedError(Exception):
    """Raised if the tool itself interrupted the run to ask a user; the tool is called again after the user's answer.

    Attributes:
        event: The tool's interrupt event.
    """

    def __init__(self, event: TypedEvent) -> None:
        super().__init__("the tool paused until a person decides")
        self.event = event


#: Exceptions after which the framework executes the call again later, so the call is not logged as failed.
PAUSES: Final = (InterruptException, StoppedError, ApprovalPending)


async def relay_events(produce: Callable[[Emit], Awaitable[TypedEvent]]) -> AsyncGenerator[TypedEvent, None]:
    """Run `produce` in a separate task, and yield the events that it emits and finally its result.

    The task is needed because context variables that are set in the body of a generator would be visible to the code
    that iterates over it. The task waits until each event has been consumed, and is cancelled if the generator is
    closed.

    Args:
        produce: Function that executes a tool call; its argument is a function with which it emits an event.
    """
    queue: asyncio.Queue[TypedEvent | None] = asyncio.Queue()

    async def emit(event: TypedEvent) -> None:
        queue.put_nowait(event)
        await queue.join()

    async def run() -> TypedEvent:
        try:
            return await produce(emit)
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        while (event := await queue.get()) is not None:
            yield event
            queue.task_done()
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def run_approved_tool(
    context: ExecuteToolContext, next_fn: Next, arguments: dict[str, Any], emit: Emit
) -> ToolResultEvent:
    """Let the framework run the tool of an allowed call with the approved arguments.

    Args:
        context: The framework's context of the call.
        next_fn: Function that runs the remaining middleware and the tool.
        arguments: The approved arguments.
        emit: Function that forwards the tool's events.

    Returns:
        The tool's result, which may be an error.

    Raises:
        StoppedError: The tool itself interrupted the run.
        GuardError: A guarded function inside the tool did not run.
    """
    used = {**context.tool_use, "input": arguments}
    tool = None if context.tool is None else _ApprovedTool(context.tool, json_copy(arguments))
    chain = next_fn(context.replace(tool=tool, tool_use=used))
    result: ToolResultEvent | None = None
    try:
        async for event in chain:
            if isinstance(event, ToolResultEvent):
                result = event
            elif "tool_interrupt_event" in event:
                raise StoppedError(event)
            else:
                await emit(event)
    finally:
        await chain.aclose()
    if result is None:
        raise RuntimeError(f"a middleware after the guard returned no result for the tool {used['name']!r}")
    # The error is raised here; otherwise the framework would show it to the model as an error of the tool.
    if isinstance(result.exception, GuardError):
        raise result.exception
    if tool is not None and not tool.was_called:
        return _Elsewhere(result)
    return result


def failed(result: ToolResultEvent) -> str | None:
    """Return the error message in a tool's result, or None if the result is not an error."""
    if isinstance(result, _Elsewhere):
        return (
            "the tool did not run: a middleware that was added after the guard returned a result in its place"
        )
    if result.exception is not None:
        return f"{type(result.exception).__name__}: {result.exception}"
    told = result.tool_result
    if told["status"] != "error":
        return None
    text = " ".join(each["text"] for each in told["content"] if "text" in each)
    return text or "the tool reported an error without a message"


class _Elsewhere(ToolResultEvent):
    """Class of a result that another middleware returned without calling the tool; the call is logged as failed."""

    def __init__(self, result: ToolResultEvent) -> None:
        super().__init__(result.tool_result, result.exception)


class _ApprovedTool(wrapt.ObjectProxy):  # type: ignore[type-arg]  # `ObjectProxy[…]` raises an error at run time
    """Proxy of a tool that runs it only with the approved arguments, and raises for any other arguments."""

    def __init__(self, tool: Any, approved: dict[str, Any]) -> None:
        super().__init__(tool)
        self._self_approved = approved
        self._self_was_called = False

    @property
    def was_called(self) -> bool:
        return self._self_was_called

    async def stream(
        self, tool_use: dict[str, Any], invocation_state: dict[str, Any], **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        self._self_was_called = True
        if tool_use["input"] != self._self_approved:
            raise OtherArgumentsError
        # The approved object itself is passed, because values that are equal in Python can differ for the tool, as 1
        # and True do.
        used = {**tool_use, "input": self._self_approved}
        async for event in self.__wrapped__.stream(used, invocation_state, **kwargs):
            yield event


def can_pause(context: ExecuteToolContext) -> bool:
    """Return whether the run can pause for this call; it cannot for direct calls of `agent.tool` and background calls."""
    return type(context) is ExecuteToolContext and "event_loop_cycle_id" in context.invocation_state


def pause(context: ExecuteToolContext, pending: ApprovalPending) -> None:
    """Pause the run for a call that requires an approval.

    Raises:
        InterruptException: Always; the framework pauses the run when it receives this exception.
    """
    asked = {
        "type": "tool_approval",
        "tool_use_id": context.tool_use["toolUseId"],
        "name": context.tool_use["name"],
        "input": context.tool_use["input"],
        **describe_pending(pending),
    }
    # `interrupt` pauses the run only if the user has not answered the interrupt with this name yet. If the run is
    # resumed before the approver has decided, the first name has an answer, so the run pauses again under the next
    # name.
    for name in _names():
        context.interrupt(name, reason=asked)


def find_user_rejection(context: ExecuteToolContext) -> str | None:
    """Return the user's reason if the user rejected the call in the framework, else None."""
    if not can_pause(context):
        return None
    for name in _names():
        answer = context.interrupt(name, response=_NONE).response
        if answer is _NONE:
            return None
        if (why := find_rejection(answer)) is not None:
            return why
    return None


def _names() -> Iterator[str]:
    yield "toolgate"
    for number in count(2):
        yield f"toolgate-{number}"


_NONE: Final = object()


def function_of(tool: Any) -> object:
    """Return the Python function of a tool, or None.

    The tool object itself is never returned, because the framework calls its `stream` method and not the object.
    """
    if isinstance(tool, (DecoratedFunctionTool, PythonAgentTool)):
        return tool._tool_func  # noqa: SLF001 - there is no public attribute
    return None


def schema_of(tool: Any) -> ArgumentSchema:
    """Return the schema with which the framework validates the arguments of a tool."""
    if isinstance(tool, DecoratedFunctionTool):
        metadata = tool._metadata  # noqa: SLF001 - only this attribute can validate arguments
        return CustomSchema(metadata.validate_input, lambda received: encoded(metadata.input_model, received))
    spec: Any = getattr(tool, "tool_spec", None) or {}
    schema = (spec.get("inputSchema") or {}).get("json")
    return JsonSchema(schema if isinstance(schema, dict) and isinstance(tool, MCPAgentTool) else None)


def is_output_format(tool: Any) -> bool:
    """Return whether a tool only describes the format of a structured output, so that its calls are not checked."""
    return isinstance(tool, StructuredOutputTool)


def served_by(tool: Any, name: str) -> tuple[str | None, str]:
    """Return the server name of a tool, and the tool's name on that server.

    Returns:
        Server name and tool name. The server name is None for a local tool; for a remote tool, it is the prefix of the
        tools of its server, or empty without a prefix.
    """
    if not isinstance(tool, MCPAgentTool):
        return None, name
    own: str = tool.mcp_tool.name
    return name.removesuffix(own).removesuffix("_"), own


class GuardPlugin(Plugin):
    """Plugin that checks and logs every tool call of an agent, made by the model or with `agent.tool`.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<prefix>.<name>` for a tool of an MCP server.
        agents: Toolgate agent ids by the names given to `Agent(name=…)`. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses with an interrupt. `wait`: wait
            for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`: the model
            reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    name = "toolgate"

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = None,
    ) -> None:
        super().__init__()
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)

    def init_agent(self, agent: Any) -> None:
        """Add the guard's middleware and hook to an agent; the framework calls this method."""
        agent.add_middleware(ExecuteToolStage, self._around)
        # The framework converts exceptions to text for the model, except those that a hook raises.
        agent.add_hook(self._raise_fatal, AfterToolCallEvent)

    def _raise_fatal(self, event: AfterToolCallEvent[Any]) -> None:
        """End the run if a call did not run because of a setup error, or is pending and `on_hold` is `raise`."""
        if (error := find_error(event.exception, self._bridge.fatal)) is not None:
            raise error

    async def _around(self, context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[TypedEvent, None]:
        if is_output_format(context.tool):
            async for event in next_fn(context):
                yield event
            return

        async def carry_out(emit: Emit) -> TypedEvent:
            return await self._carry_out(context, next_fn, emit)

        async for event in relay_events(carry_out):
            yield event

    async def _carry_out(self, context: ExecuteToolContext, next_fn: Next, emit: Emit) -> TypedEvent:
        if not isinstance(context.tool_use["input"], dict):
            return _error_result(context, UNREADABLE)
        call = self._call(context)

        async def run(arguments: dict[str, Any]) -> ToolResultEvent:
            return await run_approved_tool(context, next_fn, call.to_send(arguments), emit)

        try:
            if (why := find_user_rejection(context)) is not None:
                return _error_result(context, await self._bridge.areject(call, why))
            return await self._bridge.arun(call, run, failed, PAUSES)
        except StoppedError as stopped:
            return stopped.event
        except GuardError as error:
            if self._bridge.pauses_for(error) and can_pause(context):
                pause(context, error)
            return _error_result(context, self._bridge.refusal(error))

    def _call(self, context: ExecuteToolContext) -> ToolCall:
        used, agent, tool = context.tool_use, context.agent, context.tool
        # A hook may have replaced the tool. The call is checked under the name of the tool that will run.
        name = used["name"] if tool is None else tool.tool_name
        server, own_name = served_by(tool, name)
        # The id is omitted if the call cannot pause: the repeated call has another id, which the approval would not
        # cover.
        comes_again = self._bridge.names_calls and can_pause(context)
        # The session id is omitted without a session manager, because it differs after a restart of the process.
        kept = getattr(agent, "_session_manager", None) is not None
        received = receive_or_keep(used["input"], schema_of(tool))
        return ToolCall(
            name,
            received.values,
            received=received,
            call_id=used["toolUseId"] if comes_again else None,
            run_id=agent.session_id if kept else None,
            agent=agent.name,
            function=function_of(tool),
            server=server,
            own_name=own_name,
        )


def _error_result(context: ExecuteToolContext, text: str) -> ToolResultEvent:
    told = {"toolUseId": context.tool_use["toolUseId"], "status": "error", "content": [{"text": text}]}
    return ToolResultEvent(told)
