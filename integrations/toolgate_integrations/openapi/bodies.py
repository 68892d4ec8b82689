"""The body of a request: read whole, within a bound, and sent as it was read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from toolgate import ConfigurationError
from toolgate._capture.jsontext import loads

__all__ = ["Body", "Kind", "address", "aread", "pairs_of", "parsed", "put", "read", "told"]

#: `members` is a JSON object, `json` any other JSON, `form` pairs, `bytes` whatever else there is
Kind = Literal["none", "members", "json", "form", "bytes"]

_JSON: Final = re.compile(r"(application/json|[^/]+/[^/]+\+json|text/json)", re.IGNORECASE)
_FORM: Final = "application/x-www-form-urlencoded"
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([^\"';\s]+)", re.IGNORECASE)
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
# More fields than any form has; a parser's time grows with them.
_MOST_FIELDS: Final = 10_000
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Body:
    """What a body says.

    Attributes:
        kind: How it is written.
        value: The object, the JSON, the pairs or the bytes.
    """

    kind: Kind
    value: Any


def read(request: Any, longest: int) -> bytes:
    """Read a request's body; the request is sent what was read.

    Args:
        request: The HTTP library's.
        longest: The most bytes that are read.

    Raises:
        ConfigurationError: It is longer; nobody was asked, and nothing sent.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in request.stream:
        size += len(piece)
        if size > longest:
            raise _too_long(request, longest)
        pieces.append(piece)
    return put(request, b"".join(pieces))


async def aread(request: Any, longest: int) -> bytes:
    """As `read`."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream:
        size += len(piece)
        if size > longest:
            raise _too_long(request, longest)
        pieces.append(piece)
    return put(request, b"".join(pieces))


def put(request: Any, body: bytes) -> bytes:
    """Have a request send these bytes, with the headers it has.

    Args:
        request: The HTTP library's.
        body: The bytes.

    Returns:
        The bytes.
    """
    # Made by the request's own library, whichever it is.
    request.stream = type(request)(request.method, request.url, content=body).stream
    return body


def parsed(request: Any, body: bytes) -> Body:
    """What the body of a request says.

    Args:
        request: The HTTP library's.
        body: Its body.

    Raises:
        ConfigurationError: It cannot be read as what its head says, or in more ways than one.
    """
    if not body:
        return Body("none", None)
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    is_json, is_form = _JSON.fullmatch(kind.strip()) is not None, kind.strip().lower() == _FORM
    if not (is_json or is_form) or "content-encoding" in request.headers:
        return Body("bytes", body)
    charset = _CHARSET.search(parameters)
    if charset is not None and charset[1].lower() not in _UTF_8:
        raise _unreadable(request, f"it is in {charset[1]!r}")
    if is_form:
        return Body("form", pairs_of(request, body, "body"))
    try:
        value = loads(body.decode(), exactly=True)
    except (ValueError, RecursionError) as error:
        raise _unreadable(request, _said(error)) from None
    return Body("members" if isinstance(value, dict) else "json", value)


def pairs_of(request: Any, text: bytes, what: str) -> list[tuple[str, str]]:
    """The pairs of a form or a query.

    Args:
        request: The HTTP library's.
        text: As it is sent.
        what: `body` or `query`.

    Raises:
        ConfigurationError: It is not UTF-8.
    """
    try:
        return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise _unreadable(request, _said(error), what) from None


def address(request: Any) -> str:
    """Where a request goes, without the query and whoever is named before the host.

    Args:
        request: The HTTP library's.
    """
    url = request.url
    path = url.raw_path.partition(b"?")[0].decode("ascii", "replace")
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{path}"


def told(request: Any) -> str:
    """A request in an error; without the query, in which there may be secrets.

    Args:
        request: The HTTP library's.
    """
    return repr(f"{request.method} {address(request)}"[:_SHOWN])


def _said(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def _unreadable(request: Any, why: str, what: str = "body") -> ConfigurationError:
    return ConfigurationError(
        f"the {what} of {told(request)} cannot be read: {why}; it was not sent, since the API might read it otherwise "
        "than whoever approves"
    )


def _too_long(request: Any, longest: int) -> ConfigurationError:
    return ConfigurationError(
        f"the body of {told(request)} is longer than {longest} bytes; it was not sent: send less, or give the "
        "transport a larger max_body"
    )
