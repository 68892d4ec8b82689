"""State of one request, without I/O: its progress, its response, and whether a failure means an outage.

With the option `fail_open`, a tool runs without a decision only if no connection to the gateway was established. If the
gateway received the request but did not respond in time, it may be overloaded, or may have denied the call.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

from toolgate._http.messages import Response, TransportError

__all__ = ["Exchange", "describe", "gateway_reached", "is_from_proxy"]

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
            raise TransportError("the response did not end in time")
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
                "the peer hung up right after the TLS handshake; it may require a client certificate"
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
    return status == HTTPStatus.GATEWAY_TIMEOUT or not is_from_proxy(status, headers)


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
