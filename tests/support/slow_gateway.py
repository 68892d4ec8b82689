"""A gateway on a real port that allows every call and takes every log entry after a short time."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["SlowGateway"]


class SlowGateway(ThreadingHTTPServer):
    """Allows every call, and takes some time for each request, as one behind a network does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SlowAnswers)
        self.taken: list[str] = []
        self.broken = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.broken += 1


class SlowAnswers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowGateway

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found: dict[str, Any] = {
            "allowed": True,
            "requires_approval": False,
            "reason": None,
            "approval_id": None,
        }
        if self.path == "/sdk/logs":
            # No sleep: half of the time the interpreter of the client is ending meanwhile.
            threading.Event().wait(0.05)
            self.server.taken += [entry["action"] for entry in body["entries"]]
            found = {"results": [{"status": 200} for _ in body["entries"]]}
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return
