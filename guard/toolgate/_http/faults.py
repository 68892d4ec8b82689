"""Which failures are an outage: nobody answered. Whatever is not known to be one counts as an answer.

A call fails open only if, besides, no connection was established: a gateway that accepts the request and does not answer
in time may be overloaded, and may have denied the call.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

from toolgate._http.messages import TransportFault

__all__ = ["Faults", "from_a_proxy", "handshake_failed", "hung_up", "reached_behind", "refused_tls"]

# What a proxy says when it finds no gateway behind itself.
_NONE_BEHIND: Final = frozenset({502, 503, 504})
_VERSION: Final = "x-api-version"
# The connection broke during the handshake; every other fault of TLS is somebody's answer.
_BROKEN: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

# The HTTP library's error, that of its connections, the socket's; what comes next is none of theirs.
_LINKS: Final = 3


def from_a_proxy(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer, header names in lower case, is a proxy's that finds no gateway behind it."""
    return status in _NONE_BEHIND and _VERSION not in headers


def handshake_failed(error: Exception) -> TransportFault:
    """What to raise where a connection was established, and TLS ended or took too long without a refusal.

    A gateway that is overloaded accepts connections, and does not get round to their handshakes.
    """
    return TransportFault(f"{type(error).__name__} during the TLS handshake: {error}", answered=False)


def hung_up() -> TransportFault:
    """What to raise where the peer hangs up after the handshake of TLS and before it said anything.

    Somebody with the gateway's certificate was there: so may a missing client certificate be refused, where the
    alert that says it is lost with the connection.
    """
    return TransportFault(
        "the peer hung up right after the TLS handshake; it may want a client certificate", answered=True
    )


def reached_behind(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a gateway may have received the request that was answered so: it answered, or a proxy waited for it in vain."""
    return status == HTTPStatus.GATEWAY_TIMEOUT or not from_a_proxy(status, headers)


class Faults:
    """Judges the HTTP library's exceptions.

    Args:
        libraries: The library, and its library for connections, which names its own alike.
    """

    def __init__(self, *libraries: Any) -> None:
        self._proxy = _named("ProxyError", libraries)
        self._malformed = _named("RemoteProtocolError", libraries)
        self._nobody = _named("TimeoutException", libraries) + _named("NetworkError", libraries)
        self._unconnected = (
            *_named("ConnectError", libraries),
            *_named("ConnectTimeout", libraries),
            *_named("PoolTimeout", libraries),
            *_named("UnsupportedProtocol", libraries),
            *self._proxy,
        )

    def answered(self, error: BaseException) -> bool:
        """Whether somebody answered, be it a stranger in the gateway's place."""
        if refused_tls(error):
            return True
        if isinstance(error, self._proxy):
            return str(error)[:3] not in {str(status) for status in _NONE_BEHIND}
        if isinstance(error, self._malformed):
            # The one of these that is no answer: the peer died before it said anything.
            return not str(error).startswith("Server disconnected without sending a response")
        return not isinstance(error, self._nobody)

    def reached(self, error: BaseException) -> bool:
        """Whether a connection was established, so that a gateway may have received the request.

        Only a peer that accepted a connection can reset it, also where the library was still waiting for it to be ready.
        """
        return not isinstance(error, self._unconnected) or any(map(_was_established, _causes(error)))


def _named(name: str, libraries: tuple[Any, ...]) -> tuple[type[Exception], ...]:
    return tuple(getattr(library, name) for library in libraries)


def refused_tls(error: BaseException) -> bool:
    """Whether TLS failed because one side refused the other."""
    return any(
        isinstance(each, ssl.SSLError) and not isinstance(each, _BROKEN)
        for each in islice(_causes(error), _LINKS)
    )


def _was_established(error: BaseException) -> bool:
    if isinstance(error, ConnectionError):
        return not isinstance(error, ConnectionRefusedError)
    # What the operating system returns for a connection that was reset before it was first used.
    return isinstance(error, OSError) and error.errno == errno.ENOTCONN


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that caused it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        if isinstance(seen, BaseExceptionGroup):
            # One for each address of the host.
            for each in seen.exceptions:
                yield from _causes(each)
        seen = seen.__cause__ or seen.__context__
