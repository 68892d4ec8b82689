"""A receiver of webhooks: an HTTP server on a thread, which answers what it is told to and keeps what it got."""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from support.waiting import until


@dataclass(frozen=True, slots=True)
class Got:
    """One request.

    Attributes:
        path: with the query.
        headers: by name, in lower case.
        body: as it came.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The payload."""
        event: dict[str, Any] = json.loads(self.body)
        return event

    @property
    def id(self) -> str:
        """The event's."""
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver says: a status with headers and a body, once it is let go."""

    status: int = 200
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    after: threading.Event | None = None


class Receiver:
    """Listens on 127.0.0.1.

    Attributes:
        got: every request that came whole, in order.
        answers: what the next requests are answered; then `default`.
    """

    def __init__(self, *answers: Answer, default: Answer | None = None) -> None:
        self.got: list[Got] = []
        self.answers = deque(answers)
        self.default = default or Answer()
        self._ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                if len(body) < length:
                    # Whoever sent it was killed in the middle: a receiver never had this one.
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Got(self.path, headers, body))
                receiver._answer(self)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                # A gateway that was killed, or lost its patience, hung up.
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        """Where."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where deliveries go."""
        return f"http://127.0.0.1:{self.port}/hook?token=in-the-query"

    def wait(self, many: int = 1, where: Callable[[Got], bool] = lambda _: True) -> list[Got]:
        """Return what came, once so many requests have."""
        until(lambda: len([one for one in self.got if where(one)]) >= many)
        return [one for one in self.got if where(one)]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        answer = self.answers.popleft() if self.answers else self.default
        if answer.after is not None:
            while not answer.after.wait(0.05):
                if self._ended.is_set():
                    return
        handler.send_response(answer.status)
        for name, value in (answer.headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
