"""Arguments and bodies of HTTP requests, as the gateway checks them and an approver sees them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

from toolgate import ConfigurationError
from toolgate._capture.jsontext import loads

__all__ = ["Arguments", "Place", "Reading", "number"]

#: Format of a request body: `none` is an empty body, `members` a JSON object, `json` any other JSON value, `form` the
#: name-value pairs of a form, and `bytes` any other body.
Kind = Literal["none", "members", "json", "form", "bytes"]
_JSON: Final = re.compile(r"(application/json|[^/]+/[^/]+\+json|text/json)", re.IGNORECASE)
_FORM: Final = "application/x-www-form-urlencoded"
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([^\"';\s]+)", re.IGNORECASE)
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
# Maximum number of fields in a form or query. It limits the time that the parser needs.
_MOST_FIELDS: Final = 10_000
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Body:
    """The parsed body of a request.

    Attributes:
        kind: Format of the body.
        value: The JSON object, other JSON value, pairs or bytes, according to `kind`.
    """

    kind: Kind
    value: Any


def read(request: Any, longest: int) -> bytes:
    """Read a request's body, and store the bytes in the request, so that exactly the checked bytes are sent.

    Args:
        request: Request object of the HTTP library.
        longest: Maximum length, in bytes.

    Raises:
        ConfigurationError: The body is too long; the request is neither checked nor sent.
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
    """Asynchronous form of `read`."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream:
        size += len(piece)
        if size > longest:
            raise _too_long(request, longest)
        pieces.append(piece)
    return put(request, b"".join(pieces))


def put(request: Any, body: bytes) -> bytes:
    """Replace the body of a request without changing its headers, and return the new body."""
    # The stream is created by the request's own class, because the library may be httpx or httpx2.
    request.stream = type(request)(request.method, request.url, content=body).stream
    return body


def parsed(request: Any, body: bytes) -> Body:
    """Parse the body of a request by its content type.

    Raises:
        ConfigurationError: The body does not match its content type, or parsers could read it differently.
    """
    if not body:
        return Body("none", None)
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    is_json, is_form = _JSON.fullmatch(kind.strip()) is not None, kind.strip().lower() == _FORM
    if not (is_json or is_form) or "content-encoding" in request.headers:
        return Body("bytes", body)
    charset = _CHARSET.search(parameters)
    if charset is not None and charset[1].lower() not in _UTF_8:
        raise _unreadable(request, f"the charset is {charset[1]!r}, not UTF-8")
    if is_form:
        return Body("form", pairs_of(request, body, "body"))
    try:
        value = loads(body.decode(), exactly=True)
    except (ValueError, RecursionError) as error:
        raise _unreadable(request, _said(error)) from None
    return Body("members" if isinstance(value, dict) else "json", value)


def pairs_of(request: Any, text: bytes, what: str) -> list[tuple[str, str]]:
    """Return the name-value pairs of a form or a query.

    Args:
        request: Request object of the HTTP library, for error messages.
        text: The encoded pairs.
        what: `body` or `query`, for error messages.

    Raises:
        ConfigurationError: The text is not UTF-8, or contains too many pairs.
    """
    try:
        return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise _unreadable(request, _said(error), what) from None


def address(request: Any) -> str:
    """Return the address of a request, without the query and without user information."""
    url = request.url
    path = url.raw_path.partition(b"?")[0].decode("ascii", "replace")
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{path}"


def told(request: Any) -> str:
    """Return the description of a request for error messages, without the query, which may contain secrets."""
    return repr(f"{request.method} {address(request)}"[:_SHOWN])


def _said(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "the content is nested too deep" if isinstance(error, RecursionError) else str(error)


def _unreadable(request: Any, why: str, what: str = "body") -> ConfigurationError:
    return ConfigurationError(
        f"the {what} of {told(request)} cannot be read: {why}; the request was not sent, because the API might read it "
        "differently than the approver"
    )


def _too_long(request: Any, longest: int) -> ConfigurationError:
    return ConfigurationError(
        f"the body of {told(request)} is longer than {longest} bytes; the request was not sent: send a shorter body, "
        "or set a larger max_body for the transport"
    )


Place: TypeAlias = Literal["path", "query", "header", "body"]
_AMOUNT: Final = "amount"
# Pattern of the texts that are converted to numbers. It matches only texts that every parser reads as the same number.
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one request.

    Attributes:
        context: Arguments by name, as the gateway checks them.
        places: Place of each argument in the request, and its name in this place.
        query: Name-value pairs of the query, including credentials.
        body: The parsed body.
    """

    context: dict[str, Any]
    places: Mapping[str, tuple[Place, str]]
    query: list[tuple[str, str]]
    body: Body


class Reading:
    """Parser of the arguments of requests.

    Args:
        credentials: Names of credentials in the query, which are not arguments.
        headers: Names of headers that are arguments.
    """

    def __init__(self, credentials: frozenset[str], headers: Iterable[str]) -> None:
        self._credentials = credentials
        self._headers = tuple(headers)

    def of(
        self, request: Any, body: bytes, path: Mapping[str, str], amounts: frozenset[str] = frozenset()
    ) -> Arguments:
        """Return the arguments of a request.

        If a name occurs in several places, it is prefixed with the place: `path.id`, `query.id`, `header.id`,
        `body.id`.

        Args:
            request: Request object of the HTTP library.
            body: Body of the request.
            path: Path parameters of the request.
            amounts: Names of arguments besides `amount` that the gateway compares with a rule's limit `max_amount`.

        Raises:
            ConfigurationError: The request cannot be parsed, or parsers could read it differently.
        """
        query = pairs_of(request, request.url.raw_path.partition(b"?")[2], "query")
        said = parsed(request, body)
        given = [*self._given(request, query, said, path)]
        often = Counter(name for _, name, _ in given)
        context: dict[str, Any] = {}
        places: dict[str, tuple[Place, str]] = {}
        amounts |= {_AMOUNT}
        for place, name, value in given:
            if name in amounts and (often[name] > 1 or (place == "query" and said.kind == "bytes")):
                # A body that is not parsed, such as a multipart body, could contain this parameter again, with an amount
                # that is not checked.
                raise _twice(request, name)
            known = name if often[name] == 1 else f"{place}.{name}"
            if known in context:
                raise _twice(request, known)
            places[known] = (place, name)
            is_text = place != "body" or said.kind == "form"
            context[known] = number(value) if is_text and name in amounts else value
        return Arguments(context, places, query, said)

    def _given(
        self, request: Any, query: list[tuple[str, str]], body: Body, path: Mapping[str, str]
    ) -> Iterator[tuple[Place, str, Any]]:
        for name, text in path.items():
            yield "path", name, text
        for name, value in _grouped(each for each in query if each[0] not in self._credentials):
            yield "query", name, value
        for name in self._headers:
            values = request.headers.get_list(name)
            if values:
                yield "header", name, values[0] if len(values) == 1 else values
        if body.kind == "members":
            for name, value in body.value.items():
                yield "body", name, value
        elif body.kind == "form":
            for name, value in _grouped(body.value):
                yield "body", name, value
        elif body.kind != "none":
            yield "body", "body", body.value


def number(value: Any) -> Any:
    """Convert an amount of money or other quantity that was sent as text to a number; return any other value unchanged."""
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    return Decimal(value) if found[2] else int(value)


def _grouped(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str | list[str]]]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    for name, found in values.items():
        yield name, found[0] if len(found) == 1 else found


def _twice(request: Any, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{told(request)} contains {name!r} in several places, or together with a body that cannot be read, "
        "so it is "
        "unclear which value the API uses; the request was not sent: pass the value once"
    )
