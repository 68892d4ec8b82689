"""One request to the gateway's application without a socket."""

import asyncio
from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

#: status, headers with names in lower case, body
Answered: TypeAlias = tuple[int, dict[str, str], bytes]


class Call:
    """A request that is being answered.

    It is never cut off in the midst of its work: whoever no longer waits for the answer hangs up, and the application
    learns it as it would of a closed connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._hung_up = asyncio.Event()
        self._status = 500
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def hang_up(self) -> None:
        """Wait for the answer no longer."""
        self._hung_up.set()

    async def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answered:
        """Return the application's answer, read to its end.

        Args:
            method: the verb.
            target: path and query, as they would stand in the request's first line.
            headers: the request's.
            body: the request's, if it has one.
        """
        content = body or b""
        given = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> Message:
            message = next(given, None)
            if message is None:
                await self._hung_up.wait()
                return {"type": "http.disconnect"}
            return message

        await self._app(_scope(method, target, headers, len(content)), receive, self._take)
        return self._status, self._headers, bytes(self._body)

    async def _take(self, message: Message) -> None:
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
        # There is no address: nobody came from anywhere.
        "client": None,
        "server": None,
    }
