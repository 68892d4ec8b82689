"""A peer on a raw socket, who answers as no server should."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.sockets import Sockets

# Answers on a connection after a request has been read; returns to have the next one read.
Misbehaviour = Callable[[socket.socket], None]


class Peer:
    """Accepts connections and leaves each request to `misbehaviour`, inside TLS if it is given a context.

    With `at_once` it does not read: each connection is left to it as soon as it is there.
    """

    def __init__(
        self, misbehaviour: Misbehaviour, *, tls: ssl.SSLContext | None = None, at_once: bool = False
    ) -> None:
        self._misbehaviour = misbehaviour
        self._tls = tls
        self._at_once = at_once
        self._sockets = Sockets()
        self.requests: list[bytes] = []
        self.port = self._sockets.listen(self._serve)[1]
        self.url = f"http://127.0.0.1:{self.port}" if tls is None else f"https://localhost:{self.port}"

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._sockets.wrap(self._tls, connection)
                connection.do_handshake()
            if self._at_once:
                self._misbehaviour(connection)
                return
            # The requests here are small: the headers come in one piece, the body at once or not at all.
            while received := connection.recv(65_536):
                if b"HTTP/1.1\r\n" in received:
                    self.requests.append(received)
                    self._misbehaviour(connection)
        except OSError:
            pass

    def close(self) -> None:
        self._sockets.close()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(misbehaviour: Misbehaviour, **options: Any) -> Peer:
        made.append(Peer(misbehaviour, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
