"""One call of a tool of Strands, carried out within a task of its own while its events go on to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import wrapt
from strands.interrupt import InterruptException
from strands.middleware import ExecuteToolContext, ToolResultEvent, TypedEvent

from toolgate import ApprovalPending, GuardError
from toolgate_integrations._telling import OtherArgumentsError

__all__ = ["PAUSES", "Emit", "Next", "StoppedError", "carried", "failed", "relayed"]

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
    """The events of a call that is carried out in a task of its own, and what it returns at last.

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
    """What a result says went wrong."""
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
