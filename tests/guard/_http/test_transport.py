"""What the senders put on the network and how they read responses, over their own transport and a given one."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.http_libraries import MODULES

from toolgate._http import exchange
from toolgate._http.exchange import Request, Response, TransportError
from toolgate._http.transport import AsyncHttpSender, HttpSender
from toolgate.errors import ConfigurationError

pytestmark = [
    pytest.mark.parametrize("library", MODULES),
    pytest.mark.parametrize("given", [False, True], ids=["own-transport", "given-transport"]),
    pytest.mark.parametrize("kind", ["sync", "async"]),
]

HEADERS = {"Accept": "application/json", "X-API-Key": "ak_1", "Idempotency-Key": "k"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-One: 1\r\nX-One: 2\r\n\r\nok"
Send = Callable[[Request, float], Awaitable[Response]]


def read_request(connection: socket.socket) -> bytes:
    received = b""
    while True:
        head, found, body = received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if found and len(body) >= (int(lengths[0].partition(b":")[2]) if lengths else 0):
            return received
        if not (piece := connection.recv(65_536)):
            raise OSError("the client closed the connection")
        received += piece


class Recorder:
    """Sends the same response to every request, and stores the requests."""

    def __init__(self, response: bytes = OK) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._response = response

    def __call__(self, connection: socket.socket) -> None:
        self.connections += 1
        while True:
            self.requests.append(read_request(connection))
            connection.sendall(self._response)


@asynccontextmanager
async def sender(url: str, library: Any, kind: str, *, given: bool) -> AsyncIterator[Send]:
    if kind == "async":
        asynchronous = AsyncHttpSender(url, library.__name__, library.AsyncHTTPTransport() if given else None)
        yield asynchronous.send
        await asynchronous.aclose()
        return
    synchronous = HttpSender(url, library.__name__, library.HTTPTransport() if given else None)

    async def send(request: Request, seconds: float) -> Response:
        return synchronous.send(request, seconds)

    yield send
    synchronous.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "expected"),
    [
        (
            "POST",
            "/sdk/check?x=%C3%A4&y=a b",
            HEADERS,
            b'{"a":1}',
            (
                b"POST /sdk/check?x=%C3%A4&y=a%20b HTTP/1.1\r\nHost: HOST\r\nAccept: application/json\r\n"
                b'X-API-Key: ak_1\r\nIdempotency-Key: k\r\nContent-Length: 7\r\n\r\n{"a":1}'
            ),
        ),
        (
            "POST",
            "/sdk/approvals/1/cancel",
            {},
            None,
            b"POST /sdk/approvals/1/cancel HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n",
        ),
        ("POST", "/empty", {}, b"", b"POST /empty HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n"),
        ("GET", "/?wait=1", {}, None, b"GET /?wait=1 HTTP/1.1\r\nHost: HOST\r\n\r\n"),
        ("DELETE", "/", {}, None, b"DELETE / HTTP/1.1\r\nHost: HOST\r\n\r\n"),
    ],
)
async def test_request_contains_only_what_was_given(
    peer: Any,
    library: Any,
    kind: str,
    given: bool,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes | None,
    expected: bytes,
) -> None:
    """Three requests go over one connection."""
    gateway = Recorder()
    url = peer(gateway, at_once=True).url
    async with sender(url, library, kind, given=given) as send:
        responses = [await send(Request(method, url + path, headers, body), 5) for _ in range(3)]
    host = url.removeprefix("http://").encode()
    assert gateway.requests == [expected.replace(b"HOST", host)] * 3
    assert gateway.connections == 1
    assert responses == [Response(200, {"content-length": "2", "x-one": "1, 2"}, b"ok")] * 3


async def test_compressed_response_is_decompressed(peer: Any, library: Any, kind: str, given: bool) -> None:
    """A body that cannot be decompressed is not valid JSON, and the connection stays usable."""
    compressed = gzip.compress(b'{"allowed":true}')
    for body, expected in ((compressed, b'{"allowed":true}'), (b"not gzip", b"\xff")):
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        url = peer(Recorder(head + body), at_once=True).url
        async with sender(url, library, kind, given=given) as send:
            assert (await send(Request("GET", url, {}), 5)).body == expected
            assert (await send(Request("GET", url, {}), 5)).body == expected


async def test_limit_of_the_body_counts_decompressed_bytes(
    peer: Any, library: Any, kind: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_MAX_BODY", 1_000)
    body = gzip.compress(b" " * 2_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    url = peer(Recorder(head + body), at_once=True).url
    async with sender(url, library, kind, given=given) as send:
        with pytest.raises(TransportError, match="longer than"):
            await send(Request("GET", url, {}), 5)


@pytest.mark.parametrize(
    ("url", "headers"), [("http://127.0.0.1:1/", {"X-API-Key": "ä"}), ("http://127.0.0.1:x/", {})]
)
async def test_invalid_header_or_url_is_a_configuration_error(
    library: Any, kind: str, given: bool, url: str, headers: dict[str, str]
) -> None:
    async with sender("http://127.0.0.1:1", library, kind, given=given) as send:
        with pytest.raises(ConfigurationError, match="TOOLGATE_URL"):
            await send(Request("GET", url, headers), 5)


async def test_connection_that_the_gateway_closed_costs_no_request(
    peer: Any, library: Any, kind: str, given: bool
) -> None:
    closed = threading.Semaphore(0)

    def respond_and_close(connection: socket.socket) -> None:
        connection.sendall(OK)
        connection.close()
        closed.release()

    gateway = peer(respond_and_close)
    async with sender(gateway.url, library, kind, given=given) as send:
        for _ in range(3):
            assert (await send(Request("GET", gateway.url, {}), 5)).body == b"ok"
            assert closed.acquire(timeout=5)
    assert len(gateway.requests) == 3


async def test_addresses_are_not_logged(
    peer: Any, library: Any, kind: str, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Paths contain ids of approval requests; `httpx.Client` logs them at INFO."""
    caplog.set_level(logging.INFO)
    url = peer(Recorder(), at_once=True).url
    async with sender(url, library, kind, given=given) as send:
        await send(Request("GET", url + "/sdk/approvals/0f3c", {}), 5)
    assert "0f3c" not in caplog.text
