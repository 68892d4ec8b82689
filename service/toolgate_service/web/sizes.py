"""The size of what comes in: counted as sent, and again as unpacked (decisions §2)."""

import zlib

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from toolgate_service.errors import ApiError, FieldErrors

MAX_BODY = 256 * 1024

#: zlib's word for "gzip or deflate, see for yourself"
_ANY_HEADER = 32 + zlib.MAX_WBITS


def limited(receive: Receive) -> Receive:
    """Return a `receive` that counts the body and raises a 413 beyond `MAX_BODY` bytes."""
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                raise _too_large()
        return message

    return counting


def decompressed(scope: Scope, receive: Receive) -> Receive:
    """Return a `receive` that unpacks a gzip or deflate body, never by more than one byte beyond `MAX_BODY`."""
    encoding = Headers(scope=scope).get("content-encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return receive
    unpacker = zlib.decompressobj(_ANY_HEADER)

    async def unpacking() -> Message:
        message = await receive()
        if message["type"] != "http.request":
            return message
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            raise FieldErrors({"body": ["The Content-Encoding is not supported; send gzip, deflate or none"]})
        try:
            body = unpacker.decompress(message.get("body", b""), MAX_BODY + 1)
        except zlib.error:
            raise _broken(encoding) from None
        if unpacker.unconsumed_tail:
            raise _too_large()
        if unpacker.unused_data or not (unpacker.eof or message.get("more_body")):
            raise _broken(encoding)
        return {**message, "body": body}

    return unpacking


def _broken(encoding: str) -> FieldErrors:
    return FieldErrors({"body": [f"The body is not one complete {encoding} stream"]})


def _too_large() -> ApiError:
    # The rest is not read: the connection ends with the answer.
    return ApiError(413, f"The request is larger than {MAX_BODY} bytes", {"Connection": "close"})
