"""A small REST API: its document, a client of it in memory, and a server of it on this machine."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, Literal

from toolgate.testing import FakeGateway
from toolgate_integrations.openapi import AsyncGuardTransport, GuardTransport

Mode = Literal["sync", "async"]

BASE = "https://api.example.test/v1"
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Payments", "version": "1"},
    "servers": [{"url": BASE}],
    "paths": {
        "/refunds": {"post": {"operationId": "PostRefunds"}, "get": {"operationId": "ListRefunds"}},
        "/refunds/{id}": {
            "get": {},
            "patch": {"operationId": "PatchRefund"},
            "delete": {"operationId": "Drop"},
        },
        "/refunds/{id}:cancel": {"post": {"operationId": "Cancel"}},
        "/refunds/mine": {"get": {"operationId": "GetMine"}},
        "/reports/{name}.{format}": {"get": {"operationId": "GetReport"}},
        "/moved": {"post": {"operationId": "Move"}},
    },
    "components": {
        "securitySchemes": {
            "query": {"type": "apiKey", "in": "query", "name": "key"},
            "header": {"type": "apiKey", "in": "header", "name": "X-Token"},
        }
    },
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it arrived."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class Client:
    """A client of either HTTP library, synchronous or not, whose requests go through the guard to an API in memory.

    Attributes:
        http: the library.
        sent: what arrived.
        answer: what it is answered, or raised; given the library's request.
    """

    def __init__(
        self, library: str, mode: Mode, gateway: FakeGateway, document: Any = DOCUMENT, **options: Any
    ) -> None:
        self.http = import_module(library)
        self.mode = mode
        self.sent: list[Sent] = []
        self.answer: Callable[[Any], Any] = lambda _: self.http.Response(200, json={"done": True})
        kind: Any = GuardTransport if mode == "sync" else AsyncGuardTransport
        inner = self.http.MockTransport(self._arrived)
        self.transport = kind(inner, document, prefix="pay", guard=gateway.guard(), **options)

    def _arrived(self, request: Any) -> Any:
        self.sent.append(
            Sent(request.method, str(request.url), dict(request.headers), b"".join(request.stream))
        )
        return self.answer(request)

    async def send(self, method: str, path: str, *, follow: bool = False, **request: Any) -> Any:
        """Send one request, and return the response."""
        options = {"transport": self.transport, "base_url": BASE, "follow_redirects": follow}
        if self.mode == "sync":
            with self.http.Client(**options) as client:
                return client.request(method, path, **request)
        async with self.http.AsyncClient(**options) as client:
            return await client.request(method, path, **request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    arrived: list[Sent]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.arrived.append(Sent(self.command, self.path, headers, body))
        if self.path.endswith("/hangup"):
            self.close_connection = True
            return
        status = {"DELETE": 409}.get(self.command, 307 if self.path.endswith("/moved") else 200)
        said = json.dumps({"seen": self.path}).encode()
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/v1/refunds")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_PATCH(self) -> None:
        self.answer()

    def do_DELETE(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served() -> Iterator[tuple[str, list[Sent]]]:
    """Serve the API on this machine: its address, and what arrives there."""
    arrived: list[Sent] = []
    handler = type("Handler", (_Handler,), {"arrived": arrived})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", arrived
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
