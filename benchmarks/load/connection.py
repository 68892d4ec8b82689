"""One keep-alive connection of the load: it reads just enough HTTP to know when an answer is whole, and the right one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast


class UnexpectedAnswer(Exception):
    """A server answered something else than what is being measured."""


@dataclass(frozen=True)
class Asked:
    """One kind of request.

    Attributes:
        request: Makes the next one, whole.
        expected: What the body of every answer contains; anything else is no answer to what is measured.
    """

    request: Callable[[], bytes]
    expected: bytes


@dataclass(frozen=True)
class Target:
    """What is asked.

    Attributes:
        port: Where it listens on the loopback address.
        asked: The requests that each connection sends, in turn.
    """

    port: int
    asked: tuple[Asked, ...]


class Connection(asyncio.Protocol):
    """At most one request is under way at a time.

    Args:
        target: What is asked.
        answered: Told of every answer: which connection, which of the requests, and after how many nanoseconds.

    Attributes:
        transport: The way out, once there is one.
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
        """Take what came; tell when an answer is whole."""
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
        """Remember why."""
        if not self.lost.done():
            self.lost.set_result(self._broken or exc)


def whole(data: bytes) -> bool:
    """Whether an answer has come to its end.

    Args:
        data: What came of it.
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
