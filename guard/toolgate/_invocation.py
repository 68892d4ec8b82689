"""Execution of a guarded tool: a function, coroutine function, generator or asynchronous generator.

A plain function may return a coroutine, a future or a generator, which does its work later. The outcome of such a call
is logged when that object has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import time
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import wrapt

from toolgate._callables import Kind
from toolgate._capture.jsontext import Json
from toolgate._drivers import AsyncDriver, Driver, adrive, drive, elapsed_ms, ensure_authorized, finish
from toolgate._effects import Flow, Outcome, Raised, Returned
from toolgate._flow import begin_flow
from toolgate._identity import take_approval
from toolgate._telemetry import detach_span

__all__ = ["RUNNERS", "Completion", "Invocation", "follow", "follow_async"]

if TYPE_CHECKING:
    from toolgate._capture.arguments import CallArguments
    from toolgate._options import Options
    from toolgate._state import GuardState

    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy


class Invocation:
    """One call of a decorated function: `begin` prepares its check and log entry, and `start` calls the tool.

    Args:
        options: Options of the decorator.
        state: State of the guard.
        arguments: The bound arguments; `begin` copies them.
        tool: The function; a method is bound to its instance or class.

    Attributes:
        on_hold: Reaction to a required approval: raise an error, wait, or call a function that decides.
    """

    def __init__(
        self, options: Options, state: GuardState, arguments: CallArguments, tool: Callable[..., Any]
    ) -> None:
        self.on_hold = options.on_hold
        self._options = options
        self.state = state
        self._arguments = arguments
        self._tool = tool
        # A coroutine or generator may run later, while another agent is set. The check must contain the agent that is
        # set now, when the tool is called.
        self._context = contextvars.copy_context()
        self._resumes = take_approval(state)

    def begin(self) -> Flow:
        """Copy the arguments for the check, and return the flow (the generator that checks and logs this call)."""
        captured = self._arguments.capture()
        return self._context.run(
            begin_flow,
            self._options,
            self.state,
            self._arguments,
            captured,
            self._resumes,
            verifies=bool(self._arguments.snapshot.changeable),
        )

    def start(self) -> Any:
        """Call the tool with the caller's arguments, or with the arguments that an approver edited."""
        args, kwargs = self._arguments.passed()
        return self._tool(*args, **kwargs)


def _run(invocation: Invocation) -> Any:
    flow, driver = invocation.begin(), invocation.state.driver(invocation.on_hold)
    ensure_authorized(drive(flow, driver))
    began = time.perf_counter()
    try:
        value = invocation.start()
    except BaseException as error:
        drive(flow, driver, Raised(error, elapsed_ms(began)))
        # A bare `raise` is used, because it leaves the `__context__` of the exception unchanged.
        raise
    if _is_unfinished(value):
        return _follow_result(value, invocation, flow, driver, began)
    drive(flow, driver, Returned(elapsed_ms(began)))
    return value


async def _arun(invocation: Invocation) -> Any:
    flow, driver = invocation.begin(), invocation.state.async_driver(invocation.on_hold)
    ensure_authorized(await adrive(flow, driver))
    began = time.perf_counter()
    try:
        value = await invocation.start()
    except BaseException as error:
        await adrive(flow, driver, Raised(error, elapsed_ms(began)))
        raise
    await adrive(flow, driver, Returned(elapsed_ms(began)))
    return value


def _iterate(invocation: Invocation) -> Generator[Any, Any, Any]:
    """Return a generator that checks the call when its first item is requested."""

    def begin() -> tuple[Generator[Any, Any, Any], Completion]:
        flow, driver = invocation.begin(), invocation.state.driver(invocation.on_hold)
        ensure_authorized(drive(flow, driver))
        completion = Completion(flow, driver)
        try:
            return invocation.start(), completion
        except BaseException as error:
            completion.finish_now(error)
            raise

    return follow(begin)


def _aiterate(invocation: Invocation) -> Any:
    """Return an asynchronous generator that checks the call when its first item is requested."""

    async def begin() -> tuple[Any, Completion]:
        flow, driver = invocation.begin(), invocation.state.async_driver(invocation.on_hold)
        ensure_authorized(await adrive(flow, driver))
        completion = Completion(flow, driver)
        try:
            return invocation.start(), completion
        except BaseException as error:
            await completion.afinish(error)
            raise

    return follow_async(begin)


def _is_unfinished(value: Any) -> bool:
    """Return True for an object that does its work later, such as a coroutine or a generator.

    Return False for a generator that has already begun, because other code is using it.
    """
    if isinstance(value, types.GeneratorType):
        return inspect.getgeneratorstate(value) == inspect.GEN_CREATED
    if isinstance(value, types.AsyncGeneratorType):
        return value.ag_frame is not None
    return hasattr(type(value), "__await__")


def _follow_result(value: Any, invocation: Invocation, flow: Flow, driver: Driver, began: float) -> Any:
    """Return `value` or a wrapper of it, so that the outcome of the call is logged when `value` has ended."""
    if isinstance(value, types.GeneratorType) and not value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        completion = Completion(flow, driver, began)
        return follow(lambda: (value, completion))
    if asyncio.isfuture(value):
        completion = Completion(flow, driver, began)
        value.add_done_callback(lambda future: _log_future(future, completion))
        return value
    completion = Completion(flow, invocation.state.async_driver(invocation.on_hold), began)
    if isinstance(value, types.AsyncGeneratorType):

        async def begin() -> tuple[Any, Completion]:
            return value, completion

        return follow_async(begin)
    if not isinstance(value, (types.CoroutineType, types.GeneratorType)):
        return _AwaitableProxy(value, completion)
    awaited: Any = _await(_UnawaitedCoroutine(value), completion)
    awaited.__name__, awaited.__qualname__ = value.__name__, value.__qualname__
    return awaited


class _AwaitableProxy(_Proxy):
    """Proxy of an awaitable object, with the same attributes. It logs the outcome when awaiting the object ends."""

    def __init__(self, value: Any, completion: Completion) -> None:
        super().__init__(value)
        # If the object is never awaited, success is logged, because the tool function has returned.
        completion.may_be_dropped()
        self._self_completion = completion

    def __await__(self) -> Generator[Any, Any, Any]:
        return _await(self.__wrapped__, self._self_completion).__await__()


class _UnawaitedCoroutine:
    """Closes a tool's coroutine if it is never awaited, so that Python warns only about the SDK's own coroutine."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, self._coroutine = self._coroutine, None
        return (yield from (coroutine.__await__() if hasattr(coroutine, "__await__") else coroutine))

    def __del__(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()


async def _await(value: Awaitable[Any], completion: Completion) -> Any:
    try:
        result = await value
    except GeneratorExit as error:
        completion.finish(error)
        raise
    except BaseException as error:
        await completion.afinish(error)
        raise
    await completion.afinish()
    return result


def _log_future(future: asyncio.Future[Any], completion: Completion) -> None:
    if future.cancelled():
        completion.finish(asyncio.CancelledError())
        return
    # The private attribute is read, because `exception()` would suppress asyncio's warning that the application never
    # retrieved the exception.
    completion.finish(getattr(future, "_exception", None))


RUNNERS: Final[dict[Kind, Callable[[Invocation], Any]]] = {
    Kind.VALUE: _run,
    Kind.COROUTINE: _arun,
    Kind.GENERATOR: _iterate,
    Kind.ASYNC_GENERATOR: _aiterate,
}


_Items: TypeAlias = Generator[Any, Any, Any]
_AsyncItems: TypeAlias = AsyncGenerator[Any, Any]


class Completion:
    """Logs the outcome of a tool exactly once, even if the tool's generator is garbage-collected before its end.

    The object that the caller received (such as a generator) refers to this object, so both are garbage-collected
    together. The state of the log entry (`_Record`) is in a global set, so it still exists at that time.

    Args:
        flow: The generator that checks and logs the call (see `_flow`); it has yielded `RunTool`.
        driver: Object that performs the requests for I/O that `flow` yields.
        began: Time when the tool started, a value of `time.perf_counter`; the default is the current time.
    """

    def __init__(self, flow: Flow, driver: Driver | AsyncDriver, began: float | None = None) -> None:
        self._record = _Record(flow, driver, began)
        self._finalizer = _Finalizer(self._record)

    def count_items(self) -> None:
        """Start counting the items that the tool yields; the log entry contains their number."""
        self._record.items = 0

    def add_item(self) -> None:
        """Increment the number of items."""
        self._record.items = (self._record.items or 0) + 1

    def may_be_dropped(self) -> None:
        """Log success instead of a failure if the tool's object is garbage-collected before it has ended."""
        self._record.may_be_dropped = True

    def finish(self, error: BaseException | None = None, *, closed: bool = False) -> None:
        """Log the outcome. This method never waits, because the garbage collector may call it.

        Args:
            error: The tool's exception; None if it succeeded.
            closed: True if the caller closed the generator before its end.
        """
        self._record.finish(error, closed=closed)

    async def afinish(self, error: BaseException | None = None) -> None:
        """Log the outcome of an asynchronous tool."""
        record = self._record
        assert isinstance(record.driver, AsyncDriver)  # noqa: S101 - narrows the type for the type checker
        await adrive(record.flow, record.driver, record.outcome(error))

    def finish_now(self, error: BaseException | None = None) -> None:
        """Log the outcome of a synchronous tool."""
        record = self._record
        assert isinstance(record.driver, Driver)  # noqa: S101 - narrows the type for the type checker
        drive(record.flow, record.driver, record.outcome(error))


class _Record:
    """State of the log entry of one tool call."""

    def __init__(self, flow: Flow, driver: Driver | AsyncDriver, began: float | None) -> None:
        self.flow = flow
        self.driver = driver
        self._began = time.perf_counter() if began is None else began
        self.items: int | None = None
        self.may_be_dropped = False
        self.is_logged = False
        detach_span(flow)
        _unfinished.add(self)

    def finish(self, error: BaseException | None = None, *, closed: bool = False) -> None:
        finish(self.flow, self.driver, self.outcome(error, closed=closed))

    def outcome(self, error: BaseException | None, *, closed: bool = False) -> Outcome:
        self.is_logged = True
        _unfinished.discard(self)
        facts: dict[str, Json] = {}
        if self.items is not None:
            facts["items"] = self.items
        if closed:
            facts["closed"] = True
        duration = elapsed_ms(self._began)
        return Returned(duration, facts) if error is None else Raised(error, duration, facts)


class _Finalizer:
    """Logs the outcome when the tool that refers to this object is garbage-collected.

    Python may call `__del__` of an object that continues to exist: the event loop resurrects an asynchronous generator
    during its collection, to close it. The first `__del__` therefore only creates a second finalizer, whose `__del__`
    logs the outcome when the tool has finally been collected.
    """

    def __init__(self, record: _Record, *, is_last: bool = False) -> None:
        self._record = record
        self._is_last = is_last
        self._next: _Finalizer | None = None

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._record.is_logged or is_finalizing():
            return
        if self._is_last:
            self._record.finish(
                None
                if self._record.may_be_dropped
                else GeneratorExit("the iterator or coroutine was discarded before it ended")
            )
        else:
            self._next = _Finalizer(self._record, is_last=True)


def follow(begin: Callable[[], tuple[_Items, Completion]]) -> _Items:
    """Return a generator that forwards items, sent values and exceptions from and to the tool's generator.

    The outcome of the call is logged when the tool's generator ends.

    Args:
        begin: Function that starts the call and returns the tool's generator; called when the first item is requested.
    """
    generator, completion = begin()
    completion.count_items()
    sent: list[Any] = [None]
    thrown: list[BaseException] = []
    items: list[Any] = []
    value: Any = None
    while True:
        closing = bool(thrown) and isinstance(thrown[0], GeneratorExit)
        try:
            items.append(generator.throw(thrown.pop()) if thrown else generator.send(sent.pop()))
        except StopIteration as end:
            value = end.value
            break
        except BaseException as error:
            if closing:
                completion.finish(None if isinstance(error, GeneratorExit) else error, closed=True)
            else:
                completion.finish_now(error)
            raise
        completion.add_item()
        try:
            sent.append((yield items.pop()))
        except BaseException as error:  # noqa: BLE001 - the consumer threw it; it is passed on to the tool's generator
            thrown.append(error)
    if closing:
        completion.finish(closed=True)
    else:
        completion.finish_now()
    return value


async def follow_async(begin: Callable[[], Awaitable[tuple[_AsyncItems, Completion]]]) -> _AsyncItems:
    """Asynchronous form of `follow`.

    Args:
        begin: Starts the call and returns the tool's generator; awaited when the first item is requested.
    """
    generator, completion = await begin()
    completion.count_items()
    upcoming: list[Awaitable[Any]] = [_request_first(generator)]
    items: list[Any] = []
    closing = False
    while True:
        try:
            items.append(await upcoming.pop())
        except StopAsyncIteration:
            break
        except BaseException as error:
            if closing:
                completion.finish(None if isinstance(error, GeneratorExit) else error, closed=True)
            else:
                await completion.afinish(error)
            raise
        completion.add_item()
        closing = False
        try:
            upcoming.append(generator.asend((yield items.pop())))
        except BaseException as error:  # noqa: BLE001 - the consumer threw it; it is passed on to the tool's generator
            closing = isinstance(error, GeneratorExit)
            upcoming.append(generator.athrow(error))
    if closing:
        completion.finish(closed=True)
    else:
        await completion.afinish()


def _request_first(generator: _AsyncItems) -> Awaitable[Any]:
    """Request the first item, and prevent the event loop from registering the tool's generator.

    When an event loop ends, it closes all registered generators at the same time. The generator of `follow_async` is
    registered, and closes the tool's generator. The loop must not close the tool's generator as well.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, _leave_open)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _leave_open(generator: _AsyncItems) -> None:
    """Do nothing when the tool's generator is finalized, because the generator of `follow_async` closes it."""


# This set keeps each record alive until its outcome is logged, even if the tool is garbage-collected earlier.
_unfinished: Final = set[_Record]()
