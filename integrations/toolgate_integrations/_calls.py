"""Classes for a tool call after its check: an allowed call, its stored outcome, and a paused call."""

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
# Values in a user's answer that mean a rejection of the call. The last three come from LangChain's
# HumanInTheLoopMiddleware and agent inbox.
_REJECTIONS: Final = frozenset(
    ("n", "no", "false", "reject", "rejected", "deny", "denied", "decline", "declined")
) | {"respond", "response", "ignore"}


def invoke(function: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Generator that calls a function and returns its result.

    If an asynchronous driver runs the generator, the function must return an awaitable.
    """
    call = partial(function, *args)
    return (yield Invoke(call, call))


class Begun:
    """A call that the gateway has allowed to run.

    Exactly one of `run`, `arun`, `steps` and `not_run` must be called; it logs the outcome of the call.

    Attributes:
        arguments: The approved arguments.
        asks_itself: True if the tool's function is decorated with `@guarded`; it then checks and logs the call itself.
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
            failed: Function that returns the error message in a result, or None if the result is not an error; for
                frameworks that return errors instead of raising them.
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
        """Generator behind `run` and `arun`: runs the generator `tool`, logs its outcome, and returns its result."""
        try:
            with self._inside(), self._block:
                return _checked((yield from tool), failed)
        except _FailedError as failure:
            result: T = failure.result
            return result

    def not_run(self, error: Exception) -> None:
        """Log the call as failed with `error`, because the framework did not run the tool; `error` is not raised."""
        with suppress(Exception), self._block:
            raise error


class RunOnce:
    """Stored outcome of a call, so that the tool runs only once even if the framework executes the call several times.

    Args:
        interrupted: Exception to raise if the call is executed again while its first execution is running, or after
            the first execution was interrupted.

    Attributes:
        began: True after the first execution has begun.
        is_running: True during the first execution.
        error: Exception that the call raised, or None.
    """

    def __init__(self, interrupted: Exception) -> None:
        self.began = self.is_running = False
        self.error: BaseException | None = interrupted
        self._result: Any = None

    def steps(self, tool: Steps[T]) -> Steps[T]:
        """Generator that runs `tool` at the first execution; later executions return or raise the stored outcome."""
        if not self.began:
            self.began = self.is_running = True
            try:
                self._result = yield from tool
                self.error = None
            except Exception as error:  # noqa: BLE001 - raised below, and again at later executions
                self.error = error
            finally:
                self.is_running = False
        if self.error is not None:
            raise self.error
        result: T = self._result
        return result


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call that has paused its run.

    Attributes:
        call: The call, with the arguments that were checked.
        rejected: Reason why the framework's user rejected the call; None if the user did not reject it.
        approval_id: Id of the call's approval request; None if the framework does not store it.
    """

    call: ToolCall
    rejected: str | None = None
    approval_id: str | None = None


def find_rejection(answer: object) -> str | None:
    """Return the user's reason if an answer to a paused call rejects the call, or None for any other answer.

    An answer can only reject a call, because only the gateway can approve it. An answer is a rejection if it is False
    or a word such as `no` or `reject`, or if it is a mapping with such a value under `approved`, `response` or
    `type`. If the answer is a mapping, its `message`, `reason` or `args` is the reason. Without a reason, the result is
    "".
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
    """Store for the ids of approval requests that guarded functions created, by the framework's run id and call id.

    Only the newest 4096 calls are kept.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def watching(self, call: ToolCall) -> Iterator[None]:
        """Store the id of an approval request that a guarded function creates inside the `with` block."""
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
        """Remove the stored approval request of a call, and return its id, or None if none is stored."""
        with self._lock:
            return None if call.call_id is None else self._held.pop((call.run_id, call.call_id), None)


class NotRunError(Exception):
    """Raised to leave an action block that only looked up a call's approval request; the tool does not run."""


def raise_pending(pending: ApprovalPending) -> NoReturn:
    """Raise the error `pending` of a call that requires an approval.

    Action blocks receive this function as `on_hold`. With the value "raise" instead, the SDK would check a call with an
    id a second time.
    """
    raise pending


class _FailedError(Exception):
    """Exception with the error message that was found in a tool's result.

    It is raised inside the action block so that the call is logged as failed. The result itself is still returned to
    the framework.
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
    """Leave an action block, whether it was entered synchronously or asynchronously.

    Both exit methods are called, because the one that does not match the entry has no effect.
    """
    block.__exit__(kind, error, trace)
    with suppress(StopIteration):
        # `__aexit__` awaits nothing, so one `send` runs it to its end without an event loop.
        block.__aexit__(kind, error, trace).send(None)
