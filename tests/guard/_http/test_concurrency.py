"""Many calls at once, and a server that delays some of its responses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from toolgate import Guard
from toolgate._http import transport
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import AsyncHttpSender, HttpSender

KEY = "ak_" + "k3y" * 12 + "z"
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "ask", "approval_id": "appr-1"}


class Server(ThreadingHTTPServer):
    """Holds back every approval until `decided`; counts who waits."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.decided = threading.Event()
        self.one_waits = threading.Event()
        self.all_wait = threading.Event()
        self.waiting = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/sdk/log":
            self.answer({"id": "1", **body})
        else:
            self.answer(HELD if body["action"] == "held" and "approval_id" not in body else ALLOWED)

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.waiting += 1
            self.server.one_waits.set()
            if self.server.waiting == 110:
                self.server.all_wait.set()
        self.server.decided.wait(60)
        self.answer({"id": "appr-1", "status": "approved"})

    def answer(self, body: Any) -> None:
        content = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.decided.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_five_hundred_concurrent_calls_succeed(server: Server) -> None:
    # How long it takes is the machine's; a call that never got its turn would wait out any deadline.
    async with Guard(server.url, KEY, "agent-1", timeout=120) as guard:

        @guard.guarded("a.b")
        async def tool(n: int) -> int:
            return n

        assert await asyncio.gather(*(tool(n) for n in range(500))) == list(range(500))


async def test_calls_that_wait_for_approval_do_not_block_others(server: Server) -> None:
    async with Guard(server.url, KEY, "agent-1") as guard:

        @guard.guarded("held", on_hold="wait")
        async def held(n: int) -> int:
            return n

        tasks = [asyncio.create_task(held(n)) for n in range(110)]
        assert await asyncio.to_thread(server.all_wait.wait, 60)
        assert (await guard.acheck("a.b")).allowed
        assert not any(task.done() for task in tasks)
        server.decided.set()
        assert await asyncio.gather(*tasks) == list(range(110))


def test_threads_that_wait_for_approval_do_not_block_others(server: Server) -> None:
    with Guard(server.url, KEY, "agent-1") as guard, ThreadPoolExecutor(110) as threads:

        @guard.guarded("held", on_hold="wait")
        def held(n: int) -> int:
            return n

        results = threads.map(held, range(110))
        assert server.all_wait.wait(60)
        assert guard.check("a.b").allowed
        server.decided.set()
        assert list(results) == list(range(110))


def test_time_in_the_queue_counts_against_the_deadline(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the queue was the reason."""
    monkeypatch.setattr(transport, "_MAX_REQUESTS", 1)
    wire = HttpSender(server.url, clock=lambda: 0.0)
    blocked = threading.Thread(target=wire.send, args=(Request("GET", server.url, {}), 60))
    blocked.start()
    assert server.one_waits.wait(60)
    with pytest.raises(TransportError, match="not sent within"):
        wire.send(Request("GET", server.url, {}), 0.01)
    server.decided.set()
    blocked.join()
    assert wire.send(Request("GET", server.url, {}), 60).status == 200
    wire.close()


async def test_time_in_the_queue_counts_against_the_deadline_async(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_MAX_REQUESTS", 1)
    wire = AsyncHttpSender(server.url)
    blocked = asyncio.create_task(wire.send(Request("GET", server.url, {}), 60))
    assert await asyncio.to_thread(server.one_waits.wait, 60)
    with pytest.raises(TransportError, match="not sent within"):
        await wire.send(Request("GET", server.url, {}), 0.01)
    server.decided.set()
    assert (await blocked).status == 200
    await wire.aclose()
