"""A load generator that is cheaper than what it loads.

Closed loops give throughput and the latency of a caller that waits. An open loop sends by a timetable and counts from the
moment a request was due, so that a server which stalls cannot hide how long others waited behind it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import uvloop

from load.connection import Connection, Target, UnexpectedAnswer
from load.histogram import Histogram

#: how long after the end of a slice the answers under way are waited for
PATIENCE = 60.0
#: nanoseconds before a request is due in which no timer is trusted
SPIN = 150_000


@dataclass
class Slice:
    """Measurements of one time slice.

    Attributes:
        seconds: How long it lasted.
        latencies: Of every answer, by the request's place among those asked in turn.
        late: How long after a request was due it was sent although a connection was free: the generator's own part.
    """

    latencies: tuple[Histogram, ...]
    seconds: float = 0.0
    late: Histogram = field(default_factory=Histogram)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return sum(one.total for one in self.latencies) / self.seconds


class Load:
    """Connections to one target that stay open between slices; also an asynchronous context.

    Args:
        target: What is asked.
        connections: How many.
    """

    def __init__(self, target: Target, connections: int) -> None:
        self._target = target
        self._count = connections
        self._connections: list[Connection] = []
        self._slice = self._new()
        self._until = 0
        self._idle: deque[Connection] = deque()
        self._due: deque[int] = deque()
        self._under_way = 0
        self._quiet = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Connect."""
        self._connections = [await self._connect() for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        for one in self._connections:
            if one.transport is not None:
                one.transport.abort()
        await asyncio.gather(*(one.lost for one in self._connections))

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, one = await loop.create_connection(
            lambda: Connection(self._target, self._answered), "127.0.0.1", self._target.port
        )
        return one

    async def _renew(self) -> None:
        # Where the other side's slice was a minute long, the server has closed idle connections.
        for place, one in enumerate(self._connections):
            if one.lost.done():
                self._connections[place] = await self._connect()

    async def closed(self, seconds: float) -> Slice:
        """Each connection asks again as soon as it is answered.

        Args:
            seconds: For how long.

        Raises:
            UnexpectedAnswer: Of a server that does not do what is measured.
        """
        await self._renew()
        self._slice, self._idle, self._due = self._new(), deque(), deque()
        began = time.perf_counter_ns()
        self._until = began + int(seconds * 1e9)
        for one in self._connections:
            self._under_way += 1
            one.send()
        await self._end()
        self._slice.seconds = (time.perf_counter_ns() - began) / 1e9
        return self._slice

    async def open(self, seconds: float, rate: float) -> Slice:
        """Ask by a timetable, whatever the answers do; latencies count from when a request was due.

        Args:
            seconds: For how long.
            rate: Requests a second.

        Raises:
            UnexpectedAnswer: Of a server that does not do what is measured.
        """
        await self._renew()
        self._slice, self._idle, self._due = self._new(), deque(self._connections), deque()
        self._until = 0
        began = time.perf_counter_ns()
        for due in _timetable(began, seconds, rate):
            while (left := due - time.perf_counter_ns()) > 0:  # noqa: ASYNC110 - time is what is waited for
                # Timers wake a little late; the last moment is spent looking whether an answer came.
                await asyncio.sleep(max(0, left - SPIN) / 1e9)
            self._under_way += 1
            if self._idle:
                self._slice.late.add(time.perf_counter_ns() - due)
                self._idle.popleft().send(due)
            else:
                self._raise_if_lost()
                self._due.append(due)
        await self._end()
        # Longer if the server fell behind: then it did not answer at that rate.
        self._slice.seconds = max(seconds, (time.perf_counter_ns() - began) / 1e9)
        return self._slice

    def _new(self) -> Slice:
        return Slice(tuple(Histogram() for _ in self._target.asked))

    def _answered(self, one: Connection, which: int, nanoseconds: int) -> None:
        self._slice.latencies[which].add(nanoseconds)
        if self._due:
            self._under_way -= 1
            one.send(self._due.popleft())
        elif time.perf_counter_ns() < self._until:
            one.send()
            return
        else:
            self._under_way -= 1
            self._idle.append(one)
        if not self._under_way:
            self._quiet.set()

    async def _end(self) -> None:
        self._quiet.clear()
        if not self._under_way:
            return
        quiet = asyncio.ensure_future(self._quiet.wait())
        left = max(0, self._until - time.perf_counter_ns()) / 1e9 + PATIENCE
        ends: list[asyncio.Future[Any]] = [quiet, *(one.lost for one in self._connections)]
        await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not quiet.done():
            quiet.cancel()
            self._raise_if_lost()
            raise UnexpectedAnswer(f"{self._under_way} requests were not answered within {PATIENCE:.0f} s")

    def _raise_if_lost(self) -> None:
        for one in self._connections:
            if one.lost.done():
                raise one.lost.result() or UnexpectedAnswer("the server closed a connection")


def punctual_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to microseconds, for open loops: others wake up to a millisecond late."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def quick_loop() -> asyncio.AbstractEventLoop:
    """A loop that costs the least, for closed loops."""
    return uvloop.new_event_loop()


def _timetable(began: int, seconds: float, rate: float) -> Iterator[int]:
    step = 1e9 / rate
    return (began + int(step * number) for number in range(int(seconds * rate)))
