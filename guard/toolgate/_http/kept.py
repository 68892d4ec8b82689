"""Connections that are kept between requests, for any thread: what is left of a pool where turns are taken before.

No lock, which a fork could find held: every change is one operation of a deque or a set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["Kept"]

_SCHEMES = frozenset({b"http", b"https"})


class Kept:
    """Connections, each for one request at a time; the one that was idle for the shortest time serves the next.

    Args:
        core: The library for connections, `httpcore` or its successor.
        make: Makes a connection to an origin, which connects when it is first used.
        idle: How many idle ones are kept.
    """

    def __init__(self, core: Any, make: Callable[[Any], Any], idle: int) -> None:
        self._unavailable: type[Exception] = core.ConnectionNotAvailable
        self._unsupported: type[Exception] = core.UnsupportedProtocol
        self._make = make
        self._most = idle
        self._idle = deque[Any]()
        self._open = set[Any]()
        self._closed = False

    def send(self, request: Any) -> tuple[Any, Callable[[], None]]:
        """Send a request of the library for connections; returns its answer, and what gives the connection back."""
        if request.url.scheme not in _SCHEMES:
            raise self._unsupported(f"{request.url.scheme!r} is no protocol of the web")
        while True:
            connection = self._taken(request.url.origin)
            try:
                answer = connection.handle_request(request)
            except self._unavailable:
                # Closed in this very moment, before anything was sent.
                self._drop(connection)
            except BaseException:
                self._drop(connection)
                raise
            else:
                return answer, partial(self._give_back, connection, answer.stream)

    def close(self) -> None:
        """Close the connections, also those in use."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)

    def _taken(self, origin: Any) -> Any:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.can_handle_request(origin) and not connection.has_expired():
                    return connection
                self._drop(connection)
        connection = self._make(origin)
        self._open.add(connection)
        return connection

    def _give_back(self, connection: Any, stream: Any) -> None:
        stream.close()
        if self._closed or not connection.is_idle() or len(self._idle) >= self._most:
            self._drop(connection)
            return
        if self._idle:
            self._drop_expired()
        self._idle.append(connection)

    def _drop_expired(self) -> None:
        """What has not been needed for long lies at the other end."""
        with suppress(IndexError):
            while True:
                oldest = self._idle.popleft()
                if not oldest.has_expired():
                    self._idle.appendleft(oldest)
                    return
                self._drop(oldest)

    def _drop(self, connection: Any) -> None:
        self._open.discard(connection)
        connection.close()
