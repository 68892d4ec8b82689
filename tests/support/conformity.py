"""Holding answers to the OpenAPI document: status, headers, media type and body, with nothing undocumented in it."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
import pytest

from toolgate_service.api.app import ROUTERS
from toolgate_service.api.openapi import describe


@cache
def document() -> dict[str, Any]:
    """Return the document of the gateway as it is built."""
    return describe(ROUTERS)


@cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    # Words go before parameters: /sdk/permissions is not /sdk/{…}. The edge knows no path with NUL in it.
    paths = sorted(document()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/\0]+", path)), path) for path in paths]


def resolved(document: Mapping[str, Any], value: Any) -> Any:
    """Return a part of the document with its references replaced by what they refer to."""
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


def template(path: str) -> str | None:
    """Return the documented path that a request's path belongs to."""
    return next((known for pattern, known in _templates() if pattern.fullmatch(path)), None)


def closed(schema: Any) -> Any:
    """Return a schema in which an object may have no members but those that it names."""
    match schema:
        case {"properties": _}:
            inner = {name: closed(value) for name, value in schema.items()}
            return {"additionalProperties": False} | inner
        case dict():
            return {name: closed(value) for name, value in schema.items()}
        case list():
            return [closed(value) for value in schema]
    return schema


@cache
def _validator(path: str, method: str, status: str, media_type: str) -> Callable[[object], object]:
    response = document()["paths"][path][method]["responses"][status]
    schema = closed(resolved(document(), response["content"][media_type].get("schema", {})))
    return jsonschema_rs.validator_for(schema, validate_formats=True).validate


@dataclass(frozen=True, slots=True)
class _Header:
    """Documented header of a response; its schema is compiled once, because every response of a test is checked."""

    name: str
    required: bool
    is_integer: bool
    is_valid: Callable[[object], bool]


@cache
def _headers(path: str, method: str, status: str) -> list[_Header]:
    documented = document()["paths"][path][method]["responses"][status].get("headers", {})
    headers = {name: resolved(document(), reference) for name, reference in documented.items()}
    return [
        _Header(
            name,
            header["required"],
            header["schema"].get("type") == "integer",
            jsonschema_rs.validator_for(header["schema"]).is_valid,
        )
        for name, header in headers.items()
    ]


def conforms(answer: httpx.Response) -> None:
    """Assert that an answer is one that the document announces.

    Paths and methods that it does not know are told by 404 and 405, whose body is a problem in words.
    """
    method, path = answer.request.method.lower(), template(answer.request.url.path)
    where = f"{answer.request.method} {answer.request.url.path} → {answer.status_code}"
    if path is None or method not in document()["paths"][path]:
        return
    responses: Mapping[str, Any] = document()["paths"][path][method]["responses"]
    status = str(answer.status_code)
    assert status in responses, (
        f"{where} is not documented (only {', '.join(responses)}): declare it beside the route with responses=problems(…) "
        f"of toolgate_service.http.openapi. {answer.text[:300]}"
    )
    response = responses[status]
    for header in _headers(path, method, status):
        _header_conforms(where, header, answer)
    if "content" not in response:
        assert answer.content == b"", f"{where} is documented without a body"
        return
    media_type = answer.headers["Content-Type"].partition(";")[0]
    assert media_type in response["content"], (
        f"{where} is documented as {list(response['content'])}, not {media_type}"
    )
    if media_type == "application/json":
        try:
            _validator(path, method, status, media_type)(answer.json())
        except jsonschema_rs.ValidationError as error:
            raise AssertionError(f"{where} has a body that is not documented: {error}") from None


def _header_conforms(where: str, header: _Header, answer: httpx.Response) -> None:
    value: object = answer.headers.get(header.name)
    if value is None:
        assert not header.required, f"{where} lacks the header {header.name}"
        return
    if header.is_integer:
        value = int(str(value))
    assert header.is_valid(value), f"{where} has {header.name}: {value!r}"


@contextmanager
def every_answer_conforms() -> Iterator[None]:
    """Hold every answer that a test's HTTP client gets to the document."""
    send = httpx.Client.send

    def sending(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        answer = send(client, request, **options)
        # Whoever reads a stream reads it by themselves.
        if answer.is_closed and request.url.host == "127.0.0.1":
            conforms(answer)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.Client, "send", sending)
        yield
