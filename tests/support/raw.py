"""A connection on which a test writes whatever bytes it likes."""

import io
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


class _Kept(io.BufferedReader):
    """A socket's file that outlives an answer: the beginning of the next one may be in its buffer already."""

    def makefile(self, _mode: str) -> Self:
        return self

    def close(self) -> None:
        """Stay open; the socket is closed by its owner."""


class Raw:
    """A socket to the gateway, in a `with` block."""

    def __init__(self, url: str, *, seconds: float = 20) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=seconds)
        self._file = _Kept(socket.SocketIO(self.socket, "r"))

    def send(self, *parts: bytes) -> Self:
        """Write; a gateway that has hung up already is none of the writer's business."""
        # In one segment, so that a short body arrives with its head.
        with suppress(OSError):
            self.socket.sendall(b"".join(parts))
        return self

    def answer(self, method: str = "GET") -> RawAnswer:
        """Read one answer.

        Raises:
            http.client.HTTPException: what came is none.
            OSError: nothing came in time, or the connection was reset.
        """
        response = HTTPResponse(self._file, method=method)  # type: ignore[arg-type]  # of a socket it wants the file alone
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return RawAnswer(response.status, headers, response.read())

    def ended(self) -> bool:
        """Read until the gateway hangs up; say whether nothing came."""
        try:
            return self._file.read(1) == b""
        except ConnectionError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def whole(answer: RawAnswer) -> RawAnswer:
    """Assert that an answer has the shape that every answer has; return it."""
    assert answer.headers["x-api-version"] == "2026-11-20"
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.body:
        assert answer.headers["content-type"] == "application/json"
        assert answer.status < 400 or set(answer.json()) == {"detail", "code"}
    return answer
