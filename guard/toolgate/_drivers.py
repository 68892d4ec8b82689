"""Drivers, which perform the I/O of a guarded call, such as sending a check or writing a log entry.

A flow is a generator that contains the rules of one guarded call. It does no I/O itself, but yields requests for I/O
(effects, see `_effects`). `Driver` performs them on the calling thread, `AsyncDriver` in the calling task. `drive` and
`adrive` run a flow until it yields `RunTool`. Then `_invocation` or `_generators` runs the tool, and a second call of
`drive` continues the flow with the tool's outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from toolgate._call import OnHold, OnHoldWord
from toolgate._effects import (
    AskCaller,
    CancelApproval,
    Cleanup,
    Flow,
    GetApproval,
    HandOver,
    Interrupted,
    Outcome,
    RunTool,
    SendCheck,
    Sleep,
    Steps,
    WriteEntry,
    WriteIntent,
)
from toolgate._options import valid_answer
from toolgate._telemetry import flow_failed
from toolgate.errors import ConfigurationError, GatewayProtocolError

if TYPE_CHECKING:
    from toolgate._http.client import AsyncGatewayClient, GatewayClient
    from toolgate._outbox.recorder import Recorder

__all__ = ["AsyncDriver", "Driver", "adrive", "drive", "elapsed_ms", "ensure_authorized", "finish"]

T = TypeVar("T")
# While a task waits for a cleanup, its caller or an event loop that ends may cancel the task. The task then waits again,
# but at most this many times.
_MAX_RESTARTS: Final = 3
# Maximum seconds to wait for the end of a cleanup. If the waiting task is cancelled, this time starts again.
_CLEANUP_TIMEOUT: Final = 4.0


@dataclass(slots=True, eq=False)
class Driver:
    """Performs the effects (requests for I/O) of one synchronous call, on the calling thread.

    Args:
        client: Client of the gateway.
        recorder: Object that writes log entries to the outbox.
        on_hold: Reaction to a required approval: raise an error, wait, or call a function that decides.
        sleep: Function that pauses the thread for a number of seconds.
    """

    client: GatewayClient
    recorder: Recorder
    on_hold: OnHold = "raise"
    sleep: Callable[[float], None] = time.sleep

    def perform(self, effect: object) -> object:
        """Perform one effect (request for I/O), and return the reply to it."""
        match effect:
            case SendCheck():
                return self.client.check(effect.check, effect.seconds)
            case WriteIntent():
                return self.recorder.intend(effect.entry, may_be_lost=effect.may_be_lost)
            case WriteEntry():
                self.recorder.record(effect.entry, effect.intent)
            case GetApproval():
                return self.client.approval(effect.approval_id, effect.wait)
            case CancelApproval():
                return self.client.cancel(effect.approval_id, effect.seconds)
            case Sleep():
                self.sleep(effect.seconds)
            case AskCaller():
                return self._ask(effect)
            case Cleanup():
                drive(effect.make_flow(), self)
            case _:
                raise TypeError(f"{effect!r} is not an effect")
        return None

    def _ask(self, effect: AskCaller) -> OnHoldWord:
        answer: object = self.on_hold if isinstance(self.on_hold, str) else self.on_hold(effect.pending)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigurationError(
                f"on_hold {self.on_hold!r} returned an awaitable, but the call is synchronous; use a plain function"
            )
        return valid_answer(self.on_hold, answer)


@dataclass(slots=True, eq=False)
class AsyncDriver:
    """Performs the effects (requests for I/O) of one asynchronous call, in the calling task.

    Args:
        client: Client of the gateway.
        recorder: Object that writes log entries to the outbox.
        on_hold: As for `Driver`.
        sleep: Coroutine function that pauses the task for a number of seconds.
    """

    client: AsyncGatewayClient
    recorder: Recorder
    on_hold: OnHold = "raise"
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def perform(self, effect: object) -> object:
        """Perform one effect (request for I/O), and return the reply to it."""
        match effect:
            case SendCheck():
                return await self.client.check(effect.check, effect.seconds)
            case WriteIntent():
                return await self.recorder.aintend(effect.entry, may_be_lost=effect.may_be_lost)
            case WriteEntry():
                # No `await` is used here, because a coroutine that is being closed also writes its log entry here, and
                # must not await.
                self.recorder.record(effect.entry, effect.intent)
            case GetApproval():
                return await self.client.approval(effect.approval_id, effect.wait)
            case CancelApproval():
                return await self.client.cancel(effect.approval_id, effect.seconds)
            case Sleep():
                await self.sleep(effect.seconds)
            case AskCaller():
                return await self._ask(effect)
            case Cleanup():
                await self.clean_up(effect, None)
            case _:
                raise TypeError(f"{effect!r} is not an effect")
        return None

    async def clean_up(self, effect: Cleanup, error: BaseException | None) -> None:
        """Withdraw the approval request of an interrupted call in a separate task, which a cancellation does not stop.

        Wait until that task has ended. If `error` is a `GeneratorExit`, do not wait, because a coroutine that is being
        closed must not await anything.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # The event loop ended before the coroutine was closed. Without an event loop, no request can be sent.
            return
        cleanup = _CleanupTask(lambda: adrive(effect.make_flow(), self))
        if not isinstance(error, GeneratorExit):
            await cleanup.wait()

    async def _ask(self, effect: AskCaller) -> OnHoldWord:
        answer: object = self.on_hold if isinstance(self.on_hold, str) else self.on_hold(effect.pending)
        if inspect.isawaitable(answer):
            answer = await cast("Awaitable[object]", answer)
        return valid_answer(self.on_hold, answer)


@overload
def drive(flow: Flow, driver: Driver, outcome: Outcome | None = None) -> RunTool | HandOver | None: ...
@overload
def drive(flow: Steps[T]) -> T: ...
def drive(
    flow: Generator[Any, Any, Any], driver: Driver | None = None, outcome: Outcome | None = None
) -> Any:
    """Run a flow (a generator that yields requests for I/O, see `_effects`) until the tool must run or the flow ends.

    Args:
        flow: The generator with the rules of one guarded call.
        driver: Object that performs each effect that the flow yields; the reply is sent back into the flow. None for
            a flow that yields only `Invoke`.
        outcome: None to start the flow; after the tool has run, its result or exception, to continue the flow.

    Returns:
        `RunTool` if the caller must run the tool now, `HandOver` if another process must run it. At the end, the
        result of the generator, which is None for a guarded call.
    """
    reply: object = outcome
    failure: BaseException | None = None
    try:
        while True:
            try:
                effect = flow.send(reply) if failure is None else flow.throw(failure)
            except StopIteration as end:
                return end.value
            failure = None
            if isinstance(effect, RunTool | HandOver):
                return effect
            try:
                reply = effect.run() if driver is None else driver.perform(effect)
            except Exception as error:
                if isinstance(effect, AskCaller):
                    raise
                failure = error
            except BaseException as error:
                if driver is not None:
                    for cleanup in _interrupt(flow):
                        driver.perform(cleanup)
                    raise
                failure = error
    except BaseException as error:
        flow_failed(flow, error)
        raise


@overload
async def adrive(
    flow: Flow, driver: AsyncDriver, outcome: Outcome | None = None
) -> RunTool | HandOver | None: ...
@overload
async def adrive(flow: Steps[T]) -> T: ...
async def adrive(
    flow: Generator[Any, Any, Any], driver: AsyncDriver | None = None, outcome: Outcome | None = None
) -> Any:
    """Asynchronous form of `drive`.

    With an `outcome`, this function awaits nothing: a coroutine that is being closed calls it and must not await.
    """
    reply: object = outcome
    failure: BaseException | None = None
    try:
        while True:
            try:
                effect = flow.send(reply) if failure is None else flow.throw(failure)
            except StopIteration as end:
                return end.value
            failure = None
            if isinstance(effect, RunTool | HandOver):
                return effect
            try:
                reply = await (effect.arun() if driver is None else driver.perform(effect))
            except Exception as error:
                if isinstance(effect, AskCaller):
                    raise
                failure = error
            except BaseException as error:
                if driver is not None:
                    for cleanup in _interrupt(flow):
                        await driver.clean_up(cleanup, error)
                    raise
                failure = error
    except BaseException as error:
        flow_failed(flow, error)
        raise


def finish(flow: Flow, driver: Driver | AsyncDriver, outcome: Outcome) -> None:
    """Log the outcome of a tool. This function never waits, because the garbage collector may call it."""
    reply: object = outcome
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration:
            return
        if isinstance(effect, WriteEntry):
            driver.recorder.record(effect.entry, effect.intent)
        reply = None


def ensure_authorized(effect: object) -> None:
    """Raise an error unless `effect`, the result of `drive` or `adrive`, is `RunTool`, which allows the tool to run.

    Raises:
        GatewayProtocolError: The flow of the call ended without allowing the tool to run.
    """
    if not isinstance(effect, RunTool):
        raise GatewayProtocolError(
            "internal error of Toolgate: the gateway did not authorize the call and no reason is known "
            f"({effect!r}); the tool did not run; report this as a bug"
        )


def elapsed_ms(began: float) -> float:
    """Return the milliseconds since `began`, a value of `time.perf_counter`."""
    return round((time.perf_counter() - began) * 1000, 3)


def _interrupt(flow: Flow) -> list[Cleanup]:
    """Throw `Interrupted` into the generator of a call, and return the `Cleanup` effects that it then yields."""
    cleanups: list[Cleanup] = []
    with suppress(StopIteration, Interrupted):
        effect = flow.throw(Interrupted())
        while True:
            if isinstance(effect, Cleanup):
                cleanups.append(effect)
            effect = flow.send(None)
    return cleanups


class _CleanupTask:
    """Task that withdraws an interrupted call's approval request; restarted if an ending event loop cancels it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._task = self._start()

    async def wait(self) -> None:
        """Wait a few seconds for the cleanup task to end, even if the waiting task is cancelled.

        When an event loop ends, it cancels both the waiting task and the cleanup task, and then waits for both. During
        this wait, the cleanup is started again if it was cancelled.
        """
        restarts = _MAX_RESTARTS
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=_CLEANUP_TIMEOUT)
                if not self._task.cancelled():
                    return
            if restarts == 0:
                return
            restarts -= 1
            if self._task.cancelled():
                self._task = self._start()

    def _start(self) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(self._make())
        # An event loop has only weak references to its tasks: without a reference in this set, a running task could be
        # garbage-collected.
        _cleanup_tasks.add(task)
        task.add_done_callback(_cleanup_tasks.discard)
        return task


_cleanup_tasks: Final = set[asyncio.Task[Any]]()
