"""The size of what comes in: as announced, as sent, and again as unpacked (decisions §2)."""

import zlib
from collections.abc import Mapping

from starlette.types import Message, Receive, Scope

from toolgate_service.errors import ApiError, FieldErrors

MAX_BODY = 256 * 1024

#: where the connection leaves the `ApiError` of a request whose rest it takes no longer
CUT_SHORT = "toolgate.cut_short"

#: zlib's word for "gzip or deflate, see for yourself"
_ANY_HEADER = 32 + zlib.MAX_WBITS
_CODINGS = {"gzip", "x-gzip", "deflate"}


def bounded(scope: Scope, given: Mapping[bytes, bytes], receive: Receive) -> Receive:
    """Return a `receive` that never hands out more than `MAX_BODY` bytes, unpacked.

    Args:
        scope: the request's, as the server made it.
        given: its headers.
        receive: the server's.
    """
    announced = given.get(b"content-length", b"0")
    if announced.isdigit() and (len(announced) > len(str(MAX_BODY)) or int(announced) > MAX_BODY):
        return _refusing(too_large())
    taking = _limited(scope, receive)
    if b"content-encoding" not in given:
        return taking
    # Several headers are one list (RFC 9110 §5.3).
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    encoding = b",".join(values).decode("latin-1").strip().lower()
    if encoding in {"", "identity"}:
        return taking
    if encoding not in _CODINGS:
        what = "The Content-Encoding is not supported; send gzip, deflate or none"
        return _refusing(FieldErrors({"body": [what]}))
    return _limited(scope, _unpacked(encoding, taking))


def too_large() -> ApiError:
    """Return the 413; the rest is not read: the connection ends with the answer."""
    return ApiError(413, f"The request is larger than {MAX_BODY} bytes", {"Connection": "close"})


def _refusing(error: ApiError) -> Receive:
    async def refuse() -> Message:
        raise error

    return refuse


def _limited(scope: Scope, receive: Receive) -> Receive:
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        # Before as well: whoever asks again after a refusal would wait for what does not come.
        if seen > MAX_BODY:
            raise too_large()
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        message = await receive()
        if CUT_SHORT in scope:
            raise scope[CUT_SHORT]
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                raise too_large()
        return message

    return counting


def _unpacked(encoding: str, receive: Receive) -> Receive:
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
            body = unpacker.decompress(message.get("body", b""), MAX_BODY + 1)
        except zlib.error:
            raise _broken(encoding) from None
        if unpacker.unconsumed_tail:
            raise too_large()
        if unpacker.unused_data or not (unpacker.eof or message.get("more_body")):
            raise _broken(encoding)
        return {**message, "body": body}

    return unpacking


def _broken(encoding: str) -> FieldErrors:
    return FieldErrors({"body": [f"The body is not one complete {encoding} stream"]})
