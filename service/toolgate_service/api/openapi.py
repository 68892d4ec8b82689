"""OpenAPI document of the gateway, and its routes: `/openapi.json` and `/docs` (the document in Swagger UI).

FastAPI describes the routes. This module adds the plain ASGI endpoints, and the credentials, errors and headers that
follow from each route's dependencies.
"""

import copy
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, Response

from toolgate_service.access_requests.openapi import ACCESS_REQUEST_SCHEMAS, describe_problems
from toolgate_service.authzen.metadata import ACCESS_REQUESTS
from toolgate_service.authzen.openapi import AUTHZEN_SCHEMAS
from toolgate_service.authzen.routes import OPERATIONS as AUTHZEN
from toolgate_service.checks.routes import CHECK, CHECK_SCHEMAS
from toolgate_service.db.pagination import Page
from toolgate_service.http.dependencies import (
    admin,
    authenticate_token,
    changing,
    full_scope,
    gateway_of,
    key_caller,
)
from toolgate_service.http.openapi import (
    ALWAYS,
    API_KEY,
    API_KEY_BEARER,
    BEARER,
    ELSEWHERE,
    EVERYWHERE,
    FORBIDDEN,
    HEADERS,
    INVALID,
    NO_KEY,
    NO_TOKEN,
    PAGED,
    RATE,
    RATE_LIMIT,
    SCHEMAS,
    TENANT_HEADERS,
    TOO_LARGE,
    TOO_MANY,
    UNAVAILABLE,
    Problem,
    merged,
    references,
)
from toolgate_service.logs.openapi import LOG_SCHEMAS
from toolgate_service.logs.routes import LOG, LOGS

SECURITY_SCHEMES = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The `access_token` from the response to a login or registration. The token is valid for "
        "seven days.",
    },
    API_KEY: {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "API key of an organization or of a single agent. A key that begins with `ak_` selects the "
        "production environment, and a key that begins with `test_` selects the test environment.",
    },
    API_KEY_BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "The same API key as bearer token. The header `X-API-Key` takes precedence.",
    },
}


def security(route: APIRoute) -> list[dict[str, Any]]:
    """Return the OpenAPI security requirement of a route; an empty list if the route needs no credentials."""
    calls = _calls(route)
    if authenticate_token in calls:
        return [{BEARER: []}]
    if key_caller in calls:
        return [{API_KEY: []}, {API_KEY_BEARER: []}]
    return []


def refusals(route: APIRoute) -> list[Problem]:
    """Return the error responses that a route can have because of its dependencies, parameters and body."""
    calls = _calls(route)
    found = []
    if route.body_field is not None:
        found += [INVALID, TOO_LARGE]
    elif any(dependant.query_params for dependant in _tree(route.dependant)):
        found.append(INVALID)
    if authenticate_token in calls:
        found += [NO_TOKEN, TOO_MANY]
    if changing in calls:
        found.append(FORBIDDEN)
    if key_caller in calls:
        found += [NO_KEY, ELSEWHERE, RATE_LIMIT]
    if gateway_of in calls:
        found.append(UNAVAILABLE)
    return [*found, *ALWAYS]


def permitted_callers(route: APIRoute) -> str:
    """Return a sentence for the description of an operation that names the permitted callers."""
    calls = _calls(route)
    if admin in calls:
        return "Permitted for admins, with a token of the scope `full`."
    if full_scope in calls:
        return "Permitted for admins and members, with a token of the scope `full`."
    if changing in calls:
        return "Permitted for admins and members."
    if authenticate_token in calls:
        return "Permitted for all users of the organization."
    if key_caller in calls:
        return "Permitted with an API key of the organization or of the agent."
    return "Permitted without credentials."


def paged(route: APIRoute) -> bool:
    """Return True if the route returns a list page by page."""
    return any(inspect.signature(call).return_annotation is Page for call in _calls(route) if callable(call))


def _calls(route: APIRoute) -> set[object]:
    return {dependant.call for dependant in _tree(route.dependant)}


def _tree(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _tree(inner)


#: OpenAPI operations of the plain ASGI endpoints, by path; all of them use the method POST
RAW: dict[str, dict[str, Any]] = {"/sdk/check": CHECK, "/sdk/log": LOG, "/sdk/logs": LOGS, **AUTHZEN}


DESCRIPTION = """\
An agent, or the code that runs it, asks the gateway for a decision before a tool call (`/sdk/check`) and records the
result afterwards (`/sdk/log`). People manage agents, permissions and approvals under `/api`.

- **Credentials.** `/sdk/*` takes an API key in `X-API-Key`; `/auth/*` and `/api/*` take a bearer token.
- **Errors** are JSON `{"detail": …}`: a message, a map from field to messages (400), or an object (plan limits).
- **Bodies** are strict JSON whatever their `Content-Type`, at most 256 KiB; unknown fields are rejected under `/api`
  and `/auth`, and ignored under `/sdk`. No string may contain the character U+0000.
- **Numbers** are read and compared exactly, never through a binary float.
- **Environments.** A `test_…` key acts on test data; `/api/*` selects them with `environment=test`.
- **Methods.** A method that a path does not support gets 405, with the supported ones in `Allow`; an unknown path
  gets 404.
"""

TAGS = (
    {"name": "sdk", "description": "For agents: decisions before tool calls, log entries after them."},
    {
        "name": "authzen",
        "description": "OpenID AuthZEN Authorization API 1.0: access evaluations, searches and metadata.",
    },
    {"name": "accounts", "description": "Registration, login, the current user."},
    {"name": "team", "description": "The organization's users and invitations."},
    {"name": "organization", "description": "The organization and its keys."},
    {"name": "agents", "description": "Agents and their API keys."},
    {
        "name": "permissions",
        "description": "Permissions: the actions that an agent may perform, and the conditions "
        "for these actions.",
    },
    {
        "name": "rules",
        "description": "Rules that forbid, require approval for, or allow calls by action and by conditions.",
    },
    {
        "name": "budgets",
        "description": "Limits for the number or the total amount of calls in a time window.",
    },
    {
        "name": "policies",
        "description": "Agents, permissions, rules and budgets of an environment as one document: plan, apply and restore.",
    },
    {
        "name": "freezes",
        "description": (
            "Freezes, which deny all calls of the organization, an agent or an action until an admin lifts "
            "them."
        ),
    },
    {"name": "approvals", "description": "Approval requests and decisions about them."},
    {"name": "logs", "description": "Activity log of tool calls, and exports."},
    {"name": "decisions", "description": "Decision log: a record of each decided check, and exports."},
    {
        "name": "transparency",
        "description": "Signed Merkle log of decisions, log entries, approvals, audit events and policy revisions.",
    },
    {
        "name": "webhooks",
        "description": "Webhooks, which receive events, and the results of their deliveries.",
    },
    {"name": "slack", "description": "Links between Slack users and members."},
    {"name": "billing", "description": "Plan, usage, subscription and invoices."},
    {"name": "audit", "description": "Audit log of management changes."},
    {"name": "documentation", "description": "This OpenAPI document, as JSON and as an HTML page."},
    {"name": "health", "description": "Health checks."},
)


#: description that FastAPI gives to all successful responses; the descriptions in `_OK`, by status, replace it
_FASTAPI_OK = "Successful Response"
_OK = {
    "201": "The resource was created.",
    "202": "The request was accepted.",
    "204": "The response has no body.",
}
#: names of the schemas of FastAPI's own error responses, which the gateway does not send
_FASTAPI_SCHEMAS = ("HTTPValidationError", "ValidationError")
_TOO_MANY = "429"
#: Statuses of responses that may lack rate limit headers, because the request may fail before the rate limiter counts
#: it.
_UNCOUNTED = ("401", "408", "431", "500", "503")


def describe(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Return the OpenAPI document of the given routers and of the plain ASGI endpoints."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    document = get_openapi(
        title="Toolgate",
        version=version("toolgate"),
        summary="Permission gateway and audit trail between AI agents and their tools.",
        description=DESCRIPTION,
        routes=routes,
        tags=list(TAGS),
        servers=[{"url": "/", "description": "The gateway that served this document."}],
    )
    for route in routes:
        for method in route.methods or ():
            _complete(document["paths"][route.path_format][method.lower()], route)
    for item in document["paths"].values():
        if "put" in item:
            item["patch"] = copy.deepcopy(item["put"])
            item["patch"]["description"] += " Equivalent to the method `PUT`."
            item["patch"]["operationId"] = re.sub("^[a-z]+", "patch", item["put"]["operationId"])
    document["paths"] |= {path: {"post": operation} for path, operation in RAW.items()}
    for item in document["paths"].values():
        for operation in item.values():
            _add_headers(operation)
    _add_components(document.setdefault("components", {}), routes)
    return document


def _add_components(components: dict[str, Any], routes: Iterable[APIRoute]) -> None:
    schemas = components.setdefault("schemas", {})
    for name in _FASTAPI_SCHEMAS:
        schemas.pop(name, None)
    for schema in schemas.values():
        for member in schema.get("properties", {}).values():
            _untitled(member)
    for name, examples in _examples(routes):
        schemas[name]["examples"] = examples
    schemas.update(SCHEMAS | CHECK_SCHEMAS | LOG_SCHEMAS | AUTHZEN_SCHEMAS | ACCESS_REQUEST_SCHEMAS)
    components["headers"] = HEADERS
    components["securitySchemes"] = SECURITY_SCHEMES


def _examples(routes: Iterable[APIRoute]) -> Iterator[tuple[str, Any]]:
    # Take the examples from the pydantic models, because FastAPI removes members with the value null from the document.
    for route in routes:
        bodies = [body.field_info.annotation for body in route.dependant.body_params]
        for annotation in (route.response_model, *bodies):
            for model in (annotation, *get_args(annotation)):
                extra = getattr(model, "model_config", {}).get("json_schema_extra")
                if extra is not None:
                    yield model.__name__, extra["examples"]


def _complete(operation: dict[str, Any], route: APIRoute) -> None:
    operation["operationId"] = route.operation_id or _camel(route.name)
    # Remove FastAPI's status 422: the gateway responds to an invalid request with 400.
    operation["responses"].pop("422", None)
    operation["responses"] = merged(operation["responses"], *refusals(route))
    if route.path_format.startswith(ACCESS_REQUESTS):
        describe_problems(operation)
    operation["security"] = security(route)
    operation["description"] = f"{operation['description']}\n\n{permitted_callers(route)}"
    for status, response in operation["responses"].items():
        if response.get("description") == _FASTAPI_OK:
            response["description"] = _OK.get(status, "The request was successful.")
    if route.response_model is None and len(answers := _contents_of_success(operation)) > 1:
        # Remove JSON, which FastAPI adds to the media types that the route declares: a route that returns a file never
        # returns JSON.
        answers.pop("application/json", None)
    if paged(route):
        response = operation["responses"]["200"]
        response["headers"] = references(*PAGED) | response.get("headers", {})
    for parameter in operation.get("parameters", ()):
        # Remove null, because FastAPI documents an optional parameter as nullable, but a query string cannot contain
        # null.
        parameter["schema"] = _untitled(_never_null(parameter["schema"]))
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        content["schema"] = _never_null(content["schema"])


def _contents_of_success(operation: dict[str, Any]) -> dict[str, Any]:
    contents: dict[str, Any] = operation["responses"].get("200", {}).get("content", {})
    return contents


def _camel(name: str) -> str:
    # Client generators expect camelCase operation ids. The ids are unique because the function names are.
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    # FastAPI documents an optional value as nullable. Remove null: the value may be omitted, but not be null.
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return some[0] if len(some) == 1 else schema


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    # Remove the title: pydantic sets it to the member's name, which the schema already contains.
    schema.pop("title", None)
    return schema


def _add_headers(operation: dict[str, Any]) -> None:
    counted = {API_KEY: []} in operation["security"]
    responses = {str(status): response for status, response in operation["responses"].items()}
    operation["responses"] = dict(sorted(responses.items()))
    for status, response in responses.items():
        rated: tuple[str, ...] = (*RATE, *TENANT_HEADERS) if counted and status not in _UNCOUNTED else ()
        if counted and status == _TOO_MANY:
            # Omit the headers about the organization: a 429 after too many failed authentications does not have them,
            # because the organization is then unknown.
            rated = RATE
        elif {BEARER: []} in operation["security"] and status not in {*_UNCOUNTED, _TOO_MANY}:
            rated = RATE
        response["headers"] = references(*EVERYWHERE, *rated) | response.get("headers", {})


#: Content Security Policy of the page `/docs`: the page may load files only from the gateway. `img-src data:` is needed
#: because the style sheet contains its icons as `data:` URLs.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

_MEDIA_TYPES = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "initializer.js": "text/javascript; charset=utf-8",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Toolgate API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<noscript><p>This page needs JavaScript. The same document for programs: <a href="/openapi.json">/openapi.json</a></p></noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/initializer.js"></script>
</body>
</html>
"""

router = APIRouter(tags=["documentation"])
#: router of the files that the page `/docs` loads; their routes are not in the OpenAPI document
files_router = APIRouter(include_in_schema=False)


@router.get("/openapi.json", response_model=dict[str, Any], summary="Get the OpenAPI document")
async def get_openapi_document(request: Request) -> Response:
    """Return this OpenAPI document."""
    return Response(request.app.state.document_json(), media_type="application/json")


@router.get("/docs", response_class=HTMLResponse, summary="Show the OpenAPI document")
async def get_documentation() -> HTMLResponse:
    """Return a web page that shows this OpenAPI document. The page loads nothing from other hosts."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath("swagger_ui", name).read_bytes()


def _static(name: str) -> None:
    @files_router.get(f"/docs/{name}")
    async def get_static_file() -> Response:
        headers = {"Cache-Control": "public, max-age=86400"}
        return Response(_read(name), media_type=_MEDIA_TYPES[name], headers=headers)


for _name in _MEDIA_TYPES:
    _static(_name)
