"""Deadlines for complete requests. The time-outs of the HTTP library apply only to single steps, such as one read."""

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

# Number of event-loop iterations to wait after the deadline before the request is cancelled, so that a response that
# has already arrived is still read.
_ROUNDS: Final = 16


class AsyncDeadline:
    """Asynchronous context manager that raises `TimeoutError` after `seconds`, like `asyncio.timeout`.

    Unlike `asyncio.timeout`, it does not cancel the `with` block at once: the event loop first reads data that has
    already arrived. A response may have arrived in time, but could not be read while a tool blocked the event loop.
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
        ends: Time of the deadline, in monotonic seconds.
        abort: Function that aborts the request. The watchdog's thread calls it.
        done: Whether the request has ended.
        fired: Whether the deadline passed before the request ended.
    """

    __slots__ = ("abort", "done", "ends", "fired")

    def __init__(self, ends: float, abort: Callable[[], None]) -> None:
        self.ends = ends
        self.abort = abort
        self.done = self.fired = False


class _Watchdog:
    """Thread that aborts the synchronous requests of one process at their deadlines."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Watch]] = []
        self._count = itertools.count()
        # No thread can be started during interpreter shutdown. Requests then end by the time-outs of httpx alone.
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
    """Call `abort` in another thread if the `with` block takes longer than `seconds`."""
    dog = _watchdogs.get(os.getpid())
    if dog is None:
        # Each process has its own watchdog, because a forked child does not inherit the threads of its parent. If two
        # threads create a watchdog at the same time, both use the one that `setdefault` stored first.
        dog = _watchdogs.setdefault(os.getpid(), _Watchdog())
    watch = Watch(time.monotonic() + seconds, abort)
    dog.add(watch)
    try:
        yield watch
    finally:
        watch.done = True


def look_up(host: str, port: int, seconds: float) -> int:
    """Look up a host and return the number of its addresses.

    The look-up runs in a thread, because `socket.getaddrinfo` has no time-out; concurrent calls share one look-up.

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
                # The thread is a daemon, so that a DNS server that does not respond cannot delay the end of the
                # process.
                threading.Thread(target=_resolve, args=key, name="toolgate-look-up", daemon=True).start()
            except RuntimeError:
                # No thread can be started during interpreter shutdown; the look-up then runs in this thread.
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
# Each process id has its own lock: if another thread holds a lock during a fork, nothing releases the copy of the lock
# in the child.
_locks: Final = dict[int, threading.Lock]()
_look_ups: Final = dict[tuple[int, str, int], Future[int]]()
