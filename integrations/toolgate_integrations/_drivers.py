"""Functions that run operations synchronously or asynchronously, and the tool calls that operations begin.

An operation is a generator that yields requests for I/O (`Request`). `drive` performs the requests on the calling thread,
`adrive` in the calling task.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

from toolgate import ApprovalPending
from toolgate_integrations._naming import ToolCall

__all__ = ["Begun", "HeldCalls", "Request", "Steps", "adrive", "drive", "invoke", "leave"]

T = TypeVar("T")
_MAX_HELD: Final = 4096
Steps: TypeAlias = Generator["Request", Any, T]


@dataclass(frozen=True, slots=True)
class Request:
    """Request of an operation for I/O: `run` performs it on the calling thread, `arun` in the calling task."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


def drive(steps: Steps[T]) -> T:
    """Run an operation to its end on the calling thread, and return its result."""
    try:
        request = next(steps)
        while True:
            try:
                reply = request.run()
            except BaseException as error:  # noqa: BLE001 - the operation handles it, or raises it again
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(steps: Steps[T]) -> T:
    """Run an operation to its end in the calling task, and return its result."""
    try:
        request = next(steps)
        while True:
            try:
                reply = await request.arun()
            except BaseException as error:  # noqa: BLE001 - the operation handles it, or raises it again
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


def invoke(tool: Callable[[], Any]) -> Steps[Any]:
    """Operation that calls a function; if the operation runs asynchronously, the function returns an awaitable."""
    return (yield Request(tool, tool))


class Begun:
    """A call that is allowed to run; `run`, `arun`, `steps` or `not_run` logs its outcome once.

    Attributes:
        arguments: The approved arguments.
        asks_itself: True if the call's function is itself guarded, and checks and logs the call itself.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        inside: Callable[[], AbstractContextManager[None]],
        block: ExitStack | None,
    ) -> None:
        self.arguments = dict(arguments)
        self.asks_itself = block is None
        self._inside = inside
        self._block = block or ExitStack()

    def run(self, tool: Callable[[], T], failed: Callable[[T], str | None] = lambda _: None) -> T:
        """Run the tool, in any thread, and log its outcome.

        Args:
            tool: Function that runs the tool.
            failed: Function that returns the error message in a result, for frameworks that return errors instead of
                raising them; None if the result is not an error.
        """
        try:
            with self._inside(), self._block:
                return _checked(tool(), failed)
        except _FailedError as failure:
            result: T = failure.result
            return result

    async def arun(
        self, tool: Callable[[], Awaitable[T]], failed: Callable[[T], str | None] = lambda _: None
    ) -> T:
        """Asynchronous form of `run`."""
        try:
            with self._inside(), self._block:
                return _checked(await tool(), failed)
        except _FailedError as failure:
            result: T = failure.result
            return result

    def steps(self, tool: Steps[T], failed: Callable[[T], str | None] = lambda _: None) -> Steps[T]:
        """Operation that runs another operation as the tool, and logs its outcome, like `run`."""
        try:
            with self._inside(), self._block:
                return _checked((yield from tool), failed)
        except _FailedError as failure:
            result: T = failure.result
            return result

    def not_run(self, error: Exception) -> None:
        """Log that the framework has not run the tool, with `error` as the reason; `error` is not raised."""
        with suppress(Exception), self._block:
            raise error


class HeldCalls:
    """Ids of the approval requests that guarded functions created themselves, by the framework's run and call ids.

    Only the newest calls are kept.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def watching(self, call: ToolCall) -> Iterator[None]:
        """Remember the approval request that a guarded function creates inside the block."""
        self.forget(call)
        try:
            yield
        except ApprovalPending as pending:
            if call.call_id is not None:
                with self._lock:
                    self._held[call.run_id, call.call_id] = pending.approval_id
                    if len(self._held) > _MAX_HELD:
                        self._held.popitem(last=False)
            raise

    def forget(self, call: ToolCall) -> str | None:
        """Remove and return the approval id of a call, or None."""
        with self._lock:
            return None if call.call_id is None else self._held.pop((call.run_id, call.call_id), None)


class _FailedError(Exception):
    """Error message that was found in a tool's result.

    It is raised to log the call as failed; the result is still returned to the framework.
    """

    def __init__(self, why: str, result: Any) -> None:
        super().__init__(why)
        self.result = result


def _checked(result: T, failed: Callable[[T], str | None]) -> T:
    why = failed(result)
    if why is not None:
        raise _FailedError(why, result)
    return result


def leave(
    block: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Leave an action block that was entered synchronously or asynchronously.

    The exit that does not match the entry has no effect, so both can be called.
    """
    block.__exit__(kind, error, trace)
    with suppress(StopIteration):
        # `__aexit__` awaits nothing, so it can be run without an event loop.
        block.__aexit__(kind, error, trace).send(None)
