"""The total deadline, against peers who always have one more byte to send."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from support.http_libraries import MODULES

from toolgate._http.messages import Request, TransportError
from toolgate._http.transport import AsyncHttpSender, HttpSender

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
never = threading.Event()


def hints(connection: socket.socket) -> None:
    """Early hints without end."""
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")


def drip(connection: socket.socket) -> None:
    """Headers in single bytes, each before any time-out for one read, for a minute in all."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(1200):
        connection.sendall(b"x")
        never.wait(0.05)


@pytest.mark.parametrize("library", MODULES)
@pytest.mark.parametrize("given", [True, False], ids=["own transport", "the library's"])
@pytest.mark.parametrize("misbehaviour", [hints, drip])
def test_a_peer_that_never_ends(peer: Any, library: Any, given: bool, misbehaviour: Any) -> None:
    """What comes before an answer counts against the deadline, whoever opened the connections."""
    transport = library.HTTPTransport() if given else None
    url = peer(misbehaviour).url
    wire = HttpSender(url, library.__name__, transport)
    began = time.monotonic()
    with pytest.raises(TransportError):
        wire.send(Request("GET", url, {}), 0.3)
    assert time.monotonic() - began < 20
    wire.close()


@pytest.mark.parametrize("misbehaviour", [hints, drip])
async def test_a_peer_that_never_ends_async(peer: Any, misbehaviour: Any) -> None:
    """As the synchronous test."""
    url = peer(misbehaviour).url
    wire = AsyncHttpSender(url)
    began = time.monotonic()
    with pytest.raises(TransportError, match="no response within"):
        await wire.send(Request("GET", url, {}), 0.3)
    assert time.monotonic() - began < 20
    await wire.aclose()


def test_connections_are_kept(peer: Any) -> None:
    """A connection that keeps to the budget of one request serves the next one with its own."""
    used: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        used.append(connection)
        connection.sendall(OK)

    server = peer(answer)
    wire = HttpSender(server.url)
    assert [wire.send(Request("GET", server.url, {}), 5).body for _ in range(3)] == [b"ok"] * 3
    assert len(set(used)) == 1
    wire.close()


@pytest.mark.parametrize("misbehaviour", [hints, drip])
def test_peer_that_never_ends_on_a_kept_connection(peer: Any, misbehaviour: Any) -> None:
    """The deadline also ends a request that goes over a connection of an earlier one; the next one works."""
    answered: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        answered.append(connection)
        if len(answered) == 2:
            misbehaviour(connection)
        else:
            connection.sendall(OK)

    url = peer(serve).url
    wire = HttpSender(url)
    assert wire.send(Request("GET", url, {}), 5).body == b"ok"
    began = time.monotonic()
    with pytest.raises(TransportError) as raised:
        wire.send(Request("GET", url, {}), 0.3)
    assert time.monotonic() - began < 20
    assert raised.value.reached
    assert answered[0] is answered[1]
    assert wire.send(Request("GET", url, {}), 5).body == b"ok"
    wire.close()
