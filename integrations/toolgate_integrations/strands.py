"""Strands Agents: `Agent(…, plugins=[GuardPlugin()])`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from toolgate import ApprovalPending, Guard, GuardError
from toolgate_integrations._arguments import encoded, receive_or_keep
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
from toolgate_integrations.refusals import OtherArgumentsError

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
    """The tool stopped for a person by itself: it is called again when they have answered.

    Attributes:
        event: What it told the agent.
    """

    def __init__(self, event: TypedEvent) -> None:
        super().__init__("the tool stopped for a person")
        self.event = event


#: what ends a call that comes again
PAUSES: Final = (InterruptException, StoppedError, ApprovalPending)


async def relayed(produce: Callable[[Emit], Awaitable[TypedEvent]]) -> AsyncGenerator[TypedEvent, None]:
    """Yield the events of a call that runs in its own task, and finally its result.

    A block that is begun in a generator's body would leak whose call it is to whoever iterates. The call goes on when
    its event was taken, as if there were no task, and is cancelled when nobody takes any more.

    Args:
        produce: Carries out the call; is given what hands on an event.
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


async def carried(
    context: ExecuteToolContext, next_fn: Next, arguments: dict[str, Any], emit: Emit
) -> ToolResultEvent:
    """Let the framework run the tool with what was approved.

    Args:
        context: The framework's context of the call.
        next_fn: Runs what stands between here and the tool, and the tool.
        arguments: As they were approved.
        emit: Hands on the events of the tool.

    Returns:
        The tool's result, which may be an error.

    Raises:
        StoppedError: It stopped for a person by itself.
        GuardError: A function that is guarded, inside the tool, did not run.
    """
    used = {**context.tool_use, "input": arguments}
    tool = None if context.tool is None else _ApprovedTool(context.tool, _kept(arguments))
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
        raise RuntimeError(f"a middleware after the guard gave no result of the tool {used['name']!r}")
    # The framework has told it to the model as the tool's error.
    if isinstance(result.exception, GuardError):
        raise result.exception
    if tool is not None and not tool.was_called:
        return _Elsewhere(result)
    return result


def failed(result: ToolResultEvent) -> str | None:
    """Return the error message in a result, or None."""
    if isinstance(result, _Elsewhere):
        return "the tool was not called: a middleware that was added after the guard answered in its place"
    if result.exception is not None:
        return f"{type(result.exception).__name__}: {result.exception}"
    told = result.tool_result
    if told["status"] != "error":
        return None
    return " ".join(each["text"] for each in told["content"] if "text" in each) or "the tool says it failed"


class _Elsewhere(ToolResultEvent):
    """A result that is not the tool's."""

    def __init__(self, result: ToolResultEvent) -> None:
        super().__init__(result.tool_result, result.exception)


class _ApprovedTool(wrapt.ObjectProxy):  # type: ignore[type-arg]  # a subscript fails at run time
    """A tool that runs with the arguments that were approved, and no others."""

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
        # What compares as equal may yet be another, as 1 and True are.
        used = {**tool_use, "input": self._self_approved}
        async for event in self.__wrapped__.stream(used, invocation_state, **kwargs):
            yield event


def _kept(value: Any) -> Any:
    """A value that nobody changes in place; what a direct call was given beside JSON stays the same object."""
    if isinstance(value, dict):
        return {name: _kept(each) for name, each in value.items()}
    return [_kept(each) for each in value] if isinstance(value, list) else value


def can_pause(context: ExecuteToolContext) -> bool:
    """Return whether a run can pause for the call: not for direct calls and background calls."""
    return type(context) is ExecuteToolContext and "event_loop_cycle_id" in context.invocation_state


def pause(context: ExecuteToolContext, pending: ApprovalPending) -> None:
    """Stop the run for a held call.

    Raises:
        InterruptException: Always; the framework takes it.
    """
    asked = {
        "type": "tool_approval",
        "tool_use_id": context.tool_use["toolUseId"],
        "name": context.tool_use["name"],
        "input": context.tool_use["input"],
        **describe_pending(pending),
    }
    # An answer ends one pause only: whoever was woken too early stops anew, under another name.
    for name in _names():
        context.interrupt(name, reason=asked)


def rejected(context: ExecuteToolContext) -> str | None:
    """Return the reason why a user rejected the call in the framework, or None."""
    if not can_pause(context):
        return None
    for name in _names():
        answer = context.interrupt(name, response=_NONE).response
        if answer is _NONE:
            return None
        if (why := _no(answer)) is not None:
            return why
    return None


def _no(answer: object) -> str | None:
    """Return the reason of an answer that rejects the call, or None for any other answer."""
    if answer is False or (isinstance(answer, str) and answer.strip().lower() in _NOES):
        return ""
    if isinstance(answer, Mapping) and answer.get("approved") is False:
        said: Any = answer.get("message")
        return said if isinstance(said, str) else ""
    return None


def _names() -> Iterator[str]:
    yield "toolgate"
    for number in count(2):
        yield f"toolgate-{number}"


_NONE: Final = object()
_NOES: Final = frozenset({"n", "no", "reject", "rejected", "deny", "denied", "decline", "declined"})


def function_of(tool: Any) -> object:
    """Return the Python function of a tool, or None.

    Never the tool itself: the framework calls its `stream`, past whatever was put around the tool.
    """
    if isinstance(tool, (DecoratedFunctionTool, PythonAgentTool)):
        return tool._tool_func  # noqa: SLF001 - its only name
    return None


def schema_of(tool: Any) -> ArgumentSchema:
    """Return the schema by which the framework validates the calls of a tool."""
    if isinstance(tool, DecoratedFunctionTool):
        metadata = tool._metadata  # noqa: SLF001 - the one place where it validates
        return CustomSchema(metadata.validate_input, lambda received: encoded(metadata.input_model, received))
    spec: Any = getattr(tool, "tool_spec", None) or {}
    schema = (spec.get("inputSchema") or {}).get("json")
    return JsonSchema(schema if isinstance(schema, dict) and isinstance(tool, MCPAgentTool) else None)


def is_output(tool: Any) -> bool:
    """Return whether a tool is only the format of a structured output."""
    return isinstance(tool, StructuredOutputTool)


def served_by(tool: Any, name: str) -> tuple[str | None, str]:
    """Return the prefix of a remote tool's server, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty for a server that nobody named.
    """
    if not isinstance(tool, MCPAgentTool):
        return None, name
    own: str = tool.mcp_tool.name
    return name.removesuffix(own).removesuffix("_"), own


class GuardPlugin(Plugin):
    """Guards every tool call of an agent: the model's, and those made with `agent.tool`.

    Args:
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function of the name. The default action is
            `tools.<name>`, and `<prefix>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `Agent(name=…)`.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses with an interrupt. `wait`: wait
            for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`: the model
            reads that the call is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.

    Raises:
        ConfigurationError: An argument is wrong.
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
        self._bridge = Bridge(
            guard,
            tool_actions=tool_actions,
            agents=agents,
            on_hold=on_hold,
            hold_timeout=hold_timeout,
            can_pause=True,
        )

    def init_agent(self, agent: Any) -> None:
        """Stand around the tools of an agent; the framework calls this.

        Args:
            agent: The agent.
        """
        agent.add_middleware(ExecuteToolStage, self._around)
        # The framework makes text for the model of every exception, but of none that a hook raises.
        agent.add_hook(self._raise_fatal, AfterToolCallEvent)

    def _raise_fatal(self, event: AfterToolCallEvent[Any]) -> None:
        """End the run if a call did not run because of a setup error, or of a pending approval with `raise`."""
        if (error := find_error(event.exception, self._bridge.fatal)) is not None:
            raise error

    async def _around(self, context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[TypedEvent, None]:
        if is_output(context.tool):
            async for event in next_fn(context):
                yield event
            return

        async def carry_out(emit: Emit) -> TypedEvent:
            return await self._carry_out(context, next_fn, emit)

        async for event in relayed(carry_out):
            yield event

    async def _carry_out(self, context: ExecuteToolContext, next_fn: Next, emit: Emit) -> TypedEvent:
        if not isinstance(context.tool_use["input"], dict):
            return _told(context, _UNREADABLE)
        call = self._call(context)

        async def run(arguments: dict[str, Any]) -> ToolResultEvent:
            return await carried(context, next_fn, call.to_send(arguments), emit)

        try:
            if (why := rejected(context)) is not None:
                await self._bridge.areject(call, why)
                return _told(context, f"Not done: it was rejected. {why}".strip())
            return await self._bridge.arun(call, run, failed, PAUSES)
        except StoppedError as stopped:
            return stopped.event
        except ApprovalPending as pending:
            if self._bridge.on_hold == "pause" and can_pause(context):
                pause(context, pending)
            return _told(context, self._bridge.refusal(pending))
        except GuardError as error:
            return _told(context, self._bridge.refusal(error))

    def _call(self, context: ExecuteToolContext) -> ToolCall:
        used, agent, tool = context.tool_use, context.agent, context.tool
        # A hook may have put another tool in the place of the one that was called: it is the one to ask about.
        name = used["name"] if tool is None else tool.tool_name
        server, own_name = served_by(tool, name)
        # Told that it waits, a model asks again by another id, and so does whoever calls a tool directly.
        comes_again = self._bridge.names_calls and can_pause(context)
        # Without a session manager the session's id is one of this object, and another after a restart.
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


def _told(context: ExecuteToolContext, text: str) -> ToolResultEvent:
    told = {"toolUseId": context.tool_use["toolUseId"], "status": "error", "content": [{"text": text}]}
    return ToolResultEvent(told)


_UNREADABLE = "Not done: the arguments are not a JSON object. Call the tool again with valid JSON."
