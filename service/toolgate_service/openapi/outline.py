"""The OpenAPI document as a reader meets it: operations in order, schemas line by line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: how deep a schema is unfolded
DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, its references resolved."""

    id: str
    tag: str
    method: str
    path: str
    description: str
    credential: str
    parameters: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any] | None
    responses: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Line:
    """One member of a schema."""

    level: int
    name: str
    kind: str
    required: bool
    note: str


_CREDENTIALS = {"bearer": "bearer token", "apiKey": "API key in X-API-Key"}


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Return the operations, by tag in the document's order, then by path."""
    tags = [tag["name"] for tag in document.get("tags", ())]
    found = [
        _operation(document, path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    return iter(
        sorted(found, key=lambda one: (tags.index(one.tag) if one.tag in tags else len(tags), one.path))
    )


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Operation:
    credentials = [_CREDENTIALS[name] for one in operation["security"] for name in one]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return Operation(
        id=operation["operationId"],
        tag=operation["tags"][0],
        method=method.upper(),
        path=path,
        description=operation.get("description", operation["summary"]),
        credential=" or ".join(credentials) or "no credential",
        parameters=[resolved(document, parameter) for parameter in operation.get("parameters", ())],
        body=None if body is None else resolved(document, body),
        responses={
            status: resolved(document, response) for status, response in operation["responses"].items()
        },
    )


def resolved(document: Mapping[str, Any], value: Any) -> Any:
    """Return a part of the document with what it refers to in the place of the references."""
    match value:
        case {"$ref": str(reference)}:
            found: Any = document
            for part in reference.removeprefix("#/").split("/"):
                found = found[part]
            return resolved(document, found)
        case dict():
            return {name: resolved(document, inner) for name, inner in value.items()}
        case list():
            return [resolved(document, inner) for inner in value]
    return value


def schema_lines(
    schema: Mapping[str, Any], name: str = "", *, level: int = 0, required: bool = True
) -> list[Line]:
    """Return a schema as lines: the thing itself, then its members."""
    lines = [Line(level, name, kind(schema), required, schema.get("description", ""))]
    if level >= DEEPEST:
        return lines
    inside = next((one for one in _inside(schema) if "properties" in one), None)
    if inside is not None:
        needed = inside.get("required", ())
        for member, of_member in inside["properties"].items():
            lines += schema_lines(of_member, member, level=level + 1, required=member in needed)
    return lines


def _inside(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for one in schema.get("anyOf", ()):
        yield from _inside(one)
    if isinstance(schema.get("items"), Mapping):
        yield from _inside(schema["items"])


def kind(schema: Mapping[str, Any]) -> str:
    """Return what a schema takes, in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    types = schema.get("type", "anything")
    text = types if isinstance(types, str) else " or ".join(types)
    if text == "array":
        return f"array of {kind(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    return f"{text} ({', '.join(bounds)})" if bounds else text


_BOUNDS = {
    "minimum": "≥",
    "maximum": "≤",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "format": "format",
}
