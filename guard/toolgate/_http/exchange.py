"""Requests and responses, the deadline of a request, and how far a request got when it failed.

With the option `fail_open`, a tool runs without a decision only if no connection to the gateway was established. If the
gateway received the request but did not respond in time, it may be overloaded, or may have denied the call.

The deadlines apply to a complete request. The time-outs of the HTTP library apply only to single steps, such as one
read.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import itertools
import os
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeAlias

__all__ = [
    "AsyncDeadline",
    "Clock",
    "Exchange",
    "InProcessGateway",
    "Request",
    "Response",
    "TransportError",
    "Watch",
    "describe",
    "gateway_reached",
    "is_from_proxy",
    "look_up",
    "start_watch",
]

# Maximum number of bytes in the body of a response; responses of the gateway are far smaller.
_MAX_BODY: Final = 4 * 1024 * 1024
# Replacement for a body that cannot be decompressed. The JSON parser rejects this byte, which is not valid UTF-8.
_UNREADABLE: Final = b"\xff"
# HTTP statuses with which a proxy reports that it got no response from the gateway.
_NONE_BEHIND: Final = frozenset({502, 503, 504})
_VERSION: Final = "x-api-version"
# TLS errors that mean that the connection ended. Every other TLS error proves that a server responded.
_BROKEN: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
# Number of exceptions to inspect in a chain of causes: one each of httpx, of its network library and of the socket.
# Further causes are unrelated to the request.
_LINKS: Final = 3
_NO_RESPONSE: Final = "Server disconnected without sending a response"


class Exchange:
    """Progress of one request, as reported by httpx's `trace` extension, and the response to the request.

    Args:
        httpx: The HTTP library.
        traced: Whether the HTTP library's own transport is used. Its events report every connection attempt; a
            transport that the application passed may report none.
        on_connect: Function that is called before a connection is established.
        on_open: Function that is called with each network stream that is opened.

    Attributes:
        stream: The network stream that was opened for this request; None if the request uses an existing connection.
    """

    def __init__(
        self,
        httpx: Any,
        *,
        traced: bool = True,
        on_connect: Callable[[], None] | None = None,
        on_open: Callable[[Any], None] | None = None,
    ) -> None:
        self._httpx = httpx
        self._traced = traced
        self._on_connect = on_connect
        self._on_open = on_open
        self._connecting = self._handshaking = self._has_new_tls = False
        self._established = self._answered = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = b""
        self.stream: Any = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Receive an event of httpx's `trace` extension."""
        step = event.partition(".")[2]
        if step == "send_request_headers.started":
            self._established = True
        elif step == "connect_tcp.started":
            self._connecting = True
            if self._on_connect is not None:
                self._on_connect()
        elif step == "connect_tcp.complete":
            self._connecting = False
            self._established = True
            self._open(info)
        elif step == "start_tls.started":
            self._handshaking = True
        elif step == "start_tls.complete":
            self._handshaking = False
            self._has_new_tls = True
            self._open(info)

    async def atrace(self, event: str, info: Mapping[str, Any]) -> None:
        """Asynchronous form of `trace`."""
        self.trace(event, info)

    async def aclose_unfinished(self) -> None:
        """Close a connection whose TLS handshake was cancelled, because httpx leaves it open."""
        if self._handshaking and self.stream is not None:
            await self.stream.aclose()

    def receive_head(self, response: Any) -> None:
        """Receive status and headers of the response."""
        self._status, self._headers = response.status_code, dict(response.headers.items())
        self._answered = not is_from_proxy(self._status, self._headers)

    def receive_body(self, chunk: bytes, *, late: bool = False) -> None:
        """Receive the next bytes of the body.

        Raises:
            TransportError: If `late` is true (the bytes arrived after the deadline), or if the body is too long.
        """
        if late:
            raise TransportError("the response was not complete before the timeout")
        if len(self._body) + len(chunk) > _MAX_BODY:
            raise TransportError(f"the response is longer than {_MAX_BODY} bytes")
        self._body += chunk

    def discard_body(self) -> None:
        """Discard a body that cannot be decompressed, so that the parser rejects the response."""
        self._body = _UNREADABLE

    def response(self) -> Response:
        """Return the complete response."""
        return Response(self._status, self._headers, self._body)

    def timed_out(self, seconds: float) -> TransportError:
        """Return the error for a request that was aborted at its deadline."""
        return TransportError(
            f"no response within {seconds:.1f} s", answered=self._answered, reached=not self._connecting
        )

    def failure(self, error: Exception) -> TransportError:
        """Return the error for an exception of the HTTP library.

        An exception that may have another cause than an outage is treated like a response, so that the tool does not
        run without a decision (`fail_open`).
        """
        httpx, rejected = self._httpx, _tls_rejected(error)
        if self._handshaking and isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            message = f"{type(error).__name__} during the TLS handshake: {error}"
            return TransportError(message, answered=rejected)
        disconnected = str(error).startswith(_NO_RESPONSE)
        ended = disconnected or isinstance(error, (httpx.ReadError, ssl.SSLError))
        if self._has_new_tls and not self._answered and ended and not rejected:
            # A server that requires a client certificate sends a TLS alert. The alert may be lost when the server
            # closes the connection, so the closed connection is treated like a response.
            return TransportError(
                "the server closed the connection right after the TLS handshake; it may require a client "
                "certificate"
            )
        if isinstance(error, httpx.ProxyError):
            answered = rejected or str(error)[:3] not in {str(status) for status in _NONE_BEHIND}
            return TransportError(describe(error), answered=answered, reached=answered)
        outage = disconnected or isinstance(error, (httpx.TimeoutException, httpx.NetworkError))
        answered = self._answered or rejected or not outage
        reached = answered or self._established or not self._is_unconnected(error)
        return TransportError(describe(error), answered=answered, reached=reached)

    def _is_unconnected(self, error: Exception) -> bool:
        """Return whether the exception proves that no connection was established."""
        httpx = self._httpx
        if isinstance(error, (httpx.PoolTimeout, httpx.UnsupportedProtocol)):
            return True
        return (
            isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            and (self._connecting or not self._traced)
            # An error such as a connection reset proves that a connection was established.
            and not any(map(_was_established, _causes(error)))
        )

    def _open(self, info: Mapping[str, Any]) -> None:
        self.stream = info.get("return_value")
        if self._on_open is not None:
            self._on_open(self.stream)


def describe(error: Exception) -> str:
    """Return the type and the message of an exception."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def is_from_proxy(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a proxy sent the response because it got no response from a gateway."""
    return status in _NONE_BEHIND and _VERSION not in headers


def gateway_reached(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a gateway may have received the request.

    The result is true if a gateway sent the response, or if a proxy reports that the gateway did not respond in time
    (status 504).
    """
    return status not in _NONE_BEHIND or status == HTTPStatus.GATEWAY_TIMEOUT or _VERSION in headers


def _tls_rejected(error: BaseException) -> bool:
    """Return whether the SDK or the server rejected the TLS handshake; a connection that ended is not a rejection."""
    return any(
        isinstance(cause, ssl.SSLError) and not isinstance(cause, _BROKEN)
        for cause in islice(_causes(error), _LINKS)
    )


def _was_established(error: BaseException) -> bool:
    if isinstance(error, ConnectionError):
        return not isinstance(error, ConnectionRefusedError)
    # `ENOTCONN` means that the connection was established, but was reset before its first use.
    return isinstance(error, OSError) and error.errno == errno.ENOTCONN


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and the exceptions that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            # The group contains one exception for each IP address of the host.
            for each in cause.exceptions:
                yield from _causes(each)
        cause = cause.__cause__ or cause.__context__


Clock: TypeAlias = Callable[[], float]


class TransportError(Exception):
    """A request got no complete response.

    Attributes:
        answered: Whether a gateway, or another server at the gateway's address, sent a part of a response or a TLS
            alert.
        reached: Whether a gateway may have received the request, because a connection was established.
        unsent: Whether the request was never sent, because too many requests of this process were in progress.
    """

    def __init__(
        self, message: str, *, answered: bool = True, reached: bool = True, unsent: bool = False
    ) -> None:
        super().__init__(message)
        self.answered = answered
        self.reached = reached
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request.

    Attributes:
        method: HTTP method.
        url: Absolute URL.
        headers: HTTP headers; excluded from `repr`, because they contain the API key.
        body: JSON; excluded from `repr`, because it contains arguments of tools.
        long_poll: Whether the gateway may delay its response. The number of concurrent long polls has a separate limit.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    long_poll: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """Complete HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class InProcessGateway(ABC):
    """Gateway in this process, such as a fake for tests; it is passed to a `Guard` as the option `transport`.

    Its methods may be called from any thread and event loop.
    """

    @abstractmethod
    def send(self, request: Request, seconds: float) -> Response:
        """Return the response to `request` within `seconds`.

        Raises:
            TransportError: If there is no response.
            ConfigurationError: If the gateway cannot be used any more.
        """

    @abstractmethod
    async def asend(self, request: Request, seconds: float) -> Response:
        """Asynchronous form of `send`."""

    def clock(self) -> float:
        """Return the current time in monotonic seconds; a `Guard` uses this clock for deadlines and pauses."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Pause for `seconds`."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Asynchronous form of `sleep`."""
        await asyncio.sleep(seconds)

    def guard_closed(self) -> None:  # noqa: B027 - subclasses need not override it
        """Clean up after a `Guard` that uses this gateway was closed; may be called more than once."""


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


@dataclass(slots=True, eq=False)
class Watch:
    """Deadline of one synchronous request.

    Attributes:
        ends: Time of the deadline, in monotonic seconds.
        abort: Function that aborts the request. The watchdog's thread calls it.
        done: Whether the request has ended.
        fired: Whether the deadline passed before the request ended.
    """

    ends: float
    abort: Callable[[], None]
    done: bool = False
    fired: bool = False


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


def start_watch(seconds: float, abort: Callable[[], None]) -> Watch:
    """Call `abort` in another thread after `seconds`, unless the caller has set `done` of the result before."""
    dog = _watchdogs.get(os.getpid())
    if dog is None:
        # Each process has its own watchdog, because a forked child does not inherit the threads of its parent. If two
        # threads create a watchdog at the same time, both use the one that `setdefault` stored first.
        dog = _watchdogs.setdefault(os.getpid(), _Watchdog())
    watch = Watch(time.monotonic() + seconds, abort)
    dog.add(watch)
    return watch


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
