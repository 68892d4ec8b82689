"""Execution of a guarded tool: a function, coroutine function, generator or asynchronous generator.

A plain function may return a coroutine, a future or a generator, which does its work later. The outcome of such a call
is logged when that object has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import wrapt

from toolgate._callables import Kind
from toolgate._drivers import Driver, adrive, drive, elapsed_ms, ensure_authorized
from toolgate._effects import Flow, Raised, Returned
from toolgate._generators import Completion, follow, follow_async
from toolgate._resume import take_approval

if TYPE_CHECKING:
    from toolgate._capture.arguments import CallArguments
    from toolgate._options import Options
    from toolgate._state import GuardState

    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy

__all__ = ["RUNNERS", "Invocation"]


class Invocation:
    """One call of a decorated function: `begin` prepares its check and log entry, and `start` calls the tool.

    Args:
        options: Options of the decorator.
        state: State of the guard.
        arguments: The bound arguments; `begin` copies them.
        tool: The function; a method is bound to its instance or class.
    """

    def __init__(
        self, options: Options, state: GuardState, arguments: CallArguments, tool: Callable[..., Any]
    ) -> None:
        self._options = options
        self.state = state
        self._arguments = arguments
        self._tool = tool
        # A coroutine or generator may run later, while another agent is set. The check must contain the agent that is
        # set now, when the tool is called.
        self._context = contextvars.copy_context()
        self._resumes = take_approval(state)

    @property
    def on_hold(self) -> Any:
        """The option `on_hold`: whether to raise, wait, or call a function if the call requires an approval."""
        return self._options.on_hold

    def begin(self) -> Flow:
        """Copy the arguments for the check, and return the flow (the generator that checks and logs this call)."""
        captured = self._arguments.capture()
        return self._context.run(
            self._options.begin,
            self.state,
            self._arguments,
            captured,
            self._resumes,
            verifies=self._arguments.is_changeable,
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
    """Return a generator that checks the call when its first item is requested."""

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
    """Wrapper that closes a tool's coroutine if it is never awaited: Python then warns only about the SDK's own."""

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
    # A call of `exception()` would suppress asyncio's warning about an exception that the application never retrieves.
    completion.finish(getattr(future, "_exception", None))


RUNNERS: Final[dict[Kind, Callable[[Invocation], Any]]] = {
    Kind.VALUE: _run,
    Kind.COROUTINE: _arun,
    Kind.GENERATOR: _iterate,
    Kind.ASYNC_GENERATOR: _aiterate,
}
