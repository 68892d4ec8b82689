"""The clients with a real server: pools, event loops, threads, forks."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.http_libraries import LIBRARIES

from toolgate import GatewayUnavailable, Guard
from toolgate._http import transport
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import AsyncHttpSender, HttpSender

KEY = "ak_" + "k3y" * 12 + "z"
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(ALLOWED if self.path == "/sdk/check" else {"id": "1", **body})

    def do_GET(self) -> None:
        self.answer("x" * 5_000_000)

    def answer(self, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_guard_works_with_both_http_libraries(
    url: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_HTTP", library)

    async def act() -> bool:
        async with Guard(url, KEY, "agent-1") as guard:
            entry = await guard.alog("a.b", "success", {"n": 1})
            return (await guard.acheck("a.b")).allowed and entry["context"] == {"n": 1}

    with Guard(url, KEY, "agent-1") as guard:
        assert guard.check("a.b").allowed
        assert guard.log("a.b", "success", {"n": 1})["context"] == {"n": 1}
    assert asyncio.run(act())


def test_connections_close_with_their_event_loop(url: str) -> None:
    """A guard works in several event loops, one after the other."""
    guard = Guard(url, KEY, "agent-1")

    @guard.guarded("a.b")
    async def tool(n: int) -> int:
        return n

    assert [asyncio.run(tool(n)) for n in range(3)] == [0, 1, 2]
    guard.close()
    del guard, tool
    # An open socket or transport warns when it is collected, and a warning is an error here.
    gc.collect()


def test_threads_share_a_guard(url: str) -> None:
    with Guard(url, KEY, "agent-1") as guard:
        answers: list[bool] = []
        threads = [
            threading.Thread(target=lambda: answers.append(guard.check("a.b").allowed)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [True] * 8


def test_garbage_collection_of_a_guard_closes_its_connections(url: str) -> None:
    guard = Guard(url, KEY, "agent-1")
    guard.check("a.b")
    del guard
    gc.collect()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_child_of_a_fork_opens_its_own_connections(url: str) -> None:
    """Closing them leaves the parent's usable."""
    code = (
        "import os; from toolgate import Guard\n"
        f"guard = Guard({url!r}, {KEY!r}, 'agent-1')\n"
        "assert guard.check('a.b').allowed\n"
        "child = os.fork()\n"
        "assert guard.check('a.b').allowed\n"
        "guard.close()\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_refused_connection_is_unavailable() -> None:
    """The error contains the address."""
    with pytest.raises(GatewayUnavailable, match=r"127\.0\.0\.1:9"):
        Guard("http://127.0.0.1:9", KEY, "agent-1", timeout=0.05).check("a.b")


def test_response_that_is_too_long_is_not_read_to_its_end(url: str) -> None:
    with pytest.raises(TransportError, match="longer"):
        HttpSender(url, clock=lambda: 0.0).send(Request("GET", url, {}), 5)


async def test_response_that_is_too_long_is_not_read_to_its_end_async(url: str) -> None:
    wire = AsyncHttpSender(url)
    with pytest.raises(TransportError, match="longer"):
        await wire.send(Request("GET", url, {}), 5)
    await wire.aclose()


def test_body_that_continues_after_the_deadline_is_cut_off(url: str) -> None:
    ticks = iter(range(0, 100_000, 10))
    with pytest.raises(TransportError, match="before the timeout"):
        HttpSender(url, clock=lambda: float(next(ticks))).send(Request("GET", url, {}), 100)


@pytest.mark.parametrize(
    ("limit", "value", "left"), [("_MAX_IDLE", 1, 1), ("_MAX_IDLE", 2, 2), ("_IDLE_SECONDS", -1.0, 0)]
)
def test_idle_connections_are_closed(
    peer: Any, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, left: int
) -> None:
    """Those beyond the limit and those that are idle for too long."""
    monkeypatch.setattr(transport, limit, value)
    together, closed = threading.Barrier(4), threading.Semaphore(0)

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        together.wait(20)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        if connection.recv(1) == b"":
            closed.release()

    url = peer(serve, at_once=True).url
    sender = HttpSender(url)
    with ThreadPoolExecutor(4) as threads:
        for response in threads.map(lambda _: sender.send(Request("GET", url, {}), 20), range(4)):
            assert response.status == 200
    assert all(closed.acquire(timeout=20) for _ in range(4 - left))
    assert not closed.acquire(blocking=False)
    sender.close()
    assert all(closed.acquire(timeout=20) for _ in range(left))
