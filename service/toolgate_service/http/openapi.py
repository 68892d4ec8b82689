"""Parts of the OpenAPI document that FastAPI cannot generate: headers, plain ASGI endpoints and error responses.

A route declares the errors that are specific to it:

    @router.get("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND))

`toolgate_service.api.openapi` adds the errors that follow from a route's dependencies and body: 400, 401, 403 for a
missing role, 413, 429, 500 and 503.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolgate_service.core.schemas import HEADER_REFERENCE

#: OpenAPI response objects by status code, in the form of FastAPI's parameter `responses`
Responses = dict[int | str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Error response in the OpenAPI document.

    Attributes:
        schema: Key of the body's schema in `SCHEMAS`.
        headers: Headers that the response always has, as keys of `HEADERS`.
    """

    status: int
    schema: str
    description: str
    headers: tuple[str, ...] = ()

    def response(self) -> dict[str, Any]:
        """Return the OpenAPI response object."""
        response: dict[str, Any] = {
            "description": self.description,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{self.schema}"}}},
        }
        if self.headers:
            response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in self.headers}
        return response


RATE = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
TENANT_HEADERS = ("X-Toolgate-Organization", "X-Toolgate-Environment")

INVALID = Problem(400, "FieldProblem", "Fields are missing or wrong; `detail` names each of them.")
REFUSED = Problem(400, "Problem", "The request cannot be met; `detail` says why.")
NO_TOKEN = Problem(
    401, "Problem", "The bearer token is missing, malformed, expired or revoked.", ("WWW-Authenticate",)
)
NO_KEY = Problem(401, "Problem", "The API key is missing or invalid, or the organization is not active.")
ELSEWHERE = Problem(403, "Problem", "The API key does not work from the address that the request comes from.")
BAD_LOGIN = Problem(401, "Problem", "E-mail or password is wrong.")
FORBIDDEN = Problem(403, "Problem", "The caller's role or scope, or the organization's state, forbids it.")
PLAN_LIMIT = Problem(403, "PlanLimitProblem", "A limit of the organization's plan is reached.")
TEST_LOG_FULL = Problem(403, "TestLogProblem", "The test environment's log holds as much as it may.")
NO_FEATURE = Problem(403, "FeatureProblem", "The feature is not in the organization's plan.")
NOT_FOUND = Problem(404, "Problem", "There is no such thing in the caller's organization and environment.")
CONFLICT = Problem(409, "Problem", "The thing is no longer in a state that allows this.")
SLOW = Problem(408, "Problem", "The request did not arrive in time.")
HEAD_TOO_LARGE = Problem(431, "Problem", "The request's head is larger than the gateway takes.")
NOT_READY = Problem(503, "NotReady", "The gateway cannot work now; `detail` says why.", ("Retry-After",))
TOO_LARGE = Problem(413, "Problem", "The request is larger than 256 KiB.")
TOO_MANY = Problem(429, "Problem", "Too many requests; retry after the seconds given.", ("Retry-After",))
RATE_LIMIT = Problem(
    429, "Problem", "The rate limit is exceeded; retry after the seconds given.", ("Retry-After", *RATE)
)
FAILED = Problem(500, "Problem", "The gateway failed; `detail` names the request id, and nothing internal.")
UNAVAILABLE = Problem(503, "Problem", "The gateway cannot do it now; retry later.", ("Retry-After",))


def problems(*declared: Problem) -> Responses:
    """Return problems in the form of FastAPI's parameter `responses`.

    Problems with the same status become alternatives of one response.
    """
    return merged({}, *declared)


def merged(responses: Mapping[int | str, Mapping[str, Any]], *more: Problem) -> Responses:
    """Return `responses` with further problems; those with the same status become alternatives of one response."""
    result: Responses = {status: dict(response) for status, response in responses.items()}
    for problem in more:
        # Routes declare statuses as numbers, but FastAPI's OpenAPI document contains them as strings.
        status = str(problem.status) if str(problem.status) in result else problem.status
        known = result.get(status)
        result[status] = _either(known, problem.response()) if known else problem.response()
    return result


def _either(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    schemas = [
        *_alternatives(one),
        *(schema for schema in _alternatives(other) if schema not in _alternatives(one)),
    ]
    descriptions = list(dict.fromkeys((one["description"], other["description"])))
    either: dict[str, Any] = {
        "description": " Or: ".join(descriptions),
        "content": {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}},
    }
    # A header is documented as always present only if both alternatives have it.
    shared = {
        name: value for name, value in one.get("headers", {}).items() if name in other.get("headers", {})
    }
    return either | ({"headers": shared} if shared else {})


def _alternatives(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    schema: dict[str, Any] = response["content"]["application/json"]["schema"]
    alternatives: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return alternatives


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_CODE = {"type": "string", "pattern": "^[a-z_]+$", "description": "Code of the error, for programs."}


def _error(detail: Mapping[str, Any]) -> dict[str, Any]:
    # The code is not required: during a rolling update, gateways of version 0.1 respond without it.
    return _closed({"detail": dict(detail), "code": _CODE}) | {"required": ["detail"]}


#: JSON schemas of error response bodies, by name
SCHEMAS: dict[str, dict[str, Any]] = {
    "Problem": _error(_TEXT) | {"description": "A refusal in words."},
    "FieldProblem": _error(
        {
            "type": "object",
            "additionalProperties": {"type": "array", "items": _TEXT, "minItems": 1},
            "minProperties": 1,
        }
    )
    | {
        "description": "Messages by field; `body` where no field is at fault.",
        "examples": [{"detail": {"name": ["This field is required"]}, "code": "invalid_request"}],
    },
    "NotReady": _closed({"status": {"const": "unavailable"}, "detail": _TEXT}),
    "PlanLimitProblem": _error(
        _closed(
            {
                "error": {"const": "plan_limit_exceeded"},
                "message": _TEXT,
                "limit_type": {"enum": ["agents", "logs", "team_members"]},
                "current_plan": _TEXT,
                "upgrade_url": _TEXT,
            }
        )
    ),
    "TestLogProblem": _error(
        _closed(
            {
                "error": {"const": "test_log_full"},
                "message": _TEXT,
                "limit_type": {"const": "test_log_bytes"},
            }
        )
    ),
    "FeatureProblem": _error(
        _closed(
            {
                "error": {"const": "feature_not_available"},
                "feature": _TEXT,
                "message": _TEXT,
                "current_plan": _TEXT,
                "upgrade_url": _TEXT,
            }
        )
    ),
}


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
    "X-Reason-Code": _header(
        "Code of the decision, for instance `allowed`, `no_permission`, `amount_exceeded` or `approval_required`.",
        {"type": "string", "pattern": "^[a-z_]+$"},
        required=False,
    ),
    "X-Call-Let-Through": _header(
        "The call of this `call_id` is denied because it was already allowed once.",
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
API_KEY_BEARER = "apiKeyBearer"

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
        "security": [{API_KEY: []}, {API_KEY_BEARER: []}],
        "parameters": list(parameters),
        "requestBody": {"required": True, "content": {"application/json": {"schema": dict(body)}}},
        "responses": merged({200: ok}, *refusals, *every),
    }
