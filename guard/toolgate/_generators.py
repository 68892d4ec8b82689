"""Generators and other tools that go on after their call has returned: one log entry at their end.

Items are passed on by hand and not by `yield from`, which turns a `GeneratorExit` that is thrown in into a `close()`. No
reference to an item is kept: once it is yielded, it belongs to the code that received it.
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
    """Logs the outcome of a tool once, also when the tool is dropped in the middle.

    The tool holds this object, and a global set holds its record: they must not be collected together.

    Args:
        flow: The flow of the call, at the tool's turn.
        driver: Performs its effects.
        began: Start of the tool on the performance counter; default now.
    """

    def __init__(self, flow: Flow, driver: Driver | AsyncDriver, began: float | None = None) -> None:
        self._record = _Record(flow, driver, began)
        self._finalizer = _Finalizer(self._record)

    def count_items(self) -> None:
        """Log the number of items, 0 so far."""
        self._record.items = 0

    def add_item(self) -> None:
        """Count one more item."""
        self._record.items = (self._record.items or 0) + 1

    def may_be_dropped(self) -> None:
        """Log success if the tool is dropped from now on."""
        self._record.may_be_dropped = True

    def finish(self, error: BaseException | None = None, *, closed: bool = False) -> None:
        """Log the outcome without waiting: this may be a garbage collection.

        Args:
            error: The tool's exception.
            closed: The caller closed the generator before its end.
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
    """Logs the outcome when the tool that holds it is collected.

    The garbage collector may finalize an object that then lives on: an event loop closes its generators in this way.
    The first finalization therefore proves nothing; the object that is put in its place is collected with the tool.
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
    """Pass on everything that a generator does, and log its end.

    Args:
        begin: Returns the generator; called when the first item is requested.
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
        except BaseException as error:  # noqa: BLE001 - thrown in from outside, and passed on
            thrown.append(error)
    if closing:
        completion.finish(closed=True)
    else:
        completion.finish_now()
    return value


async def follow_async(begin: Callable[[], Awaitable[tuple[_AsyncItems, Completion]]]) -> _AsyncItems:
    """Pass on everything that an asynchronous generator does, and log its end.

    Args:
        begin: Returns the generator; called when the first item is requested.
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
        except BaseException as error:  # noqa: BLE001 - thrown in from outside, and passed on
            closing = isinstance(error, GeneratorExit)
            upcoming.append(generator.athrow(error))
    if closing:
        completion.finish(closed=True)
    else:
        await completion.afinish()


def _request_first(generator: _AsyncItems) -> Awaitable[Any]:
    """Request the first item without registering the generator at the event loop.

    A loop that ends closes every generator it has seen: this one would be closed beside the one that passes it on, both
    at the same time.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, _leave_open)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _leave_open(generator: _AsyncItems) -> None:
    """Do nothing: the generator that passes this one on closes it."""


_unfinished: Final = set[_Record]()
