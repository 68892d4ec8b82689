"""What a request asks for, by name: what the gateway compares, a person reads, and an approval is bound to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from toolgate import ConfigurationError
from toolgate_integrations.openapi.bodies import Body, pairs_of, parsed, told

__all__ = ["Arguments", "Place", "Reading", "number"]

Place: TypeAlias = Literal["path", "query", "header", "body"]

_AMOUNT: Final = "amount"
# One way to write a number: what another reader might take for another number stays text.
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one request asks for.

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
