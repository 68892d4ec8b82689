"""The size of what comes in: as announced, as sent, and again as unpacked (decisions §2)."""

import zlib
from collections.abc import Mapping

from starlette.types import Message, Receive, Scope

from toolgate_service.errors import ApiError, FieldErrors

MAX_BODY = 256 * 1024
#: bytes of a body that is read without authentication, such as that of a login
MAX_OPEN_BODY = 16 * 1024

#: the scope's key for the request's `BodyLimit`
BODY_LIMIT = "toolgate.body_limit"
#: digits of a Content-Length that is read
_DIGITS = 12

#: where the connection leaves the `ApiError` of a request whose rest it takes no longer
CUT_SHORT = "toolgate.cut_short"

#: zlib's word for "gzip or deflate, see for yourself"
_ANY_HEADER = 32 + zlib.MAX_WBITS
_CODINGS = {"gzip", "x-gzip", "deflate"}


class BodyLimit:
    """Size that a request's body may have. It may be lowered until the body is read.

    Attributes:
        size: in bytes.
    """

    __slots__ = ("announced", "size")

    def __init__(self, announced: bytes) -> None:
        self.announced = announced
        self.size = MAX_BODY

    def check(self, seen: int = 0) -> None:
        """Refuse a body that is too large.

        Args:
            seen: bytes of it that have come.

        Raises:
            ApiError: 413, it is, or says so in its Content-Length.
        """
        announced = self.announced
        if announced.isdigit():
            # Of a longer number the value does not matter.
            seen = max(seen, int(announced[:_DIGITS]) if len(announced) <= _DIGITS else 10**_DIGITS)
        if seen > self.size:
            raise too_large(MAX_BODY if seen > MAX_BODY else self.size)


def limit_body(scope: Scope, size: int) -> None:
    """Lower the size that a request's body may have.

    Args:
        scope: the request's.
        size: in bytes.
    """
    limit = scope.get(BODY_LIMIT)
    if isinstance(limit, BodyLimit):
        limit.size = size


def bounded(scope: Scope, given: Mapping[bytes, bytes], receive: Receive) -> Receive:
    """Return a `receive` that never hands out more bytes, unpacked, than the scope's `BodyLimit` allows.

    Args:
        scope: the request's, as the server made it.
        given: its headers.
        receive: the server's.
    """
    limit = scope[BODY_LIMIT] = BodyLimit(given.get(b"content-length", b"0"))
    taking = _limited(scope, limit, receive)
    if b"content-encoding" not in given:
        return taking
    # Several headers are one list (RFC 9110 §5.3).
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    encoding = b",".join(values).decode("latin-1").strip(" \t").lower()
    if encoding in {"", "identity"}:
        return taking
    if encoding not in _CODINGS:
        what = "The Content-Encoding is not supported; send gzip, deflate or none"
        return _refusing(FieldErrors({"body": [what]}))
    return _limited(scope, limit, _unpacked(encoding, limit, taking))


def too_large(size: int = MAX_BODY) -> ApiError:
    """Return the refusal; the rest is not read: the connection ends with the answer.

    Args:
        size: that the body may have; a lower one than `MAX_BODY` is a rule of the endpoint, so the status is 400.
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
        # Before as well: whoever asks again after a refusal would wait for what does not come.
        limit.check(seen)
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        message = await receive()
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            while limit.size < seen <= MAX_BODY and message.get("more_body"):
                # Skipped, and not kept: only its end shows by which limit it is refused.
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
        # Nothing at all is nothing unpacked as well: a GET may carry the header without a body.
        if message["type"] != "http.request" or not began:
            return message
        try:
            # Never by more than one byte beyond what is allowed, whatever the packed bytes would become.
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
    return FieldErrors({"body": [f"The body is not one complete {encoding} stream"]})
