"""The OpenAPI document: complete, usable by client generators, and without features that the gateway does not have."""

import re
from collections import Counter
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi.routing import APIRoute
from support.conformity import closed, document, resolved
from support.scene import operation_ids, request_schema

from toolgate_service.api.app import PLAIN_ENDPOINTS, ROUTERS
from toolgate_service.api.openapi import RAW
from toolgate_service.http.openapi import API_KEY, API_KEY_BEARER


def test_it_is_served_to_anyone(anyone: httpx.Client) -> None:
    """`GET /openapi.json` returns the document without a credential."""
    answer = anyone.get("/openapi.json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json() == document()
    assert answer.json()["openapi"].startswith("3.1")


def test_every_route_is_in_it() -> None:
    """The document contains each route and each plain ASGI endpoint, and nothing else."""
    routes = {
        (route.path_format, method.lower())
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    # PATCH is an alias of every PUT.
    routes |= {(path, "patch") for path, method in routes if method == "put"}
    raw = {(path, "post") for path in PLAIN_ENDPOINTS}
    described = {(path, method) for path, item in document()["paths"].items() for method in item}
    assert described == routes | raw


def test_operation_ids_are_unique_names() -> None:
    """Operation ids are unique and in camel case, for client generators."""
    counted = Counter(operation_ids())
    assert {name for name, count in counted.items() if count > 1} == set()
    assert [name for name in counted if not re.fullmatch(r"[a-z][A-Za-z]+", name)] == []


def test_every_tag_is_introduced() -> None:
    """Each operation has one tag, which the document describes."""
    told = {tag["name"] for tag in document()["tags"] if tag["description"]}
    used = [tuple(operation["tags"]) for item in document()["paths"].values() for operation in item.values()]
    assert {len(tags) for tags in used} == {1}
    assert {tag for tags in used for tag in tags} == told


def responses() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for item in document()["paths"].values():
        for operation in item.values():
            for status, response in operation["responses"].items():
                yield operation["operationId"], status, response


def test_no_operation_announces_422() -> None:
    """Validation errors are 400, and FastAPI's own schemas are absent."""
    assert [name for name, status, _ in responses() if status == "422"] == []
    assert "HTTPValidationError" not in document()["components"]["schemas"]


def test_every_answer_names_request_and_version() -> None:
    """Each response documents `X-Request-ID` and `X-API-Version`."""
    for name, status, response in responses():
        assert {"X-Request-ID", "X-API-Version"} <= set(response["headers"]), (name, status)


def test_every_refusal_has_a_body() -> None:
    """Each 4xx and 5xx documents the schema of its body."""
    for name, status, response in responses():
        if status >= "400":
            assert {"application/json", "application/problem+json"} & response["content"].keys(), (
                name,
                status,
            )


#: operations of a specification that requires unknown members to be ignored
OPEN = {"submitAccessRequest", "cancelAccessRequest"}


@pytest.mark.parametrize("operation", operation_ids())
def test_management_bodies_are_closed(operation: str) -> None:
    """Management bodies reject unknown fields, those of `/sdk` and AuthZEN accept them."""
    schema = request_schema(operation)
    if schema is not None:
        raw = operation in {described["operationId"] for described in RAW.values()} | OPEN
        assert schema.get("additionalProperties", True) is raw


@pytest.mark.parametrize("operation", operation_ids())
def test_every_body_can_be_validated(operation: str) -> None:
    """A JSON Schema validator compiles each body's schema and accepts its example."""
    schema = request_schema(operation)
    if schema is not None:
        jsonschema_rs.validator_for(schema).validate(schema["examples"][0])


def test_every_reference_leads_somewhere() -> None:
    """Each `$ref` resolves, and each schema is valid."""

    def walk(value: object) -> Iterator[str]:
        match value:
            case {"$ref": str(reference)}:
                yield reference
            case dict():
                for inner in value.values():
                    yield from walk(inner)
            case list():
                for inner in value:
                    yield from walk(inner)

    for reference in set(walk(document())):
        found = document()
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    for schema in document()["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def described_operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def properties(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each property in a schema, also in nested ones, with its path."""
    match schema:
        case {"properties": dict(members)}:
            for name, member in members.items():
                yield f"{path}.{name}", member
            yield from properties({**schema, "properties": None}, path)
            for name, member in members.items():
                yield from properties(member, f"{path}.{name}")
        case dict():
            for name, inner in schema.items():
                if name not in {"examples", "example", "default", "const", "enum"}:
                    yield from properties(inner, path)
        case list():
            for inner in schema:
                yield from properties(inner, path)


def is_sentence(text: str | None) -> bool:
    return bool(text) and text[0] in "`0123456789" + ascii_uppercase and text.rstrip()[-1] in ".)"


def test_every_operation_has_a_summary_and_a_description() -> None:
    for name, operation in described_operations():
        assert re.fullmatch(r"[A-Z][^.]{4,60}", operation["summary"]), name
        assert is_sentence(operation["description"]), name
        assert len(operation["description"]) > len(operation["summary"]), name


def test_every_summary_is_used_once_per_method() -> None:
    """Operations that are different have different summaries; aliases share them."""
    aliases = {"Reject a request", "Deny a request"}
    used = Counter(
        operation["summary"]
        for name, operation in described_operations()
        if not name.startswith("PATCH ") and operation["summary"] not in aliases
    )
    assert {summary for summary, count in used.items() if count > 1} == set()


def test_every_description_names_the_permitted_callers() -> None:
    for name, operation in described_operations():
        credentials = {credential for one in operation["security"] for credential in one}
        # An API key has no role, so every key is permitted.
        if credentials != {API_KEY, API_KEY_BEARER}:
            assert "Permitted " in operation["description"], name


def test_every_parameter_has_a_description() -> None:
    missing = [
        (name, parameter["name"])
        for name, operation in described_operations()
        for parameter in operation.get("parameters", ())
        if not is_sentence(parameter.get("description"))
    ]
    assert missing == []


def test_every_property_has_a_description() -> None:
    schemas = document()["components"]["schemas"]
    found = [each for name, schema in schemas.items() for each in properties(schema, name)]
    found += [
        each
        for name, operation in described_operations()
        for each in properties(operation.get("requestBody"), name)
    ]
    found += [
        each
        for name, operation in described_operations()
        for each in properties(operation["responses"], name)
    ]
    assert len(found) > 350
    assert [path for path, member in found if not is_sentence(member.get("description"))] == []


def test_every_schema_response_and_header_has_a_description() -> None:
    components = document()["components"]
    for kind in ("schemas", "headers", "securitySchemes"):
        assert [
            name for name, each in components[kind].items() if not is_sentence(each.get("description"))
        ] == []
    assert [name for name, status, each in responses() if not is_sentence(each.get("description"))] == []
    assert [name for name, _, each in responses() if each["description"] == "Successful Response"] == []


def test_every_example_is_valid() -> None:
    for name, schema in document()["components"]["schemas"].items():
        validate = jsonschema_rs.validator_for(
            closed(resolved(document(), schema)), validate_formats=True
        ).validate
        for example in schema.get("examples", ()):
            try:
                validate(example)
            except jsonschema_rs.ValidationError as error:
                raise AssertionError(f"the example of {name} is invalid: {error}") from None


def test_every_json_body_has_an_example() -> None:
    """Request bodies, successful responses (of a list: its items) and errors."""
    without = set()
    for name, operation in described_operations():
        bodies = [each.get("content", {}) for each in operation["responses"].values()]
        for content in [*bodies, operation.get("requestBody", {}).get("content", {})]:
            schema = resolved(document(), content.get("application/json", {}).get("schema", {}))
            for one in schema.get("anyOf", [schema.get("items", schema)]):
                if one and not one.get("examples"):
                    without.add(name)
    # The response is this document itself.
    assert without == {"GET /openapi.json"}
