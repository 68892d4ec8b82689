"""ASGI client: one request to the gateway's application without a socket."""

import asyncio
from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

#: status, headers with lower-case names, body
Response: TypeAlias = tuple[int, dict[str, str], bytes]


class ASGIRequest:
    """A request in progress.

    The application is never cancelled in the middle of its work: `disconnect` is reported to it as `http.disconnect`, as
    by a client that closes its connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._disconnected = asyncio.Event()
        self._status = 500
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def disconnect(self) -> None:
        """Report to the application that the client has gone."""
        self._disconnected.set()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        """Return the complete response.

        Args:
            method: HTTP method.
            target: Path and query, percent-encoded.
            headers: Request headers.
            body: Request body, if any.
        """
        content = body or b""
        messages = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> Message:
            message = next(messages, None)
            if message is None:
                await self._disconnected.wait()
                return {"type": "http.disconnect"}
            return message

        await self._app(_scope(method, target, headers, len(content)), receive, self._receive_response)
        return self._status, self._headers, bytes(self._body)

    async def _receive_response(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            pairs = message.get("headers", ())
            self._headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")


def _scope(method: str, target: str, headers: Mapping[str, str], length: int) -> Scope:
    path, _, query = target.partition("?")
    pairs = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in {"host": "embedded", **headers, "content-length": str(length)}.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": pairs,
        # There is no connection, so that there are no addresses.
        "client": None,
        "server": None,
    }
