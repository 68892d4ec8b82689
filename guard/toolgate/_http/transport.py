"""Requests and their answers over the network, within their time: synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from toolgate._http.budget import spending
from toolgate._http.faults import Faults, from_a_proxy
from toolgate._http.http_library import Library
from toolgate._http.messages import Answer, Clock, Request, TransportFault
from toolgate._http.network import USUAL, Network
from toolgate._http.roads import Arriving, AsyncArriving, AsyncRoad, Road, describe
from toolgate._http.within import Within

__all__ = ["Answer", "AsyncWire", "Request", "TransportFault", "Wire"]

# The gateway's own answers are far smaller; more than this is not the gateway.
_MAX_ANSWER: Final = 4 * 1024 * 1024
# Requests under way at once. The library's own queue looks at every request for every connection,
# so that hundreds of callers would spend their time there; they queue in front of it.
_TURNS: Final = 50
_PATIENT_TURNS: Final = 500
# Bytes that are no text, and so no JSON: what stands for a body nobody can unpack.
_UNREADABLE: Final = b"\xff"


class Wire:
    """Sends requests from any thread; pools of connections per process.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        clock: Monotonic seconds.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.
    """

    def __init__(
        self,
        library: str,
        transport: object | None,
        clock: Clock,
        *,
        proxies: bool = False,
        network: Network = USUAL,
    ) -> None:
        self._library = Library(library, transport, proxies=proxies, network=network)
        self._clock = clock
        # Keyed by process: after a fork the parent's connections must not be used by both.
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        # Not at the end of the process: the outbox is still sent then, see `_close_at_exit`.
        weakref.finalize(self, _close_all, self._lanes).atexit = False
        _wires.add(self)

    def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
            ConfigurationError: If there is no way to send it.
        """
        ends = self._clock() + seconds
        lane = self._lane(patient=request.patient)
        if not lane.turns.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TransportFault(_no_turn(seconds), unsent=True)
        try:
            with spending(lambda: ends - self._clock()):
                return self._exchange(lane.road, request, ends)
        finally:
            lane.turns.release()

    @contextmanager
    def stream(self, request: Request, seconds: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """Send `request` and hand out its answer as it comes, however long: its head, and the pieces of its body.

        Args:
            request: What is sent.
            seconds: How long each step and each piece may take.

        Raises:
            TransportFault: If no complete answer came, also from inside of the block.
            ConfigurationError: If there is no way to send it.
        """
        road = self._lane(patient=True).road
        try:
            response = road.send(request, seconds)
            try:
                yield Answer(response.status, response.headers, b""), iter(response.pieces)
            finally:
                response.close()
        except self._library.fault as error:
            raise TransportFault(describe(error)) from error

    def close(self) -> None:
        """Close the connections; a later `send` opens new ones."""
        _close_all(self._lanes)

    def _exchange(self, road: Road, request: Request, ends: float) -> Answer:
        heard = _Heard()
        try:
            response = road.send(request, ends - self._clock())
            try:
                heard.head(response)
                body = b""
                # Also here: a transport that is not the library's own knows no budget.
                for piece in response.pieces:
                    body = _append(body, piece, late=self._clock() > ends)
            except self._library.undecodable:
                body = _UNREADABLE
            finally:
                response.close()
        except TransportFault as error:
            error.answered = error.answered or heard.answered
            raise
        except self._library.fault as error:
            raise heard.fault(error, self._library.faults) from error
        return Answer(response.status, heard.headers, body)

    def _lane(self, *, patient: bool) -> _Lane:
        key = (os.getpid(), patient)
        lane = self._lanes.get(key)
        if lane is None:
            # Two threads may both get here; the one that lost closes nothing but an empty pool.
            lane = self._lanes.setdefault(key, _Lane(self._library.road(), _turns(patient=patient)))
        return lane


class AsyncWire:
    """Sends requests from any task; pools of connections per event loop.

    A pool is closed together with its loop: a suspended asynchronous generator holds it, and
    `asyncio.run` finishes those before it closes the loop.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.
    """

    def __init__(
        self,
        library: str,
        transport: object | None,
        *,
        proxies: bool = False,
        network: Network = USUAL,
    ) -> None:
        self._library = Library(library, transport, proxies=proxies, network=network)
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
            ConfigurationError: If there is no way to send it.
        """
        queued, heard, within = True, _Heard(), Within(seconds)
        try:
            async with within:
                lane = await self._lane(patient=request.patient)
                async with lane.turns:
                    queued = False
                    return await self._exchange(lane.road, request, seconds, heard)
        except TimeoutError as error:
            if queued:
                raise TransportFault(_no_turn(seconds), unsent=True) from error
            reached = not within.is_connecting
            raise TransportFault(_no_answer(seconds), answered=heard.answered, reached=reached) from error
        except self._library.fault as error:
            raise heard.fault(error, self._library.faults) from error

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()

    async def _exchange(self, road: AsyncRoad, request: Request, seconds: float, heard: _Heard) -> Answer:
        response = await road.asend(request, seconds)
        try:
            heard.head(response)
            body = b""
            async for piece in response.pieces:
                body = _append(body, piece, late=False)
        except self._library.undecodable:
            body = _UNREADABLE
        finally:
            await response.aclose()
        return Answer(response.status, heard.headers, body)

    async def _lane(self, *, patient: bool) -> _AsyncLane:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(closed, None)
            self._pools[loop] = pool = _LoopPool()
            await anext(pool.keeper)
        lane = pool.lanes.get(patient)
        if lane is None:
            turns = asyncio.Semaphore(_PATIENT_TURNS if patient else _TURNS)
            lane = pool.lanes[patient] = _AsyncLane(self._library.async_road(), turns)
        return lane


@dataclass(slots=True)
class _Heard:
    """What came of one request before it failed."""

    answered: bool = False
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def head(self, response: Arriving | AsyncArriving) -> None:
        self.headers = response.headers
        self.answered = not from_a_proxy(response.status, self.headers)

    def fault(self, error: Exception, faults: Faults) -> TransportFault:
        answered = self.answered or faults.answered(error)
        return TransportFault(describe(error), answered=answered, reached=answered or faults.reached(error))


@dataclass(frozen=True, slots=True)
class _Lane:
    road: Road
    turns: threading.BoundedSemaphore


@dataclass(frozen=True, slots=True)
class _AsyncLane:
    road: AsyncRoad
    turns: asyncio.Semaphore


@dataclass
class _LoopPool:
    lanes: dict[bool, _AsyncLane] = field(default_factory=dict[bool, _AsyncLane])

    def __post_init__(self) -> None:
        self.keeper = _keep(self.lanes)


async def _keep(lanes: dict[bool, _AsyncLane]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        while lanes:
            await lanes.popitem()[1].road.aclose()


def _turns(*, patient: bool) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(_PATIENT_TURNS if patient else _TURNS)


def _append(body: bytes, piece: bytes, *, late: bool) -> bytes:
    if late:
        raise TransportFault("the answer did not end in time")
    if len(body) + len(piece) > _MAX_ANSWER:
        raise TransportFault(f"the answer is longer than {_MAX_ANSWER} bytes")
    return body + piece


def _no_turn(seconds: float) -> str:
    return f"no turn within {seconds:.1f} s: too many requests of this process are under way"


def _no_answer(seconds: float) -> str:
    return f"no answer within {seconds:.1f} s"


_wires: Final[weakref.WeakSet[Wire]] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close all connections; handlers run in reverse order, and the outbox's, which sends, is registered later."""
    for wire in list(_wires):
        wire.close()


def _close_all(lanes: dict[tuple[int, bool], _Lane]) -> None:
    while lanes:
        # Also the parent's, in a forked child: that closes the child's copies, and says nothing on the wire.
        lanes.popitem()[1].road.close()
