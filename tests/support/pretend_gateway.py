"""A gateway of a few lines on a real port: says what a test wants said, and keeps what it was sent."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

APPROVAL = {
    "id": "0199a3f2-4b1c-7000-8000-000000000001",
    "status": "pending",
    "agent_id": "0199a3f2-0000-7000-8000-00000000000a",
    "agent_name": "shop-assistant",
    "action": "stripe.refund",
    "permission_id": "0199a3f2-0000-7000-8000-00000000000b",
    "digest": "ab" * 32,
    "context": {"amount": 250, "order": "1002"},
    "run_id": None,
    "call_id": None,
    "note": None,
    "created_at": "2026-11-21T12:00:00.000000Z",
    "expires_at": "2999-11-22T12:00:00.000000Z",
    "decided_at": None,
    "decided_by": None,
    "consumed_at": None,
    "cancelled_at": None,
    "cancel_reason": None,
    "required_approvals": 1,
    "votes": [],
    "replaces": None,
    "replaced_by": None,
    "approved_context": None,
    "grant_id": None,
}

Answer = tuple[int, Any]


class PretendGateway:
    """Serves approvals in a `with` block.

    Attributes:
        approvals: what it has, newest first; change it as the test goes on.
        answers: (method, path) → what is answered instead of what it would say itself, or what makes the answer.
        raw: (method, path) → the very text of a good answer.
        headers: (method, path) → headers beside the usual.
        sent: (method, path, query, token, body) of every request.
    """

    def __init__(self) -> None:
        self.approvals: list[dict[str, Any]] = []
        self.answers: dict[tuple[str, str], Answer | Callable[[], Answer]] = {}
        self.raw: dict[tuple[str, str], str | bytes] = {}
        self.headers: dict[tuple[str, str], dict[str, str]] = {}
        self.sent: list[tuple[str, str, dict[str, str], str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def bodies(self, path: str) -> list[str]:
        """Return the bodies that were posted to a path."""
        return [body for method, there, _, _, body in self.sent if (method, there) == ("POST", path)]

    def paths(self) -> list[str]:
        """Return the requests in order, as `METHOD path`."""
        return [f"{method} {path}" for method, path, *_ in self.sent]

    def _answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        said = self.answers.get((method, path))
        if said is not None:
            return said() if callable(said) else said
        if path == "/auth/login":
            return 200, {"access_token": f"token-{len(self.sent)}"}
        if path == "/api/logs/export":
            return 200, None
        if path == "/auth/logout":
            return 204, None
        if path == "/api/team":
            return 200, {"users": [{"id": "user-1", "email": "ada@example.test"}]}
        if path == "/api/approvals":
            wanted = query.get("status")
            return 200, [one for one in self.approvals if wanted in {None, one["status"]}]
        found = [one for one in self.approvals if path == f"/api/approvals/{one['id']}"]
        return (200, found[0]) if found else (404, {"detail": "Approval not found"})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                gateway.sent.append((self.command, parts.path, query, token, body))
                status, content = gateway._answer(self.command, parts.path, query)
                raw = gateway.raw.get((self.command, parts.path))
                text = raw or ("" if content is None else json.dumps(content))
                data = text if isinstance(text, bytes) else text.encode()
                self.send_response_only(status)
                usual = {"Date": self.date_time_string(), "Content-Length": str(len(data))}
                for name, value in (usual | gateway.headers.get((self.command, parts.path), {})).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
