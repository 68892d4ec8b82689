"""The OpenAPI document: what FastAPI knows of its routes, what their dependencies say, and the raw road by hand."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from toolgate_service.openapi import derived
from toolgate_service.openapi.headers import EVERYWHERE, HEADERS, PAGED, references
from toolgate_service.openapi.problems import RATE, SCHEMAS, WHOSE, merged
from toolgate_service.openapi.raw import RAW
from toolgate_service.openapi.words import DESCRIPTION, TAGS

_FASTAPIS_OWN = ("HTTPValidationError", "ValidationError")
_TOO_MANY = "429"
#: answers that may be given before a request with a key is counted
_UNCOUNTED = ("401", "408", "431", "500", "503")


def describe(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Return the document of the gateway's routers, the raw road included."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    document = get_openapi(
        title="Toolgate",
        version=version("toolgate"),
        summary="The permission gateway and audit trail between AI agents and the things agents can break.",
        description=DESCRIPTION,
        routes=routes,
        tags=list(TAGS),
        servers=[{"url": "/", "description": "The gateway that served this document."}],
    )
    for route in routes:
        for method in route.methods or ():
            _complete(document["paths"][route.path_format][method.lower()], route)
    document["paths"] |= {path: {"post": operation} for path, operation in RAW.items()}
    for item in document["paths"].values():
        for operation in item.values():
            _add_headers(operation)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in _FASTAPIS_OWN:
        schemas.pop(name, None)
    for schema in schemas.values():
        for member in schema.get("properties", {}).values():
            _untitled(member)
    schemas.update(SCHEMAS)
    components["headers"] = HEADERS
    components["securitySchemes"] = derived.SECURITY_SCHEMES
    return document


def _complete(operation: dict[str, Any], route: APIRoute) -> None:
    operation["operationId"] = route.operation_id or _camel(route.name)
    # The gateway answers 400 where FastAPI would answer 422.
    operation["responses"].pop("422", None)
    operation["responses"] = merged(operation["responses"], *derived.refusals(route))
    operation["security"] = derived.security(route)
    if route.response_model is None and len(answers := _contents_of_success(operation)) > 1:
        # FastAPI supposes JSON beside what the route declares by itself.
        answers.pop("application/json", None)
    if derived.paged(route):
        operation["responses"]["200"]["headers"] = references(*PAGED)
    for parameter in operation.get("parameters", ()):
        # Absent is not null: a query has no way to say null.
        parameter["schema"] = _untitled(_never_null(parameter["schema"]))
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        content["schema"] = _never_null(content["schema"])


def _contents_of_success(operation: dict[str, Any]) -> dict[str, Any]:
    contents: dict[str, Any] = operation["responses"].get("200", {}).get("content", {})
    return contents


def _camel(name: str) -> str:
    # As client generators like it; a function's name is unique and stays.
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    # An optional body may be left out; `null` is no JSON object.
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return some[0] if len(some) == 1 else schema


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    # pydantic titles every member with its own name.
    schema.pop("title", None)
    return schema


def _add_headers(operation: dict[str, Any]) -> None:
    counted = {derived.API_KEY: []} in operation["security"]
    responses = {str(status): response for status, response in operation["responses"].items()}
    operation["responses"] = dict(sorted(responses.items()))
    for status, response in responses.items():
        rated: tuple[str, ...] = (*RATE, *WHOSE) if counted and status not in _UNCOUNTED else ()
        if counted and status == _TOO_MANY:
            # The organization of an address whose requests fail to authenticate is not known.
            rated = RATE
        response["headers"] = references(*EVERYWHERE, *rated) | response.get("headers", {})
