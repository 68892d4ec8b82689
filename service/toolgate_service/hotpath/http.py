"""The raw ASGI road of `/sdk/check` and `/sdk/log`: read a body, send JSON, nothing else.

FastAPI answers a no-op at a third of the speed of plain ASGI; these two routes are what agents wait for.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.exact_json import Json
from toolgate_service.web.bodies import read_object
from toolgate_service.web.edge import HEADER_BAG
from toolgate_service.web.replies import Reply


class Call(NamedTuple):
    """One request on the raw road.

    Attributes:
        scope: its ASGI scope.
        raw: the body as it came; empty when it could not be read.
        unreadable: why it could not, to be said once the key is known.
    """

    scope: Scope
    raw: bytes
    unreadable: ApiError | None = None

    def header(self, name: bytes) -> str | None:
        """Return a header by its lower-case name."""
        for key, value in self.scope["headers"]:
            if key == name:
                text: str = value.decode("latin-1")
                return text
        return None

    def fields(self) -> tuple[dict[str, Json], ApiError | None]:
        """Return the body's members, and what is wrong with it: the key is judged before the body is."""
        if self.unreadable is not None:
            return {}, self.unreadable
        try:
            return read_object(self.raw), None
        except FieldErrors as error:
            return {}, error

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
            answer = await handler(await _read(scope, receive))
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


async def _read(scope: Scope, receive: Receive) -> Call:
    try:
        raw, more = await _part(receive)
        if more:
            parts = [raw]
            while more:
                part, more = await _part(receive)
                parts.append(part)
            raw = b"".join(parts)
    except ApiError as error:
        return Call(scope, b"", error)
    return Call(scope, raw)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        # What came so far may look complete, and nobody is there for the answer: nothing is decided.
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)
