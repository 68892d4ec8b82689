"""Plain ASGI endpoints for `/sdk/check`, `/sdk/log` and `/sdk/logs`.

FastAPI answers a no-op at a third of the speed of plain ASGI; these routes are what agents wait for.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.errors import ApiError
from toolgate_service.web.edge import HEADER_BAG
from toolgate_service.web.replies import Reply


class Call:
    """One request to a raw endpoint. Nothing of its body is read before `read` is called.

    Args:
        scope: its ASGI scope.
        receive: receives the body.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        """Return a header by its lower-case name."""
        return header_of(self.scope, name)

    async def read(self) -> bytes:
        """Return the body.

        Raises:
            ApiError: 400, 408 or 413, it cannot be taken.
            ClientDisconnect: the client hung up before all of it came.
        """
        raw, more = await _part(self._receive)
        if more:
            parts = [raw]
            while more:
                part, more = await _part(self._receive)
                parts.append(part)
            raw = b"".join(parts)
        return raw

    @property
    def peer(self) -> str | None:
        """The address that the request came from."""
        return peer_of(self.scope)


class Answer(NamedTuple):
    """A finished answer: JSON bytes, a status, headers by their names in lower case."""

    body: bytes
    status: int = 200
    headers: Mapping[bytes, bytes] | None = None


Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]


def endpoint(handler: Handler) -> ASGIApp:
    """Make an ASGI application of a handler; an `ApiError` becomes its answer."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await handler(Call(scope, receive))
        except ApiError as error:
            await Reply({"detail": error.reply_detail}, error.status_code, error.headers)(
                scope, receive, send
            )
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body))]
        if answer.headers:
            headers += answer.headers.items()
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    return serve


def add_headers(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Have the edge put headers on whatever answer this request gets.

    Args:
        scope: the request's.
        headers: by their names in lower case.
    """
    bag = scope.get(HEADER_BAG)
    scope[HEADER_BAG] = headers if bag is None else bag | headers


def peer_of(scope: Scope) -> str | None:
    """Return the address that a request came from; behind trusted proxies, once the edge has revealed it."""
    client = scope.get("client")
    return client[0] if client else None


def header_of(scope: Scope, name: bytes) -> str | None:
    """Return a header of a request.

    Args:
        scope: the request's.
        name: in lower case.
    """
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        # What came so far may look complete, and nobody is there for the answer: nothing is decided.
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)
