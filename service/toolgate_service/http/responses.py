"""JSON responses that preserve numbers without rounding, streamed responses, and the headers of every response."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Self, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, Detail, error_body, error_text
from toolgate_service.core.settings import Settings

NO_STORE = {"Cache-Control": "no-store"}


class Reply(Response):
    """JSON response whose content is a model, a list of models, or plain values. Decimal numbers keep all digits."""

    media_type = "application/json"

    def __init__(self, content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_plain(content), status_code=status, headers=headers)

    def render(self, content: object) -> bytes:
        """Return the content as JSON bytes."""
        return strict_json.dumps(content).encode()


#: beginning of the paths of the AuthZEN API, whose specification defines the form of errors
AUTHZEN_PATHS = "/access/v1/"
#: beginning of the paths of access requests, whose profile defines errors in the form of RFC 9457
ACCESS_REQUEST_PATHS = "/access/v1/requests"
#: beginning of the error types that the AuthZEN Access Request and Approval Profile defines
PROBLEM_TYPE = "urn:openid:authzen:access-request:error:"
_UNAUTHENTICATED = 401


class ErrorReply(Reply):
    """Error response with the detail and the code of the error.

    For a request to the AuthZEN API, the body contains only the message, as the AuthZEN specification requires. For an
    access request, the body is a problem document in the form of RFC 9457.
    """

    def __init__(self, detail: Detail, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error_body(status, detail), status, headers)
        self._detail = detail
        self._given_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if not scope["path"].startswith(AUTHZEN_PATHS):
            await super().__call__(scope, receive, send)
            return
        headers = dict(self._given_headers or {})
        if self.status_code == _UNAUTHENTICATED:
            headers.setdefault("WWW-Authenticate", "Bearer")
        if scope["path"].startswith(ACCESS_REQUEST_PATHS):
            headers["Content-Type"] = "application/problem+json"
            await Reply(_problem(self._detail, self.status_code), self.status_code, headers)(
                scope, receive, send
            )
            return
        await Reply(error_text(self._detail), self.status_code, headers)(scope, receive, send)


def _problem(detail: Detail, status: int) -> dict[str, object]:
    specific = detail.get("error") if isinstance(detail, Mapping) else None
    return {
        "type": f"{PROBLEM_TYPE}{specific}" if isinstance(specific, str) else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error_text(detail),
    }


class NoContent(Response):
    """Response with status 204 and no body."""

    def __init__(self) -> None:
        super().__init__(status_code=204)


def _plain(content: object) -> object:
    match content:
        case BaseModel():
            return content.model_dump()
        case str() | bytes():
            return content
        case Sequence():
            return [_plain(item) for item in content]
    return content


logger = logging.getLogger("toolgate.gateway")

#: Timeout in seconds for sending one chunk of a streamed response. After the timeout, the stream ends and releases its
#: database snapshot.
SEND_TIMEOUT = 60
#: Maximum size in bytes of one chunk of a streamed response. Chunks are small, so that a slow client can receive each
#: one within the timeout.
CHUNK_SIZE = 64 * 1024


class Stream(StreamingResponse):
    """Streamed response: a generator creates its parts while the response is sent.

    The status is sent only when the first part exists, so that an earlier error can still result in an error response.
    A later error closes the connection, which the client's HTTP library reports as an incomplete response. The
    generator is closed when the client disconnects.
    """

    def __init__(self, parts: AsyncGenerator[bytes], media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(parts, media_type=media_type, headers=headers)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        request = Request(scope, receive)
        async with aclosing(self._parts) as parts:
            part = await anext(parts, None)
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            while part is not None:
                for begin in range(0, len(part), CHUNK_SIZE):
                    if not await _is_accepted(request, send, part[begin : begin + CHUNK_SIZE]):
                        return
                part = await anext(parts, None)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _is_accepted(request: Request, send: Send, chunk: bytes) -> bool:
    """Send one chunk of the body. Return True if the client accepted the chunk in time and is still connected."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except TimeoutError:
        logger.warning("stopped sending a response: the client received no data for %d seconds", SEND_TIMEOUT)
        return False
    # `send` does not raise an error after the client has disconnected, so the connection is checked here.
    return not await request.is_disconnected()


API_VERSION = "2026-11-20"

#: ASGI scope key of a dictionary of headers that are added to the response, including error responses
HEADER_BAG = "toolgate.headers"
#: ASGI scope key of a function of the server that adds lines to the head of the response without validating them. The
#: validation of headers by uvicorn would take a fifth of the time of a check.
APPEND_TO_HEAD = "toolgate.append_to_head"
#: ASGI scope key of a dictionary of the request's headers; its keys are lower-case names
HEADERS = "toolgate.request_headers"
#: ASGI scope key of the request's id
REQUEST_ID = "toolgate.request_id"
#: ASGI scope key of the header `X-Request-ID` as received, if the response must contain it unchanged
ECHOED_ID = "toolgate.echoed_id"

RawHeader: TypeAlias = tuple[bytes, bytes]
_VERSION: RawHeader = (b"x-api-version", API_VERSION.encode())

#: Headers that are added to a response unless it sets them itself. With them, browsers do not cache the response, show
#: it in a frame, or execute its content.
_DEFAULTS: tuple[RawHeader, ...] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
#: The duration is two years in seconds, as recommended for the HSTS preload lists of browsers.
_HTTPS_ONLY: RawHeader = (b"strict-transport-security", b"max-age=63072000")


class ResponseHeaders:
    """Adds the default headers, the request id and the API version to responses.

    Args:
        https: True if the gateway's public URL uses https; adds ``Strict-Transport-Security``.
    """

    def __init__(self, *, https: bool) -> None:
        self._defaults = (*_DEFAULTS, _HTTPS_ONLY) if https else _DEFAULTS
        self._default_names = frozenset(name for name, _ in self._defaults)
        self._default_lines = _lines((*self._defaults, _VERSION))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Create an instance from the gateway's settings."""
        return cls(https=(settings.public_url or "").startswith("https:"))

    def complete(
        self, given: Iterable[RawHeader], request_id: bytes, added: Mapping[bytes, bytes] | None = None
    ) -> list[RawHeader]:
        """Return a response's headers, together with `added` and the headers that every response has.

        A header in `added` replaces given headers with the same name. Names in `added` must be in lower case.
        """
        headers = list(given)
        names = {name for name, _ in headers}
        if added:
            if not names.isdisjoint(added):
                headers = [pair for pair in headers if pair[0] not in added]
            headers += added.items()
            names.update(added)
        if names.isdisjoint(self._default_names):
            headers += self._defaults
        else:
            headers += [pair for pair in self._defaults if pair[0] not in names]
        headers += ((b"x-request-id", request_id), _VERSION)
        return headers

    def add_to(
        self,
        message: Message,
        request_id: bytes,
        added: Mapping[bytes, bytes],
        append_to_head: Callable[[bytes], None] | None,
    ) -> None:
        """Add the headers to the ASGI message that starts a response.

        Args:
            message: The message, which is changed in place.
            request_id: Id of the request.
            added: Further headers, as in `complete`.
            append_to_head: Function that the gateway's own server provides under `APPEND_TO_HEAD`; None with other
                servers.
        """
        given = message.get("headers", ())
        if append_to_head is None or self._sets_common_header(given, added):
            message["headers"] = self.complete(given, request_id, added)
            return
        lines = _lines((*added.items(), (b"x-request-id", request_id)))
        if not lines.count(b"\n") == lines.count(b"\r") == len(added) + 1:
            # Reject a line break in a value, because it would start another header.
            raise ValueError("a response header contains a line break")
        append_to_head(lines + self._default_lines)

    def _sets_common_header(self, given: Iterable[RawHeader], added: Mapping[bytes, bytes]) -> bool:
        defaults = self._default_names
        for name, _ in given:  # noqa: SIM110 - `any` with a generator takes twice as long
            if name in added or name in defaults:
                return True
        return False

    def answer(self, error: ApiError, request_id: str) -> bytes:
        """Return a complete HTTP/1.1 error response as bytes.

        The server's HTTP protocol sends these bytes if it rejects a request before the ASGI application receives it.
        """
        body = strict_json.dumps(error_body(error.status_code, error.detail)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        added = {name.lower().encode(): value.encode() for name, value in (error.headers or {}).items()}
        lines = _lines(self.complete(headers, request_id.encode(), added))
        return b"HTTP/1.1 %d \r\n%b\r\n%b" % (error.status_code, lines, body)


def _lines(headers: Iterable[RawHeader]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
