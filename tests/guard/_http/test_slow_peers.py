"""The deadline of a response that continues without end."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.http_libraries import MODULES

from toolgate._http.exchange import Request, TransportError
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
def test_head_of_single_bytes_ends_at_the_deadline(
    peer: Any, library: Any, given: bool, misbehaviour: Any
) -> None:
    transport = library.HTTPTransport() if given else None
    url = peer(misbehaviour).url
    wire = HttpSender(url, library.__name__, transport)
    began = time.monotonic()
    with pytest.raises(TransportError):
        wire.send(Request("GET", url, {}), 0.3)
    assert time.monotonic() - began < 20
    wire.close()


@pytest.mark.parametrize("misbehaviour", [hints, drip])
async def test_head_of_single_bytes_ends_at_the_deadline_async(peer: Any, misbehaviour: Any) -> None:
    url = peer(misbehaviour).url
    wire = AsyncHttpSender(url)
    began = time.monotonic()
    with pytest.raises(TransportError, match="no response within"):
        await wire.send(Request("GET", url, {}), 0.3)
    assert time.monotonic() - began < 20
    await wire.aclose()


def test_connection_is_used_for_several_requests(peer: Any) -> None:
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
def test_head_of_single_bytes_on_an_existing_connection_ends_at_the_deadline(
    peer: Any, misbehaviour: Any
) -> None:
    """The next request succeeds."""
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


def test_request_that_is_cut_off_leaves_others_alone(peer: Any) -> None:
    """Both go over connections of earlier requests."""
    together, cut_off, begun = threading.Barrier(2), threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        path = server.requests[-1].split(b" ")[1]
        if path == b"/first":
            together.wait(20)
        elif path == b"/drip":
            drip(connection)
        else:
            begun.set()
            cut_off.wait(20)
        connection.sendall(OK)

    server = peer(serve)
    sender = HttpSender(server.url)

    def send(path: str, seconds: float) -> bytes:
        return sender.send(Request("GET", server.url + path, {}), seconds).body

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda _: send("/first", 20), range(2))) == [b"ok"] * 2
        other = threads.submit(send, "/other", 20)
        assert begun.wait(20)
        with pytest.raises(TransportError):
            send("/drip", 0.3)
        cut_off.set()
        assert other.result() == b"ok"
    sender.close()
