"""Building blocks of the plain ASGI endpoints `/sdk/check`, `/sdk/log` and `/sdk/logs`.

These endpoints do not use FastAPI because agents wait for their responses. For an endpoint that does nothing, FastAPI
reaches a third of the throughput of plain ASGI.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from toolgate_service.http.responses import HEADER_BAG, HEADERS


class PlainRequest:
    """Request to a plain ASGI endpoint. The body is not read until `read` is called."""

    __slots__ = ("_receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        """Return the value of a request header; None if it is absent. `name` must be in lower case."""
        return header_of(self.scope, name)

    async def read(self) -> bytes:
        """Return the request body.

        Raises:
            ApiError: 400 if the body is not valid, 408 if it did not arrive in time, 413 if it is too large.
            ClientDisconnect: The client disconnected before the whole body had arrived.
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
        """The client's IP address; None if the server does not provide it."""
        return peer_of(self.scope)


class PlainResponse(NamedTuple):
    """Response of a plain ASGI endpoint: JSON body, status and headers. Header names are in lower case."""

    body: bytes
    status: int = 200
    headers: Mapping[bytes, bytes] | None = None


Handler: TypeAlias = Callable[[PlainRequest], Awaitable[PlainResponse]]


def add_headers(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Add headers to the response of a request, even if it is an error. Header names must be in lower case."""
    scope.setdefault(HEADER_BAG, {}).update(headers)


def peer_of(scope: Scope) -> str | None:
    """Return the client's IP address; None if the server does not provide it.

    `EdgeMiddleware` has already replaced the address of a trusted proxy by the client's address.
    """
    client = scope.get("client")
    return client[0] if client else None


def header_of(scope: Scope, name: bytes) -> str | None:
    """Return the value of a request header; None if it is absent. `name` must be in lower case."""
    value: bytes | None = scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        # Raise an error, so that the handler does not act on an incomplete body: the part of the body that arrived
        # before the disconnect may be valid JSON by chance.
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)
