"""The two roads to the gateway — by pools, and by a client of the library — carry the same and say the same."""

from __future__ import annotations

import gzip
import socket
import time
from typing import Any

import pytest
from support.http_libraries import MODULES

from toolgate._http import transport
from toolgate._http.transport import AsyncWire, Request, TransportFault, Wire
from toolgate.errors import ConfigurationError

LIBRARY = pytest.mark.parametrize("library", MODULES)
DIRECT = pytest.mark.parametrize("direct", [True, False], ids=["by pool", "by client"])
HEADERS = {"Accept": "application/json", "X-API-Key": "ak_1", "Idempotency-Key": "k"}
REQUESTS = [
    ("POST", "/sdk/check?x=%C3%A4&y=a b", HEADERS, b'{"a":1}'),
    ("POST", "/sdk/approvals/1/cancel", HEADERS, None),
    ("POST", "/empty", {}, b""),
    ("GET", "/sdk/approvals/1?wait=1", HEADERS, None),
    ("DELETE", "/", {}, None),
]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-One: 1\r\nX-One: 2\r\n\r\nok"


def whole(connection: socket.socket) -> bytes:
    """One request, with its body."""
    received = b""
    while True:
        head, found, body = received.partition(b"\r\n\r\n")
        named = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if found and len(body) >= (int(named[0].partition(b":")[2]) if named else 0):
            return received
        if not (piece := connection.recv(65_536)):
            raise OSError("the client hung up")
        received += piece


class Listening:
    """Answers every request with the same, and keeps what was asked."""

    def __init__(self, answer: bytes = OK) -> None:
        self.heard: list[bytes] = []
        self.connections = 0
        self._answer = answer

    def __call__(self, connection: socket.socket) -> None:
        self.connections += 1
        while True:
            self.heard.append(whole(connection))
            connection.sendall(self._answer)


def wire(library: Any, *, direct: bool) -> Wire:
    """By a pool, or by a client with a transport of the caller's own."""
    return Wire(library.__name__, None if direct else library.HTTPTransport(), time.monotonic)


def async_wire(library: Any, *, direct: bool) -> AsyncWire:
    """As `wire`."""
    return AsyncWire(library.__name__, None if direct else library.AsyncHTTPTransport())


class TestRoads:
    """Synchronously."""

    @LIBRARY
    def test_the_same_on_the_wire(self, peer: Any, library: Any) -> None:
        """Byte for byte, and over one connection each; answers and their headers are the same as well."""
        said, carried, answers = Listening(), {}, {}
        url = peer(said, at_once=True).url
        for direct in (True, False):
            said.heard, said.connections = [], 0
            asking = wire(library, direct=direct)
            answers[direct] = [
                asking.send(Request(method, url + path, headers, body), 5)
                for method, path, headers, body in REQUESTS
            ]
            asking.close()
            carried[direct] = said.heard
            assert said.connections == 1
        assert carried[True] == carried[False]
        assert answers[True] == answers[False]
        assert answers[True][0].headers == {"content-length": "2", "x-one": "1, 2"}

    @LIBRARY
    @DIRECT
    def test_a_packed_answer(self, peer: Any, library: Any, direct: bool) -> None:
        """Nobody asks for one; it is unpacked all the same, and one that cannot be is no JSON and no crash."""
        packed = gzip.compress(b'{"allowed":true}')
        for body, read in ((packed, b'{"allowed":true}'), (b"no gzip", b"\xff")):
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
            asking = wire(library, direct=direct)
            url = peer(Listening(head + body), at_once=True).url
            assert asking.send(Request("GET", url, {}), 5).body == read
            assert asking.send(Request("GET", url, {}), 5).body == read
            asking.close()

    @LIBRARY
    @DIRECT
    def test_too_much_unpacked(
        self, peer: Any, library: Any, direct: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What an answer is unpacked to counts, not what it was packed to."""
        monkeypatch.setattr(transport, "_MAX_ANSWER", 1_000)
        body = gzip.compress(b" " * 2_000)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        asking = wire(library, direct=direct)
        with pytest.raises(TransportFault, match="longer than"):
            asking.send(Request("GET", peer(Listening(head + body), at_once=True).url, {}), 5)
        asking.close()

    @LIBRARY
    @DIRECT
    def test_what_cannot_be_sent(self, library: Any, direct: bool) -> None:
        """A header that is no ASCII, or an address that is none, is a matter of configuration."""
        asking = wire(library, direct=direct)
        for url, headers in (("http://127.0.0.1:1/", {"X-API-Key": "ä"}), ("http://127.0.0.1:x/", {})):
            with pytest.raises(ConfigurationError, match="TOOLGATE_URL"):
                asking.send(Request("GET", url, headers), 5)
        asking.close()


class TestAsyncRoads:
    """The same, asynchronously."""

    @LIBRARY
    async def test_the_same_on_the_wire(self, peer: Any, library: Any) -> None:
        """As its twin."""
        said, carried, answers = Listening(), {}, {}
        url = peer(said, at_once=True).url
        for direct in (True, False):
            said.heard, said.connections = [], 0
            asking = async_wire(library, direct=direct)
            answers[direct] = [
                await asking.send(Request(method, url + path, headers, body), 5)
                for method, path, headers, body in REQUESTS
            ]
            await asking.aclose()
            carried[direct] = said.heard
            assert said.connections == 1
        assert carried[True] == carried[False]
        assert answers[True] == answers[False]
        assert answers[True][0].headers == {"content-length": "2", "x-one": "1, 2"}

    @LIBRARY
    @DIRECT
    async def test_a_packed_answer(self, peer: Any, library: Any, direct: bool) -> None:
        """As its twin."""
        packed = gzip.compress(b'{"allowed":true}')
        for body, read in ((packed, b'{"allowed":true}'), (b"no gzip", b"\xff")):
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
            asking = async_wire(library, direct=direct)
            url = peer(Listening(head + body), at_once=True).url
            assert (await asking.send(Request("GET", url, {}), 5)).body == read
            assert (await asking.send(Request("GET", url, {}), 5)).body == read
            await asking.aclose()

    @LIBRARY
    @DIRECT
    async def test_too_much_unpacked(
        self, peer: Any, library: Any, direct: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As its twin."""
        monkeypatch.setattr(transport, "_MAX_ANSWER", 1_000)
        body = gzip.compress(b" " * 2_000)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        asking = async_wire(library, direct=direct)
        with pytest.raises(TransportFault, match="longer than"):
            await asking.send(Request("GET", peer(Listening(head + body), at_once=True).url, {}), 5)
        await asking.aclose()

    @LIBRARY
    @DIRECT
    async def test_what_cannot_be_sent(self, library: Any, direct: bool) -> None:
        """As its twin."""
        asking = async_wire(library, direct=direct)
        for url, headers in (("http://127.0.0.1:1/", {"X-API-Key": "ä"}), ("http://127.0.0.1:x/", {})):
            with pytest.raises(ConfigurationError, match="TOOLGATE_URL"):
                await asking.send(Request("GET", url, headers), 5)
        await asking.aclose()
