"""How far a request got, from the events of httpx's `trace` extension, and what a failure means.

A call fails open only if no connection was established: a gateway that accepts the request and does not
respond in time may be overloaded, and may have denied the call.
"""

from __future__ import annotations

import errno
import socket
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

from toolgate._http.messages import TransportFault

__all__ = ["Connection", "Connections", "classify", "describe", "from_a_proxy", "reached_behind"]

# Statuses with which a proxy reports that it found no gateway.
_NONE_BEHIND: Final = frozenset({502, 503, 504})
_VERSION: Final = "x-api-version"
# The connection ended during the handshake; every other TLS error is a response of the peer.
_BROKEN: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
# The error of httpx, of httpcore and of the socket; further causes are unrelated.
_LINKS: Final = 3
_NO_RESPONSE: Final = "Server disconnected without sending a response"


class Connections:
    """The open sockets of one synchronous client."""

    def __init__(self) -> None:
        self._sockets = weakref.WeakSet[socket.socket]()

    def __bool__(self) -> bool:
        return any(each.fileno() >= 0 for each in list(self._sockets))

    def add(self, opened: socket.socket) -> None:
        """Remember a socket."""
        self._sockets.add(opened)

    def abort(self) -> None:
        """End all connections, so that threads that read from them are woken."""
        for each in list(self._sockets):
            with suppress(OSError):
                # Not SSLSocket's own method, which is not safe while another thread reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets without a message to the peer."""
        for each in list(self._sockets):
            each.close()


class Connection:
    """Progress of one request.

    Args:
        connections: The sockets of the synchronous client that sends it.
        limit: Called before each step.

    Attributes:
        answered: A gateway, or something in its place, has responded.
        established: A connection was established for this request, or it was sent over an existing one.
    """

    def __init__(
        self, connections: Connections | None = None, limit: Callable[[], None] | None = None
    ) -> None:
        self._connections = connections
        self._limit = limit
        self._unfinished: Any = None
        self._own: socket.socket | None = None
        self._connecting = False
        self.handshaking = False
        self.fresh_tls = False
        self.answered = False
        self.established = False

    @property
    def may_have_sent(self) -> bool:
        """Whether a gateway may have received the request when it was cut off."""
        return not self._connecting

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Receive an event of httpx's `trace` extension."""
        name = event.partition(".")[2]
        if name.endswith(".started"):
            if self._limit is not None:
                self._limit()
            if name == "connect_tcp.started":
                self._connecting = True
            elif name == "start_tls.started":
                self.handshaking = True
            elif name == "send_request_headers.started":
                self.established = True
        elif name == "connect_tcp.complete":
            self._connecting = False
            self.established = True
            self._opened(info["return_value"])
            self._unfinished = info["return_value"]
        elif name == "start_tls.complete":
            self.handshaking = False
            self.fresh_tls = True
            self._opened(info["return_value"])
            self._unfinished = None

    async def atrace(self, event: str, info: Mapping[str, Any]) -> None:
        """As `trace`, for asynchronous clients."""
        self.trace(event, info)

    def receive_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of the response."""
        self.answered = not from_a_proxy(status, headers)

    def abort(self) -> None:
        """End the connection at the deadline; from another thread."""
        if self._own is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._own, socket.SHUT_RDWR)
        elif self._connections is not None and not self._connecting:
            # httpx does not tell which of the existing connections it uses; the others' requests are retried.
            self._connections.abort()

    async def aclose_unfinished(self) -> None:
        """Close a connection that was given up during its TLS handshake."""
        if self.handshaking and self._unfinished is not None:
            await self._unfinished.aclose()

    def _opened(self, stream: Any) -> None:
        if self._connections is None:
            return
        opened = stream.get_extra_info("socket")
        if isinstance(opened, socket.socket):
            self._own = opened
            self._connections.add(opened)


def classify(error: Exception, connection: Connection, httpx: Any) -> TransportFault:
    """Return the fault for an exception of the HTTP library `httpx`.

    Errors that are not known to be an outage count as a response.
    """
    refused, disconnected = _refused_tls(error), str(error).startswith(_NO_RESPONSE)
    if connection.handshaking and isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        message = f"{type(error).__name__} during the TLS handshake: {error}"
        return TransportFault(message, answered=refused)
    ended = isinstance(error, (httpx.ReadError, ssl.SSLError)) or disconnected
    if connection.fresh_tls and not connection.answered and ended and not refused:
        # The alert that reports a missing client certificate may be lost with the connection.
        return TransportFault(
            "the peer hung up right after the TLS handshake; it may require a client certificate"
        )
    if isinstance(error, httpx.ProxyError):
        answered = refused or str(error)[:3] not in {str(status) for status in _NONE_BEHIND}
        return TransportFault(describe(error), answered=answered, reached=answered)
    outage = disconnected or isinstance(error, (httpx.TimeoutException, httpx.NetworkError))
    answered = connection.answered or refused or not outage
    unconnected = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
    # Only a peer that accepted a connection can reset it.
    reset = any(map(_was_established, _causes(error)))
    reached = answered or connection.established or reset or not isinstance(error, unconnected)
    return TransportFault(describe(error), answered=answered, reached=reached)


def describe(error: Exception) -> str:
    """Return the type and the message of an exception."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def from_a_proxy(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a response is that of a proxy that found no gateway; header names are in lower case."""
    return status in _NONE_BEHIND and _VERSION not in headers


def reached_behind(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a gateway may have received the request: it responded, or a proxy waited for it in vain."""
    return status == HTTPStatus.GATEWAY_TIMEOUT or not from_a_proxy(status, headers)


def _refused_tls(error: BaseException) -> bool:
    """Whether TLS failed because one side refused the other."""
    return any(
        isinstance(each, ssl.SSLError) and not isinstance(each, _BROKEN)
        for each in islice(_causes(error), _LINKS)
    )


def _was_established(error: BaseException) -> bool:
    if isinstance(error, ConnectionError):
        return not isinstance(error, ConnectionRefusedError)
    # The operating system's error for a connection that was reset before it was first used.
    return isinstance(error, OSError) and error.errno == errno.ENOTCONN


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            # One error for each address of the host.
            for each in cause.exceptions:
                yield from _causes(each)
        cause = cause.__cause__ or cause.__context__
