"""No call takes longer than its deadline, whichever step of it stalls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.http_libraries import LIBRARIES
from support.tunnel import Tunnel
from support.waiting import until

from toolgate import GatewayUnavailable, Guard
from toolgate._http import exchange
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import HttpSender

KEY = "ak_" + "k3y" * 12 + "z"
# A call that nobody answers; a deadline that is not kept ends long after this, or never.
LONG = 25
never = threading.Event()
Ends = Callable[..., Awaitable[GatewayUnavailable]]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_HTTP", request.param)


@pytest.fixture(params=["sync", "async"])
def ends(request: pytest.FixtureRequest, library: None) -> Ends:
    """Asks the gateway at an address, and holds that it soon gives up."""

    async def ask(url: str, **options: Any) -> GatewayUnavailable:
        async with Guard(url, KEY, "agent", timeout=0.5, **options) as guard:
            began = time.monotonic()
            with pytest.raises(GatewayUnavailable) as raised:
                guard.check("a.b") if request.param == "sync" else await guard.acheck("a.b")
            assert time.monotonic() - began < LONG
        return raised.value

    return ask


def silent(_: socket.socket) -> None:
    pass


def dripping(first: bytes, each: bytes) -> Callable[[socket.socket], None]:
    """Something that goes on for a minute, each bit well before any time-out for one read."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(first)
        for _ in range(1200):
            connection.sendall(each)
            never.wait(0.05)

    return drip


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener that takes no connection any more: what is sent to it is swallowed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = list[socket.socket]()
    for _ in range(4):
        each = socket.socket()
        each.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            each.connect(listener.getsockname())
        waiting.append(each)
    yield listener.getsockname()[1]
    for each in (*waiting, listener):
        each.close()


async def test_deadline_covers_connecting(ends: Ends, full: int) -> None:
    assert not (await ends(f"http://127.0.0.1:{full}")).answered


class Resolver:
    """Stalls until it is over, after some results."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = threading.Event()
        #: addresses of the look-ups that succeed, one for each, before the others stall
        self.results = list[tuple[str, int]]()
        self.many = 1
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, *given: Any, **named: Any) -> Any:
        if host not in ("gateway.example", b"gateway.example"):
            return self._real(host, *given, **named)
        self.asked += 1
        if self.results:
            address = self.results.pop()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)] * self.many
        self.over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.over.set()


async def test_deadline_covers_name_resolution(ends: Ends, resolver: Resolver) -> None:
    assert not (await ends("https://gateway.example")).answered
    # The loop's end waits for the thread that still asks.
    resolver.over.set()
    assert resolver.asked


def test_resolver_that_stalls_for_a_later_connection_ends_in_time(peer: Any, resolver: Resolver) -> None:
    """The first connection is in use, so that a second call needs another one."""
    asked, go_on = threading.Event(), threading.Event()

    def respond_later(connection: socket.socket) -> None:
        asked.set()
        go_on.wait(30)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    resolver.results = [("127.0.0.1", peer(respond_later).port)] * 2
    sender = HttpSender("http://gateway.example")
    request = Request("GET", "http://gateway.example/", {})
    first = threading.Thread(target=sender.send, args=(request, 60))
    first.start()
    assert asked.wait(30)
    resolver.results.clear()
    began = time.monotonic()
    with pytest.raises(TransportError) as raised:
        sender.send(request, 0.3)
    assert time.monotonic() - began < LONG
    assert (raised.value.answered, raised.value.reached) == (False, False)
    go_on.set()
    first.join()
    sender.close()


async def test_resolver_that_stalls_for_a_proxy_ends_in_time(ends: Ends, resolver: Resolver) -> None:
    assert not (await ends("https://localhost:9", proxy="http://gateway.example:3128")).answered
    resolver.over.set()
    assert resolver.asked


def test_several_dead_addresses_share_the_deadline(full: int, resolver: Resolver) -> None:
    """Connecting tries one address after the other."""
    resolver.results = [("127.0.0.1", full)] * 20
    resolver.many = 20
    sender = HttpSender(f"http://gateway.example:{full}")
    began = time.monotonic()
    with pytest.raises(TransportError) as raised:
        sender.send(Request("GET", f"http://gateway.example:{full}/", {}), 1)
    assert time.monotonic() - began < 5
    assert not raised.value.reached
    sender.close()


def test_threads_share_a_look_up_that_stalls(resolver: Resolver) -> None:
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(exchange.look_up, "gateway.example", 443, 0.2) for _ in range(20)]
        for each in waiting:
            with pytest.raises(TimeoutError):
                each.result()
    assert resolver.asked == 1


def test_failed_look_up_is_repeated_by_the_next_call() -> None:
    """The error is the system's."""
    for _ in range(2):
        with pytest.raises(OSError, match=r"not known|resolution|No address"):
            exchange.look_up("gateway.invalid", 443, 20)
    # The thread says its last word before it takes itself off the list.
    until(lambda: exchange._look_ups == {})


@pytest.mark.parametrize(
    "misbehaviour",
    [
        pytest.param(silent, id="stalls"),
        pytest.param(dripping(b"\x16\x03\x03\x40\x00", b"\x02"), id="drips"),
    ],
)
async def test_deadline_covers_the_tls_handshake(peer: Any, ends: Ends, misbehaviour: Any) -> None:
    server = peer(misbehaviour, at_once=True)
    assert not (await ends(f"https://localhost:{server.port}")).answered


@pytest.mark.parametrize(
    "misbehaviour",
    [
        pytest.param(silent, id="stalls"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), id="drips"),
    ],
)
async def test_deadline_covers_the_tunnel_of_a_proxy(peer: Any, ends: Ends, misbehaviour: Any) -> None:
    server = peer(misbehaviour)
    assert not (await ends("https://gateway.example", proxy=server.url)).answered
    assert server.requests


async def test_deadline_covers_the_tls_handshake_in_a_tunnel(peer: Any, ends: Ends) -> None:
    server = peer(silent, at_once=True)
    with Tunnel() as tunnel:
        url = f"https://localhost:{server.port}"
        assert not (await ends(url, proxy=f"http://{tunnel.address}")).answered
        assert tunnel.carried


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", id="of a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", id="without end"),
    ],
)
async def test_deadline_covers_a_body_of_single_bytes(peer: Any, ends: Ends, head: bytes) -> None:
    """The response counts as one although it is incomplete."""
    piece = b"1\r\nx\r\n" if b"chunked" in head else b"x"
    assert (await ends(peer(dripping(head, piece)).url)).answered


async def test_body_without_end_is_not_read_to_the_deadline(peer: Any, ends: Ends) -> None:

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")

    assert (await ends(peer(pour).url)).answered


def test_threads_beyond_the_limit_also_end_at_the_deadline(peer: Any) -> None:
    """All of them find that there was no response."""
    server = peer(silent)
    with Guard(server.url, KEY, "agent", timeout=1) as guard, ThreadPoolExecutor(500) as pool:

        def call(_: int) -> bool:
            with pytest.raises(GatewayUnavailable) as raised:
                guard.check("a.b")
            return raised.value.answered

        began = time.monotonic()
        assert set(pool.map(call, range(500))) == {False}
        assert time.monotonic() - began < LONG


async def test_tasks_beyond_the_limit_also_end_at_the_deadline(peer: Any) -> None:
    server = peer(silent)
    async with Guard(server.url, KEY, "agent", timeout=1) as guard:

        async def call() -> bool:
            with pytest.raises(GatewayUnavailable) as raised:
                await guard.acheck("a.b")
            return raised.value.answered

        began = time.monotonic()
        assert set(await asyncio.gather(*(call() for _ in range(500)))) == {False}
        assert time.monotonic() - began < LONG
