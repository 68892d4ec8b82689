"""The total deadline, against peers who always have one more byte to send."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from typing import Any

import httpcore
import pytest
from support.http_libraries import MODULES

from toolgate._http import budget
from toolgate._http.transport import AsyncWire, Request, TransportFault, Wire

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
    wire = Wire(library.__name__, transport, time.monotonic)
    began = time.monotonic()
    with pytest.raises(TransportFault):
        wire.send(Request("GET", peer(misbehaviour).url, {}), 0.3)
    assert time.monotonic() - began < 20
    wire.close()


def test_the_budget_is_looked_at_between_reads(peer: Any) -> None:
    """Every read is given what is left by the guard's clock, and none is begun without a rest."""
    ticks = itertools.count()
    wire = Wire("httpx", None, lambda: float(next(ticks)))
    with pytest.raises(TransportFault, match="in time"):
        wire.send(Request("GET", peer(hints).url, {}), 12)
    assert next(ticks) < 20
    wire.close()


@pytest.mark.parametrize("misbehaviour", [hints, drip])
async def test_a_peer_that_never_ends_async(peer: Any, misbehaviour: Any) -> None:
    """As the synchronous test."""
    wire = AsyncWire("httpx", None)
    began = time.monotonic()
    with pytest.raises(TransportFault, match="no answer within"):
        await wire.send(Request("GET", peer(misbehaviour).url, {}), 0.3)
    assert time.monotonic() - began < 20
    await wire.aclose()


def test_connections_are_kept(peer: Any) -> None:
    """A connection that keeps to the budget of one request serves the next one with its own."""
    used: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        used.append(connection)
        connection.sendall(OK)

    server, wire = peer(answer), Wire("httpx", None, time.monotonic)
    assert [wire.send(Request("GET", server.url, {}), 5).body for _ in range(3)] == [b"ok"] * 3
    assert len(set(used)) == 1
    wire.close()


class Backend:
    """Refuses every address after it has been told how long it may take."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, float | None]] = []

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        self.tried.append((host, timeout))
        raise httpcore.ConnectTimeout


@pytest.mark.parametrize("left", [6.0, 0.0])
def test_all_addresses_share_the_budget(monkeypatch: pytest.MonkeyPatch, left: float) -> None:
    """A host with several addresses costs no more than one, and the last one still has its turn."""
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", 443)) for n in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    backend = Backend()
    opener = budget._Backend(backend, httpcore)
    with (
        budget.spending(lambda: left),
        pytest.raises(httpcore.ConnectTimeout if left else TransportFault),
    ):
        opener.connect_tcp("gateway.example", 443, timeout=5)
    expected = [("192.0.2.1", 5 / 3), ("192.0.2.2", 5 / 2), ("192.0.2.3", 5.0)]
    assert backend.tried == (expected if left else [])


def test_outside_a_request_nothing_is_limited() -> None:
    """A transport that is shared with others serves them as before."""
    asked: list[float | None] = []

    class Stream:
        def read(self, _: int, timeout: float | None = None) -> bytes:
            asked.append(timeout)
            return b""

    stream = budget._Stream(Stream(), httpcore)
    stream.read(1, timeout=7)
    with budget.spending(lambda: 2.0):
        stream.read(1, timeout=7)
        stream.read(1)
    stream.read(1)
    assert asked == [7, 2.0, 2.0, None]


@pytest.mark.parametrize("came", [True, False])
def test_what_came_while_this_thread_had_no_turn(came: bool) -> None:
    """An answer that lies there unread when the time is over was given all the same."""

    class Stream:
        def get_extra_info(self, info: str) -> bool:
            return came and info == "is_readable"

    with budget.spending(lambda: -1.0), pytest.raises(TransportFault) as raised:
        budget._Stream(Stream(), httpcore).read(1)
    assert raised.value.answered is came


@pytest.mark.parametrize("library", MODULES)
@pytest.mark.parametrize("given", [True, False], ids=["own transport", "the library's"])
def test_head_and_body_are_one_packet(peer: Any, library: Any, given: bool) -> None:
    """Whoever reads a request of ours reads the whole of it at once, over a kept connection as well."""
    server = peer(lambda connection: connection.sendall(OK))
    wire = Wire(library.__name__, library.HTTPTransport() if given else None, time.monotonic)
    for _ in range(2):
        wire.send(Request("POST", server.url, {"X-Key": "k"}, b'{"a":1}'), 5)
    assert [each.endswith(b'\r\n\r\n{"a":1}') for each in server.requests] == [True, True]
    wire.close()


class Written:
    """A connection that keeps what is written, in pieces; one that is broken takes nothing and still answers."""

    def __init__(self, *, broken: bool = False) -> None:
        self.pieces: list[bytes] = []
        self._broken = broken

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._broken:
            raise httpcore.WriteError
        self.pieces.append(buffer)

    def read(self, _: int, timeout: float | None = None) -> bytes:
        return b"answer"


def test_what_is_held_back_is_little() -> None:
    """Beyond one piece nothing is held back, and nothing at all of whoever shares the transport."""
    inner = Written()
    stream = budget._Stream(inner, httpcore)
    stream.write(b"theirs")
    with budget.spending(lambda: 5.0):
        stream.write(b"head")
        assert inner.pieces == [b"theirs"]
        stream.write(b"x" * budget._PIECE)
        assert b"".join(inner.pieces) == b"theirs" + b"head" + b"x" * budget._PIECE
        stream.write(b"end")
        assert stream.read(1) == b"answer"
    assert inner.pieces[-1] == b"end"


def test_an_answer_before_the_request_was_read() -> None:
    """A peer that answers and hangs up early is heard, though nothing can be written to it any more."""
    stream = budget._Stream(Written(broken=True), httpcore)
    with budget.spending(lambda: 5.0):
        stream.write(b"request")
        assert stream.read(1) == b"answer"


def test_what_is_held_back_when_the_time_is_over() -> None:
    """It is not sent any more: nobody waits for its answer."""
    inner, left = Written(), iter([5.0, -1.0])
    stream = budget._Stream(inner, httpcore)
    with budget.spending(lambda: next(left)):
        stream.write(b"request")
        with pytest.raises(TransportFault, match="in time"):
            stream.read(1)
    assert inner.pieces == []
