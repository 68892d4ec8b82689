"""Guarded tools, such as generators, that continue after the call has returned. The outcome is logged when they end.

Items of a generator are forwarded one by one instead of with `yield from`, which would turn a thrown `GeneratorExit`
into a `close()`. The code keeps no reference to an item that it has yielded, so that the item can be garbage-collected
as soon as the receiver drops it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Final, TypeAlias

from toolgate._capture.jsontext import Json
from toolgate._drivers import AsyncDriver, Driver, adrive, drive, elapsed_ms, finish
from toolgate._effects import Flow, Outcome, Raised, Returned
from toolgate._telemetry import detach_span

__all__ = ["Completion", "follow", "follow_async"]

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
        assert isinstance(record.driver, AsyncDriver)  # noqa: S101 - narrows the type
        await adrive(record.flow, record.driver, record.outcome(error))

    def finish_now(self, error: BaseException | None = None) -> None:
        """Log the outcome of a synchronous tool."""
        record = self._record
        assert isinstance(record.driver, Driver)  # noqa: S101 - narrows the type
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
                None if self._record.may_be_dropped else GeneratorExit("dropped before its end")
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
        except BaseException as error:  # noqa: BLE001 - the consumer threw it, and the tool's generator receives it
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
        except BaseException as error:  # noqa: BLE001 - the consumer threw it, and the tool's generator receives it
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
