"""Deadlines that hold even if a peer sends a byte now and then, so that no time-out of a single read passes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

__all__ = ["AsyncDeadline", "Watch", "watchdog"]

# Iterations of the event loop; each one looks at the network.
_ROUNDS: Final = 16


class AsyncDeadline:
    """An `async with` block that ends with `TimeoutError` after `seconds`, as `asyncio.timeout` does.

    A tool that blocks its event loop delays the responses to all other calls. After the deadline the loop
    reads what has arrived already before the block is cancelled; `asyncio.timeout` alone would not.
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
    """One deadline of a synchronous request.

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
    """A thread that aborts the requests of one process at their deadlines."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Watch]] = []
        self._count = itertools.count()
        # Started with the first request; it does not keep the process alive.
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
    """Call `abort` from another thread if the block takes longer than `seconds`."""
    dog = _watchdogs.get(os.getpid())
    if dog is None:
        # A fork does not copy threads, so each process has its own; two may be made at once, both work.
        dog = _watchdogs.setdefault(os.getpid(), _Watchdog())
    watch = Watch(time.monotonic() + seconds, abort)
    dog.add(watch)
    try:
        yield watch
    finally:
        watch.done = True


_watchdogs: Final = dict[int, _Watchdog]()
