"""Deadlines that hold where the time-outs of the HTTP library do not."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

__all__ = ["AsyncDeadline", "Watch", "look_up", "watchdog"]

# Iterations of the event loop; each one reads what has arrived.
_ROUNDS: Final = 16


class AsyncDeadline:
    """An `async with` block that ends with `TimeoutError` after `seconds`, as with `asyncio.timeout`.

    A tool that blocks the event loop delays the responses to all other calls. After the deadline the loop first
    reads what has arrived and cancels the block only then; `asyncio.timeout` would cancel it unread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(self._seconds, self._expire, _ROUNDS)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def _expire(self, rounds: int) -> None:
        if rounds:
            self._handle = self._loop.call_soon(self._expire, rounds - 1)
        else:
            self._timeout.reschedule(self._loop.time())


class Watch:
    """Deadline of one synchronous request.

    Attributes:
        done: The request ended.
        fired: The deadline passed first.
    """

    __slots__ = ("abort", "done", "ends", "fired")

    def __init__(self, ends: float, abort: Callable[[], None]) -> None:
        self.ends = ends
        self.abort = abort
        self.done = self.fired = False


class _Watchdog:
    """Thread that aborts the requests of one process at their deadlines."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Watch]] = []
        self._count = itertools.count()
        # An interpreter that is shutting down starts no threads; httpx's time-outs remain.
        with suppress(RuntimeError):
            threading.Thread(target=self._run, name="toolgate-watchdog", daemon=True).start()

    def add(self, watch: Watch) -> None:
        with self._changed:
            heapq.heappush(self._heap, (watch.ends, next(self._count), watch))
            if self._heap[0][2] is watch:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            self._next().abort()

    def _next(self) -> Watch:
        with self._changed:
            while True:
                while self._heap and self._heap[0][2].done:
                    heapq.heappop(self._heap)
                left = self._heap[0][0] - time.monotonic() if self._heap else None
                if left is not None and left <= 0:
                    watch = heapq.heappop(self._heap)[2]
                    watch.fired = True
                    return watch
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))


@contextmanager
def watchdog(seconds: float, abort: Callable[[], None]) -> Iterator[Watch]:
    """Call `abort` in another thread if the block takes longer than `seconds`."""
    dog = _watchdogs.get(os.getpid())
    if dog is None:
        # One for each process, since a fork does not copy threads. If two threads create one at once, both work.
        dog = _watchdogs.setdefault(os.getpid(), _Watchdog())
    watch = Watch(time.monotonic() + seconds, abort)
    dog.add(watch)
    try:
        yield watch
    finally:
        watch.done = True


def look_up(host: str, port: int, seconds: float) -> int:
    """Return the number of addresses of a host.

    The look-up runs in a thread, since `socket.getaddrinfo` has no time-out; concurrent calls share one.

    Raises:
        TimeoutError: If there is no result within `seconds`.
        OSError: If the host is unknown.
    """
    key = (os.getpid(), host, port)
    with _locks.setdefault(key[0], threading.Lock()):
        future = _look_ups.get(key)
        if future is None:
            future = _look_ups[key] = Future()
            try:
                # A daemon: the end of the process does not wait for a resolver that stalls.
                threading.Thread(target=_resolve, args=key, name="toolgate-look-up", daemon=True).start()
            except RuntimeError:
                # The interpreter is shutting down and starts no threads.
                _resolve(*key)
    return future.result(min(seconds, threading.TIMEOUT_MAX))


def _resolve(process: int, host: str, port: int) -> None:
    key = (process, host, port)
    try:
        found: int | OSError = len(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        found = OSError(str(error))
    future = _look_ups.pop(key)
    if isinstance(found, int):
        future.set_result(found)
    else:
        future.set_exception(found)


_watchdogs: Final = dict[int, _Watchdog]()
# By process, since a fork may happen while another thread holds the lock.
_locks: Final = dict[int, threading.Lock]()
_look_ups: Final = dict[tuple[int, str, int], Future[int]]()
