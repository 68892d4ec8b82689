"""A small HTTP server that takes events from anybody and hands each to one reader, one after the other."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: an event is far smaller (decisions §2)
LONGEST_BODY = 1024 * 1024

#: seconds that a sender may take
_PATIENCE = 10


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request.

    Attributes:
        headers: names in lower case.
        body: whole.
    """

    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Receiver(ThreadingHTTPServer):
    """Serves until it is shut down.

    Args:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        read: is called for each delivery, one at a time, and says whether it was right: 204, otherwise 400.

    Attributes:
        broken: why it stopped by itself: nobody reads any more what `read` prints.
    """

    daemon_threads = True
    # A sender that hangs does not keep the command from ending.
    block_on_close = False

    def __init__(self, host: str, port: int, read: Callable[[Delivery], bool]) -> None:
        self._read = read
        self._turn = threading.Lock()
        self.broken: BrokenPipeError | None = None
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

    def read(self, delivery: Delivery) -> bool:
        """Let the delivery be read, alone."""
        with self._turn:
            try:
                return self._read(delivery)
            except BrokenPipeError as error:
                # Whoever read what is printed is gone, and a thread of a request cannot end the command.
                self.broken = error
                self.shutdown()
                raise

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of senders that hang up."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "toolgate-listen"
    sys_version = ""

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        right = self.server.read(Delivery(headers, body))
        self._answer(HTTPStatus.NO_CONTENT if right else HTTPStatus.BAD_REQUEST)

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED)

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - http.server's names

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._answer(HTTPStatus.LENGTH_REQUIRED)
            return None
        # Compared as text first: a number of a thousand digits is not read.
        if len(length) > len(str(LONGEST_BODY)) or int(length) > LONGEST_BODY:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._answer(HTTPStatus.BAD_REQUEST)
            return None
        return body

    def _answer(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Connection", "close")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write no log of its own."""
