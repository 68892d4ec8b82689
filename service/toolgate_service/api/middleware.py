"""ASGI middleware: request ids, CORS, trusted proxies, response headers, retries, unhandled errors and the access log.

The classes do not use Starlette's `BaseHTTPMiddleware`, because it would slow down `/sdk/check` and `/sdk/log`.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Literal, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.core.addresses import ANY, Address, Network, read_address
from toolgate_service.core.errors import ApiError, LostRace, StorageFault
from toolgate_service.core.ids import new_id
from toolgate_service.core.logging import FIELDS, ORGANIZATION, REQUEST
from toolgate_service.core.settings import Settings
from toolgate_service.db.health import OUTAGE, STORAGE_FAULTS
from toolgate_service.db.retry import with_retry
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse
from toolgate_service.http.body_limit import bounded
from toolgate_service.http.request_head import repeated_header
from toolgate_service.http.responses import (
    APPEND_TO_HEAD,
    AUTHZEN_PATHS,
    ECHOED_ID,
    HEADER_BAG,
    HEADERS,
    REQUEST_ID,
    ErrorReply,
    NoContent,
    ResponseHeaders,
)

logger = logging.getLogger("toolgate.gateway")
access_logger = logging.getLogger("toolgate.access")

#: Status in the access log and the metrics for a request whose client disconnected before the response started.
CLIENT_CLOSED_REQUEST = 499
#: maximum length of a path in the access log, in characters; the rest is cut off
MAX_LOGGED_PATH = 200

#: Value in seconds of the Retry-After header in a response that reports an unusable database.
RETRY_AFTER = 1

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

#: beginnings of the paths whose responses contain the request's header `X-Request-ID` unchanged, whatever text it
#: contains, as the AuthZEN specification requires. Logs contain only ids that match `_REQUEST_ID`.
_ECHOING = (AUTHZEN_PATHS, "/.well-known/authzen-configuration")

FORWARDED_FOR = b"x-forwarded-for"

#: response headers that a script on a page of an allowed origin may read
_EXPOSED = (
    b"Idempotency-Mismatch, Idempotency-Replayed, Link, Retry-After, X-API-Version, X-Budget-Left, X-Call-Let-Through, "
    b"X-Decision-ID, "
    b"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Reason-Code, X-Request-ID, X-Rule-ID, X-Toolgate-Environment, "
    b"X-Toolgate-Organization, X-Total-Count"
)
_PREFLIGHT = {
    b"access-control-allow-methods": b"GET, HEAD, POST, PUT, PATCH, DELETE",
    b"access-control-allow-headers": b"Authorization, Content-Type, Idempotency-Key, X-API-Key, X-Request-ID",
    b"access-control-max-age": b"600",
}


#: Group of request paths, used as a label of metrics and traces. The path itself cannot be the label: it may contain an
#: id, and a metric must have few label values.
RouteGroup: TypeAlias = Literal[
    "check", "log", "approvals", "permissions", "authzen", "management", "console", "health", "other"
]
ROUTE_GROUPS: tuple[RouteGroup, ...] = (
    "check", "log", "approvals", "permissions", "authzen", "management", "console", "health", "other",
)  # fmt: skip
_EXACTLY: dict[str, RouteGroup] = {"/sdk/check": "check", "/sdk/log": "log", "/sdk/logs": "log"}
_BELOW: tuple[tuple[str, RouteGroup], ...] = (
    ("/sdk/approvals/", "approvals"),
    ("/sdk/permissions", "permissions"),
    (AUTHZEN_PATHS, "authzen"),
    ("/api/", "management"),
    ("/auth/", "management"),
    ("/billing/", "management"),
    ("/slack/", "management"),
    ("/console", "console"),
    ("/health", "health"),
)


def route_group(path: str) -> RouteGroup:
    """Return the route group to which a request path belongs."""
    exactly = _EXACTLY.get(path)
    if exactly is not None:
        return exactly
    return next((route for begin, route in _BELOW if path.startswith(begin)), "other")


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the request id: the value of the header `X-Request-ID` if it is valid, otherwise a new id."""
    sent = headers.get(b"x-request-id")
    return sent.decode() if sent is not None and _REQUEST_ID.fullmatch(sent) else new_id()


def _identify(scope: Scope, given: Mapping[bytes, bytes]) -> str:
    """Store the request id in the scope and return it. For AuthZEN, also store `X-Request-ID` as received."""
    request_id: str = request_id_of(given)
    scope[REQUEST_ID] = request_id
    if scope["path"].startswith(_ECHOING) and b"x-request-id" in given:
        scope[ECHOED_ID] = given[b"x-request-id"]
    return request_id


def failure(scope: Scope, error: Exception) -> ErrorReply:
    """Return the response for an unhandled error: 503 if the database is not usable, otherwise 500.

    The response contains the request id, but no internal details of the error.
    """
    request_id = scope[REQUEST_ID]
    if isinstance(error, STORAGE_FAULTS):
        detail = f"The gateway's database cannot be used; retry after {RETRY_AFTER} second (request id {request_id})"
        return ErrorReply(detail, 503, {"Retry-After": str(RETRY_AFTER)})
    return ErrorReply(
        f"The gateway failed; the operator finds the error in the log under request id {request_id}", 500
    )


class AllowedOrigins:
    """CORS policy: the origins whose web pages may call the API from a browser.

    The responses do not allow credentialed requests, so browsers send no cookies.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def headers(self, origin: bytes | None) -> dict[bytes, bytes]:
        """Return the CORS headers of a response to a request from this origin."""
        if self._any:
            return {b"access-control-allow-origin": ANY.encode(), b"access-control-expose-headers": _EXPOSED}
        # Send `Vary: Origin` even if the origin is not allowed, so that a cache never returns the response for one
        # origin to another.
        headers = {b"vary": b"Origin"}
        if origin is not None and origin in self._origins:
            headers[b"access-control-allow-origin"] = origin
            headers[b"access-control-expose-headers"] = _EXPOSED
        return headers

    def preflight(self, origin: bytes | None) -> dict[bytes, bytes] | None:
        """Return the additional headers of the response to a CORS preflight; None if the origin is not allowed."""
        return _PREFLIGHT if origin and (self._any or origin in self._origins) else None


class TrustedProxies:
    """Reverse proxies whose ``X-Forwarded-For`` entries the gateway accepts.

    Every proxy appends the address from which it received the request. Only entries that a trusted proxy appended are
    reliable. The gateway therefore reads the entries from right to left. The first address that does not belong to a
    trusted proxy is the client's address.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    def __bool__(self) -> bool:
        return bool(self._networks)

    def reveal_client(self, scope: Scope) -> None:
        """Replace the peer address in the scope by the client's address, if a trusted proxy sent the request."""
        peer = scope.get("client")
        if peer is None or not self._trusts(read_address(peer[0])):
            return
        values = [value for name, value in scope["headers"] if name == FORWARDED_FOR]
        # Several headers with this name are equivalent to one header with a comma-separated list (RFC 9110 §5.3).
        entries = b",".join(values).decode("latin-1").split(",")
        found = self._client(reversed(entries))
        if found is not None:
            # Use 0 as the port, because the header X-Forwarded-For does not contain the client's port.
            scope["client"] = (str(found), 0)

    def _client(self, entries: Iterable[str]) -> Address | None:
        nearest: Address | None = None
        for entry in entries:
            address = read_address(entry)
            if address is None:
                # A trusted proxy does not append an invalid entry, so the client may have forged it and all entries to
                # its left.
                return nearest
            nearest = address
            if not self._trusts(address):
                return nearest
        return nearest

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


class EdgeMiddleware:
    """Outer middleware of the gateway, which also dispatches requests to the plain ASGI endpoints.

    It limits the request body, sets the request id and the client's address, adds the common response headers, converts
    HEAD to GET and PATCH to PUT, handles CORS, and responds to unhandled errors.

    Args:
        inner: ASGI application for all other requests.
        settings: Source of the public URL, the trusted proxies and the allowed origins.
        endpoints: Handlers of the plain ASGI endpoints by path. They accept only POST requests.
    """

    def __init__(self, inner: ASGIApp, settings: Settings, endpoints: Mapping[str, Handler]) -> None:
        self._inner = inner
        self._endpoints = endpoints
        self._headers = ResponseHeaders.of(settings)
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._origins = AllowedOrigins(settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        given: dict[bytes, bytes] = dict(scope["headers"])
        scope[HEADERS] = given
        # Pass the original scope, and not the copy that is made below for HEAD and PATCH: if the client does not send
        # the whole body, the server's connection stores an error in the original scope.
        receiving = bounded(scope, given, receive)
        request_id = _identify(scope, given)
        # The context variable needs no reset, because every request runs in a separate task.
        REQUEST.set(request_id)
        scope[HEADER_BAG] = {}
        if scope["method"] == "HEAD":
            # Let the application handle HEAD as GET. Change only a copy of the scope: the server still has the original
            # method, and omits the response body.
            scope = {**scope, "method": "GET"}
        elif scope["method"] == "PATCH":
            # Handle PATCH as PUT: in this API, PUT has the same effect, because it keeps the fields that a request
            # omits.
            scope = {**scope, "method": "PUT"}
        if self._proxies and FORWARDED_FOR in given:
            self._proxies.reveal_client(scope)
        response = _Response(scope, send, self._headers)
        try:
            inner = self._immediate_response(scope, given)
            handler = self._endpoints.get(scope["path"])
            if inner is None and handler is not None:
                await self._serve_endpoint(handler, scope, receiving, response)
            else:
                await (inner or self._inner)(scope, receiving, response.send)
        except ClientDisconnect:
            # The client disconnected before the whole request had arrived, so a response cannot be sent.
            return
        except Exception as error:
            if isinstance(error, STORAGE_FAULTS):
                OUTAGE.failed("requests", error)
            else:
                logger.exception("request %s failed", request_id)
            if not response.started:
                await failure(scope, error)(scope, receive, response.send)

    async def _serve_endpoint(
        self, handler: Handler, scope: Scope, receive: Receive, response: "_Response"
    ) -> None:
        if scope["method"] != "POST":
            await _ONLY_POST(scope, receive, response.send)
            return
        try:
            result = await handler(PlainRequest(scope, receive))
        except ApiError as error:
            await ErrorReply(error.detail, error.status_code, error.headers)(scope, receive, response.send)
            return
        await response.send_json(result)

    def _immediate_response(self, scope: Scope, given: dict[bytes, bytes]) -> ASGIApp | None:
        """Return the response to a CORS preflight or an invalid request; None if the application must respond."""
        if self._origins:
            origin = given.get(b"origin")
            scope[HEADER_BAG].update(self._origins.headers(origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in given:
                preflight = self._origins.preflight(origin)
                if preflight is not None:
                    scope[HEADER_BAG].update(preflight)
                    return NoContent()
        if len(given) != len(scope["headers"]):
            name = repeated_header(scope["headers"])
            if name is not None:
                return ErrorReply({name: ["was sent more than once; send this header only once"]}, 400)
        # Respond with 404 without a query: no id contains a NUL character, and PostgreSQL rejects text that contains
        # one.
        if "\0" in scope["path"]:
            return ErrorReply("Not Found", 404)
        return None


_ONLY_POST = ErrorReply("Method Not Allowed", 405, {"Allow": "POST"})


class _Response:
    """Sender of one response, which adds the common headers and records whether the response has started."""

    __slots__ = ("_headers", "_scope", "_send", "started")

    def __init__(self, scope: Scope, send: Send, headers: ResponseHeaders) -> None:
        self._scope = scope
        self._send = send
        self._headers = headers
        self.started = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response."""
        if message["type"] == "http.response.start":
            self.started = True
            scope = self._scope
            request_id = scope[ECHOED_ID] if ECHOED_ID in scope else scope[REQUEST_ID].encode()
            self._headers.add_to(message, request_id, scope[HEADER_BAG], scope.get(APPEND_TO_HEAD))
        await self._send(message)

    async def send_json(self, result: PlainResponse) -> None:
        """Send the response of a plain ASGI endpoint."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(result.body))]
        if result.headers:
            headers += result.headers.items()
        await self.send({"type": "http.response.start", "status": result.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": result.body})


class RetryMiddleware:
    """Middleware that repeats a request if its transaction failed because of a conflict with another transaction.

    A request is not repeated once its response has started. Mails and notifications are sent only after the commit, so
    a repetition does not send them twice. Work before the transaction, such as hashing a password, may be done twice.
    """

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request, started = _ReplayableRequest(receive), False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        async def attempt() -> None:
            try:
                await self._inner(scope, request.from_start(), sending)
            except LostRace as lost:
                if started:
                    raise StorageFault(str(lost)) from None
                raise

        await with_retry(attempt)


class _ReplayableRequest:
    """Recorded ASGI messages of a request, so that each attempt to serve the request can receive them again."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []

    def from_start(self) -> Receive:
        """Return an ASGI `receive` function that starts with the request's first message."""
        position = 0

        async def receive() -> Message:
            nonlocal position
            if position == len(self._kept):
                message = await self._receive()
                # A disconnect message is not recorded, because the server returns it again at every further call.
                if message["type"] != "http.request":
                    return message
                self._kept.append(message)
            position += 1
            return self._kept[position - 1]

        return receive


class AccessLogMiddleware:
    """Middleware that writes one line per request to the access log."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began, status = perf_counter(), CLIENT_CLOSED_REQUEST

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._inner(scope, receive, sending)
        finally:
            milliseconds = (perf_counter() - began) * 1000
            added: Mapping[bytes, bytes] = scope.get(HEADER_BAG, {})
            organization = scope.get(ORGANIZATION) or added.get(b"x-toolgate-organization", b"").decode()
            # Log the encoded path, because a decoded path may contain line breaks. Omit the query string, because it
            # may contain personal data.
            path = scope["raw_path"].partition(b"?")[0][:MAX_LOGGED_PATH].decode("latin-1")
            request_id = scope.get(REQUEST_ID, "")
            access_logger.info(
                "%s %s %d in %.3f ms, organization %s (request %s)",
                scope["method"],
                path,
                status,
                milliseconds,
                organization or "-",
                request_id,
                extra={
                    FIELDS: {
                        "request_id": request_id,
                        "method": scope["method"],
                        "path": path,
                        "status": status,
                        "duration_ms": round(milliseconds, 3),
                        "organization_id": organization or None,
                    }
                },
            )
