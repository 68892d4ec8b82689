"""An ASGI client without a server, and an application that records its requests."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

JSON = {"content-type": "application/json"}


class Client:
    """One HTTP request and its response.

    Args:
        request: method and target, like `POST /refunds?a=1`.
        body: the body, or the pieces in which it comes, or what is sent as JSON.
        headers: beside those of a JSON body.
    """

    def __init__(
        self,
        request: str,
        body: bytes | list[bytes] | dict[str, Any] = b"",
        *,
        headers: Mapping[str, str] | list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        method, _, target = request.partition(" ")
        path, _, query = target.partition("?")
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self._pieces = body if isinstance(body, list) else [body]
        length = {"content-length": str(sum(map(len, self._pieces)))}
        if not isinstance(headers, list):
            named = {**(JSON if any(self._pieces) else {}), **length, **(headers or {})}
            headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
        }
        self.sent: list[Any] = []
        self._gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def ask(self, app: Any) -> Self:
        """Send the request and wait for the response."""
        await app(self.scope, self.receive, self.send)
        return self

    def hang_up(self) -> None:
        """Disconnect."""
        self._gone.set()

    @property
    def status(self) -> int:
        found: int = self.sent[0]["status"]
        return found

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(each["body"] for each in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Tool:
    """An application that records its requests and sends a fixed response.

    Args:
        status: its answers' status; None sends none.
        error: what it raises before it answers.
    """

    def __init__(self, status: int | None = 200, error: BaseException | None = None) -> None:
        self.status = status
        self.error = error
        self.ran: list[tuple[str, str, bytes]] = []
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        self.ran.append((scope["path"], scope["query_string"].decode(), body))
        if self.error is not None:
            raise self.error
        if self.status is not None:
            await send({"type": "http.response.start", "status": self.status, "headers": [(b"x-tool", b"1")]})
            await send({"type": "http.response.body", "body": b"the tool's"})
