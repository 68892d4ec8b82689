"""Keep-alive connection of the load generator: it parses only enough HTTP to detect complete and correct responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast


class UnexpectedAnswer(Exception):
    """Error: a server sent an unexpected response."""


@dataclass(frozen=True)
class Asked:
    """One kind of request.

    Attributes:
        request: Function that returns the next request.
        expected: Text that every correct response body contains.
    """

    request: Callable[[], bytes]
    expected: bytes


@dataclass(frozen=True)
class Target:
    """Server and requests of a measurement.

    Attributes:
        port: Where it listens on the loopback address.
        asked: The requests that each connection sends, in turn.
    """

    port: int
    asked: tuple[Asked, ...]


class Connection(asyncio.Protocol):
    """Connection with at most one request at a time.

    Args:
        target: Server and requests.
        answered: Callback for each response, with the connection, the index of the request, and the nanoseconds.

    Attributes:
        transport: Transport of the connection, once it is open.
        lost: Done when the connection has ended, with the reason if there is one.
    """

    def __init__(self, target: Target, answered: Callable[[Connection, int, int], None]) -> None:
        self._asked = target.asked
        self._answered = answered
        self._gathered = b""
        self._since = 0
        self._turn = -1
        self._broken: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self.transport = cast("asyncio.Transport", transport)

    def send(self, due: int | None = None) -> None:
        """Ask what is next in turn.

        Args:
            due: From when the latency counts, by `time.perf_counter_ns`; None is now.
        """
        assert self.transport is not None, "the connection is not open"
        self._turn = (self._turn + 1) % len(self._asked)
        request = self._asked[self._turn].request()
        self._since = time.perf_counter_ns() if due is None else due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect received data, and call `answered` for a complete response."""
        if self._gathered:
            data = self._gathered + data
        if not whole(data):
            self._gathered = data
            return
        self._gathered = b""
        took = time.perf_counter_ns() - self._since
        if not data.startswith(b"HTTP/1.1 200 ") or self._asked[self._turn].expected not in data:
            self._broken = UnexpectedAnswer(f"not what is measured: {data[:600].decode('latin-1')!r}")
            assert self.transport is not None
            self.transport.abort()
            return
        self._answered(self, self._turn, took)

    def connection_lost(self, exc: Exception | None) -> None:
        """Store the reason."""
        if not self.lost.done():
            self.lost.set_result(self._broken or exc)


def whole(data: bytes) -> bool:
    """Return True if a response is complete.

    Args:
        data: Received part of the response.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return data.endswith(b"0\r\n\r\n")
    stop = head.find(b"\r\n", at + 2)
    length = int(head[at + 17 : stop if stop >= 0 else end])
    return len(data) - end - 4 >= length


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A whole request as bytes.

    Args:
        path: Its path.
        body: Its JSON.
        headers: Beside the host's, the type's and the length's.
    """
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
