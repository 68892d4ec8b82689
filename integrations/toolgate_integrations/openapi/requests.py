"""Arguments and bodies of requests, as they are checked, shown to an approver, and approved."""

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
    """A parsed body.

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
    """Parse the body of a request.

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
    """Return the address of a request, without the query and user information.

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


Place: TypeAlias = Literal["path", "query", "header", "body"]
_AMOUNT: Final = "amount"
# One way to write a number: what another reader might take for another number stays text.
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one request.

    Attributes:
        context: The arguments, by name.
        places: Where each of them stands in the request, and its name there.
        query: The pairs of the query, credentials too.
        body: What the body says.
    """

    context: dict[str, Any]
    places: Mapping[str, tuple[Place, str]]
    query: list[tuple[str, str]]
    body: Body


class Reading:
    """Reads arguments from requests.

    Args:
        credentials: Names in the query under which callers show who they are; they are no arguments.
        headers: Headers that are arguments.
    """

    def __init__(self, credentials: frozenset[str], headers: Iterable[str]) -> None:
        self._credentials = credentials
        self._headers = tuple(headers)

    def of(
        self, request: Any, body: bytes, path: Mapping[str, str], amounts: frozenset[str] = frozenset()
    ) -> Arguments:
        """The arguments of a request.

        A name that stands in several places is told apart as `path.id`, `query.id`, `header.id`, `body.id`.

        Args:
            request: The HTTP library's.
            body: Its body.
            path: Its path parameters.
            amounts: Names besides `amount` that are compared as one.

        Raises:
            ConfigurationError: It cannot be read, or in more ways than one.
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
                # In a body that cannot be read, a multipart one for instance, it may stand as well.
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
    """An amount that was sent as text, as a number; whatever else it is, as it is.

    Args:
        value: What was sent.
    """
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
        f"{told(request)} says {name!r} in several places, or beside a body that cannot be read, and nobody knows which "
        "the API reads; it was not sent: say it once"
    )
