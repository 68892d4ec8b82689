"""Writing down an operation of the raw road (see `toolgate_service.openapi.raw`)."""

from collections.abc import Mapping
from typing import Any

from toolgate_service.openapi.derived import ALWAYS, API_KEY
from toolgate_service.openapi.headers import references
from toolgate_service.openapi.problems import (
    ELSEWHERE,
    INVALID,
    NO_KEY,
    RATE_LIMIT,
    TOO_LARGE,
    UNAVAILABLE,
    Problem,
    merged,
)
from toolgate_service.web.field_schemas import HEADER_REFERENCE

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
    """Return a POST operation that takes an API key and JSON, and answers 200 with JSON.

    Args:
        name: the operation id.
        summary: a few words.
        description: a sentence or two.
        body: the request's schema, with an example.
        answer: the schema of the answer.
        headers: names of headers of the 200.
        refusals: beyond those of every such operation.
        parameters: headers that the request may carry.
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
