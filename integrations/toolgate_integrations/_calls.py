"""Tool calls after their check: calls that may run, run once, or are paused."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

from toolgate import ApprovalPending
from toolgate._drivers import adrive, drive
from toolgate._effects import Invoke, Steps
from toolgate_integrations._naming import ToolCall

__all__ = [
    "Begun",
    "HeldCalls",
    "NotRunError",
    "PausedCall",
    "RunOnce",
    "find_rejection",
    "invoke",
    "leave",
    "raise_pending",
]

T = TypeVar("T")
_MAX_HELD: Final = 4096
_MAX_REASON: Final = 2000
# Besides the usual words, those of LangChain's HumanInTheLoopMiddleware and agent inbox.
_REJECTIONS: Final = frozenset(
    ("n", "no", "false", "reject", "rejected", "deny", "denied", "decline", "declined")
) | {"respond", "response", "ignore"}


def invoke(function: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Operation that calls a function; if the operation runs asynchronously, the function returns an awaitable."""
    call = partial(function, *args)
    return (yield Invoke(call, call))


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
        result: T = drive(self.steps(invoke(tool), failed))
        return result

    async def arun(
        self, tool: Callable[[], Awaitable[T]], failed: Callable[[T], str | None] = lambda _: None
    ) -> T:
        """Asynchronous form of `run`."""
        result: T = await adrive(self.steps(invoke(tool), failed))
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


class RunOnce:
    """Result or exception of a call that runs only once, even if the framework executes it several times.

    Args:
        interrupted: Exception for an execution while the first one is still running, or after it was interrupted.

    Attributes:
        began: True once the call has been executed.
        is_running: True while the call is executed the first time.
        error: Exception of the call, or None.
    """

    def __init__(self, interrupted: Exception) -> None:
        self.began = self.is_running = False
        self.error: BaseException | None = interrupted
        self._result: Any = None

    def steps(self, tool: Steps[T]) -> Steps[T]:
        """Operation that runs `tool` the first time, and then returns or raises the same outcome again."""
        if not self.began:
            self.began = self.is_running = True
            try:
                self._result = yield from tool
                self.error = None
            except Exception as error:  # noqa: BLE001 - raised below, also for later executions
                self.error = error
            finally:
                self.is_running = False
        if self.error is not None:
            raise self.error
        result: T = self._result
        return result


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call for which a run is paused.

    Attributes:
        call: The call, as it was checked.
        rejected: Reason why the framework's user rejected the call; None if the user did not.
        approval_id: Id of its approval request; None if the framework does not store it.
    """

    call: ToolCall
    rejected: str | None = None
    approval_id: str | None = None


def find_rejection(answer: object) -> str | None:
    """Return the reason in a user's answer to a paused call if it rejects the call, or None for any other answer.

    Only rejections have an effect: a call is approved at the gateway. A call is rejected by False or a word such as
    `no` or `reject`, also as `approved`, `response` or `type` of a mapping, whose `message`, `reason` or `args` is the
    reason.
    """
    if _is_no(answer):
        return ""
    if not isinstance(answer, Mapping) or not any(
        _is_no(answer.get(name)) for name in ("approved", "response", "type")
    ):
        return None
    reasons = (answer.get(name) for name in ("message", "reason", "args"))
    return next((each for each in reasons if isinstance(each, str)), "")[:_MAX_REASON]


def _is_no(answer: object) -> bool:
    return answer is False or (isinstance(answer, str) and answer.strip().lower() in _REJECTIONS)


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


class NotRunError(Exception):
    """Ends an allowed call that was only checked to find its approval request; the tool does not run."""


def raise_pending(pending: ApprovalPending) -> NoReturn:
    """Raise the exception; as the `on_hold` function of a block, it prevents a second check."""
    raise pending


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
