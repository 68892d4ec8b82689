"""Size limit of request bodies: it applies to the Content-Length, the received bytes and the decompressed bytes."""

import zlib
from collections.abc import Mapping

from starlette.types import Message, Receive, Scope

from toolgate_service.core.errors import ApiError, FieldErrors

#: maximum size of a request body in bytes
MAX_BODY = 256 * 1024
#: maximum size in bytes of a body that is sent without authentication, such as the body of a login request
MAX_OPEN_BODY = 16 * 1024

#: ASGI scope key of the request's `BodyLimit`
BODY_LIMIT = "toolgate.body_limit"
#: maximum number of digits of a Content-Length; a longer value counts as larger than any limit
_DIGITS = 12

#: ASGI scope key that is set when the server stops reading a request body before its end; the value is the `ApiError`
#: with which the application must respond
CUT_SHORT = "toolgate.cut_short"

#: ASGI scope key of the part of a request body that the application has not read yet; set if the client disconnected
#: after it had sent the complete body
RECEIVED = "toolgate.received"

#: `wbits` value with which zlib detects gzip or deflate by the stream's header
_ANY_HEADER = 32 + zlib.MAX_WBITS
_CODINGS = {"gzip", "x-gzip", "deflate"}


class BodyLimit:
    """Maximum size of a request body, in bytes. A route may change the limit before it reads the body."""

    __slots__ = ("announced", "size")

    def __init__(self, content_length: bytes) -> None:
        self.announced = 0
        if content_length.isdigit():
            # Do not parse a Content-Length with more than `_DIGITS` digits, because it exceeds every limit.
            self.announced = int(content_length) if len(content_length) <= _DIGITS else 10**_DIGITS
        self.size = MAX_BODY

    def check(self, seen: int = 0) -> None:
        """Raise an error if the received bytes (`seen`) or the Content-Length exceed the limit.

        Raises:
            ApiError: 413 if `MAX_BODY` or the higher limit of the route is exceeded, 400 if only a lower limit is
                exceeded.
        """
        seen = max(seen, self.announced)
        if seen > self.size:
            raise too_large(max(MAX_BODY, self.size) if seen > MAX_BODY else self.size)


def limit_body(scope: Scope, size: int) -> None:
    """Set the maximum size of a request body to `size` bytes."""
    limit = scope.get(BODY_LIMIT)
    if isinstance(limit, BodyLimit):
        limit.size = size


def bounded(scope: Scope, given: Mapping[bytes, bytes], receive: Receive) -> Receive:
    """Return an ASGI `receive` function that decompresses the body and enforces its `BodyLimit`.

    The function adds the `BodyLimit` to the scope.

    Args:
        scope: The scope that the server created. A copy would not contain errors that the connection adds later.
        given: Request headers.
        receive: The server's `receive` function.
    """
    limit = scope[BODY_LIMIT] = BodyLimit(given.get(b"content-length", b"0"))
    taking = _limited(scope, limit, receive)
    if b"content-encoding" not in given:
        return taking
    # Join repeated headers, because they are equivalent to one header with a comma-separated list (RFC 9110 §5.3).
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    encoding = b",".join(values).decode("latin-1").strip(" \t").lower()
    if encoding in {"", "identity"}:
        return taking
    if encoding not in _CODINGS:
        what = "The Content-Encoding is not supported; send gzip, deflate or none"
        return _refusing(FieldErrors({"body": [what]}))
    return _limited(scope, limit, _unpacked(encoding, limit, taking))


def too_large(size: int = MAX_BODY) -> ApiError:
    """Return the error for a body that is larger than `size` bytes.

    The status is 413, or 400 if `size` is the lower limit of routes without authentication.
    The response closes the connection, because the rest of the body is not read.
    """
    if size < MAX_BODY:
        return ApiError(
            400,
            {"body": [f"must not be larger than {size} bytes without authentication"]},
            {"Connection": "close"},
        )
    return ApiError(413, f"The request is larger than {size} bytes", {"Connection": "close"})


def _refusing(error: ApiError) -> Receive:
    async def refuse() -> Message:
        raise error

    return refuse


def _limited(scope: Scope, limit: BodyLimit, receive: Receive) -> Receive:
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        # Check the limit before `receive` too: if the caller ignores an earlier error and reads again, `receive` would
        # wait for bytes that never arrive.
        limit.check(seen)
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        message = await receive()
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        if message["type"] == "http.disconnect" and RECEIVED in scope:
            message = {"type": "http.request", "body": scope.pop(RECEIVED), "more_body": False}
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            while limit.size < seen <= MAX_BODY and message.get("more_body"):
                # Read and discard the rest of the body, because its total size determines which limit the error
                # response contains.
                message = await receive()
                seen += len(message.get("body", b""))
            limit.check(seen)
        return message

    return counting


def _unpacked(encoding: str, limit: BodyLimit, receive: Receive) -> Receive:
    unpacker = zlib.decompressobj(_ANY_HEADER)
    began = False

    async def unpacking() -> Message:
        nonlocal began
        message = await receive()
        began = began or bool(message.get("body"))
        # Do not decompress an empty body: a GET request may have a Content-Encoding header but no body.
        if message["type"] != "http.request" or not began:
            return message
        try:
            # Decompress at most one byte more than the limit, so that a small compressed body cannot exhaust the
            # memory.
            body = unpacker.decompress(message.get("body", b""), limit.size + 1)
        except zlib.error:
            raise _broken(encoding) from None
        if unpacker.unconsumed_tail:
            limit.check(limit.size + 1)
        if unpacker.unused_data or not (unpacker.eof or message.get("more_body")):
            raise _broken(encoding)
        return {**message, "body": body}

    return unpacking


def _broken(encoding: str) -> FieldErrors:
    return FieldErrors({"body": [f"The body is not a single, complete {encoding} stream"]})
