"""Parts of the OpenAPI document that FastAPI cannot generate: response headers and the plain ASGI endpoints."""

from collections.abc import Mapping
from typing import Any

from toolgate_service.core.schemas import HEADER_REFERENCE
from toolgate_service.http.problems import (
    ELSEWHERE,
    FAILED,
    HEAD_TOO_LARGE,
    INVALID,
    NO_KEY,
    RATE_LIMIT,
    SLOW,
    TOO_LARGE,
    UNAVAILABLE,
    Problem,
    merged,
)

_WHOLE = {"type": "integer", "minimum": 0}


def _header(description: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"description": description, "schema": schema, "required": required}


HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": _header(
        "The request's id: the caller's if it matches `[A-Za-z0-9._-]{1,128}`, otherwise a new one.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
    "X-API-Version": _header(
        "The version of this interface.", {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    ),
    "X-RateLimit-Limit": _header("Requests a minute.", _WHOLE),
    "X-RateLimit-Remaining": _header("Requests left in this minute.", _WHOLE),
    "X-RateLimit-Reset": _header("When the minute ends, in seconds since 1970.", _WHOLE),
    "X-Toolgate-Organization": _header("The id of the organization whose key was used.", {"type": "string"}),
    "X-Toolgate-Environment": _header(
        "The environment of the key that was used.", {"type": "string", "enum": ["production", "test"]}
    ),
    "Retry-After": _header("Seconds after which it is worth trying again.", _WHOLE),
    "WWW-Authenticate": _header("The scheme to authenticate with.", {"const": "Bearer", "type": "string"}),
    "X-Decision-ID": _header("The decision's id, to be sent with the log entry.", {"type": "string"}),
    "X-Call-Let-Through": _header(
        "The call of this `call_id` is blocked because an approval has let it through before.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Replayed": _header(
        "The answer is the original one; nothing was written.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Mismatch": _header(
        "The body was another one when the key was first used.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Link": _header('`rel="next"`: the next page, where there is one.', {"type": "string"}, required=False),
    "X-Total-Count": _header(
        "How many there are in all, counted to 10,000 and then `10000+`.",
        {"type": "string", "pattern": r"^(\d{1,5}|10000\+)$"},
    ),
}

#: names of the headers that every response has
EVERYWHERE = ("X-Request-ID", "X-API-Version")
#: names of the headers of a response that contains a page of a list
PAGED = ("Link", "X-Total-Count")


def references(*names: str) -> dict[str, Any]:
    """Return the `headers` object of an OpenAPI response, which references the named headers in `HEADERS`."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


#: errors that every operation may return
ALWAYS = (SLOW, HEAD_TOO_LARGE, FAILED)

#: names of the OpenAPI security schemes
BEARER = "bearer"
API_KEY = "apiKey"

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "One key per attempt: a repetition gets the original answer.",
    "schema": HEADER_REFERENCE,
}


def operation(
    name: str,
    summary: str,
    description: str,
    *,
    body: Mapping[str, Any],
    answer: Mapping[str, Any],
    headers: tuple[str, ...],
    refusals: tuple[Problem, ...] = (),
    parameters: tuple[Mapping[str, Any], ...] = (IDEMPOTENCY_KEY,),
) -> dict[str, Any]:
    """Return the OpenAPI object of a POST operation with API key authentication, a JSON body and a JSON response.

    `body` and `answer` are JSON schemas. `headers` are the names of the headers of the response 200. `refusals` are the
    errors that are specific to this operation; the function adds the common errors.
    """
    every = (INVALID, NO_KEY, ELSEWHERE, TOO_LARGE, RATE_LIMIT, UNAVAILABLE, *ALWAYS)
    ok = {
        "description": "Successful Response",
        "content": {"application/json": {"schema": dict(answer)}},
        "headers": references(*headers),
    }
    return {
        "tags": ["sdk"],
        "summary": summary,
        "description": description,
        "operationId": name,
        "security": [{API_KEY: []}],
        "parameters": list(parameters),
        "requestBody": {"required": True, "content": {"application/json": {"schema": dict(body)}}},
        "responses": merged({200: ok}, *refusals, *every),
    }
