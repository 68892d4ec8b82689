"""Default values in OpenAPI operations, which the API uses for arguments that a request leaves out.

They are added before the check, so that the gateway checks them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolgate._capture.jsontext import dumps
from toolgate_integrations._json_schema import with_defaults
from toolgate_integrations.openapi.requests import Arguments, Place, number

__all__ = ["Defaults", "SeveralPlacesError"]

_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"


class SeveralPlacesError(Exception):
    """Raised if a request has an amount in one place, and the document has a default for the amount in another place.

    It is unknown which of the two amounts the API would use.

    For example, the query contains `amount`, but the document defines a default for `amount` in the body.

    Attributes:
        name: Name of the argument that contains the amount.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of the parameters and the body of one OpenAPI operation.

    Attributes:
        document: The OpenAPI document, in which references are resolved.
        operation: The operation's object in the document.
        method: HTTP method of the operation, in capitals.
        shared: Parameters that the path defines for all its operations.
    """

    document: Mapping[str, Any] = field(repr=False)
    operation: Mapping[str, Any] = field(repr=False)
    method: str
    shared: object = field(default=(), repr=False)

    def fill(
        self, arguments: Arguments, headers: tuple[str, ...] = (), amounts: frozenset[str] = frozenset()
    ) -> Arguments:
        """Return the arguments of a request, with the operation's defaults for arguments that the request leaves out.

        Args:
            arguments: Arguments of the request.
            headers: Names of headers that are arguments.
            amounts: Names of arguments that the gateway compares with a rule's limit `max_amount`.

        Raises:
            SeveralPlacesError: The request contains an amount in another place than the one with the default.
        """
        context, places = dict(arguments.context), dict(arguments.places)
        given = set(places.values())
        for place, name, value in self._missing(arguments, headers):
            if place != "body" or arguments.body.kind == "form":
                # The default is converted to text, because that is how a request contains values outside of a JSON
                # body.
                text = value if isinstance(value, str | list) else dumps(value)
                value = number(text) if name in amounts else text  # noqa: PLW2901 - the same value as text or number
            if (place, name) in given:
                context[_known(places, (place, name))] = value
                continue
            if name in amounts and any(own == name for _, own in given):
                raise SeveralPlacesError(name)
            known = name if name not in context else f"{place}.{name}"
            context[known], places[known] = value, (place, name)
        return replace(arguments, context=context, places=places)

    def _missing(self, arguments: Arguments, headers: tuple[str, ...]) -> Iterator[tuple[Place, str, Any]]:
        given = set(arguments.places.values())
        wanted = {each.lower(): each for each in headers}
        for each in self._parameters():
            name, schema = each.get("name"), self._resolved(each.get("schema"))
            if not isinstance(name, str) or "default" not in schema:
                continue
            if each.get("in") == "query" and ("query", name) not in given:
                yield "query", name, schema["default"]
            elif each.get("in") == "header" and name.lower() in wanted:
                header = wanted[name.lower()]
                if ("header", header) not in given:
                    yield "header", header, schema["default"]
        body = arguments.body
        if self.method == "PATCH":
            # Defaults of the body are not added for PATCH, because a member that the request leaves out keeps its
            # current value.
            return
        if body.kind == "members":
            yield from self._members(body.value, _JSON)
        elif body.kind == "form":
            sent = dict(body.value)
            yield from (each for each in self._members(sent, _FORM) if each[1] not in sent)

    def _members(self, value: Mapping[str, Any], media: str) -> Iterator[tuple[Place, str, Any]]:
        filled = with_defaults(dict(value), self._schema(media), self.document)
        for name, each in filled.items():
            if name not in value or each is not value[name]:
                yield "body", name, each

    def _schema(self, media: str) -> Mapping[str, Any]:
        content = self._resolved(self.operation.get("requestBody")).get("content")
        if not isinstance(content, Mapping):
            return {}
        found = content.get(media) or next(
            (each for name, each in content.items() if media == _JSON and "json" in str(name)), None
        )
        schema = found.get("schema") if isinstance(found, Mapping) else None
        return schema if isinstance(schema, Mapping) else {}

    def _parameters(self) -> list[Mapping[str, Any]]:
        found: dict[tuple[object, object], Mapping[str, Any]] = {}
        for several in (self.shared, self.operation.get("parameters")):
            for each in several if isinstance(several, list) else ():
                one = self._resolved(each)
                found[one.get("name"), one.get("in")] = one
        return list(found.values())

    def _resolved(self, found: object) -> Mapping[str, Any]:
        for _ in range(32):
            reference = found.get("$ref") if isinstance(found, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            target: Any = self.document
            for part in reference[2:].split("/"):
                key = part.replace("~1", "/").replace("~0", "~")
                target = target.get(key) if isinstance(target, Mapping) else None
            found = target
        return found if isinstance(found, Mapping) else {}


def _known(places: Mapping[str, tuple[Place, str]], wanted: tuple[Place, str]) -> str:
    return next(name for name, place in places.items() if place == wanted)
