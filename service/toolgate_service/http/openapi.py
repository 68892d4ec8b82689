"""Parts of the OpenAPI document that FastAPI cannot generate: headers, plain ASGI endpoints and error responses.

A route declares the errors that are specific to it:

    @router.get("/{agent_id}", response_model=AgentView, responses=problems(NOT_FOUND))

`toolgate_service.api.openapi` adds the errors that follow from a route's dependencies and body: 400, 401, 403 for a
missing role, 413, 429, 500 and 503.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from toolgate_service.core.schemas import HEADER_REFERENCE, schema_reference

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
            "content": _json(self.schema),
        }
        if self.headers:
            response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in self.headers}
        return response


RATE = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
TENANT_HEADERS = ("X-Toolgate-Organization", "X-Toolgate-Environment")

INVALID = Problem(
    400, "FieldProblem", "Fields are missing or invalid. `detail` contains the messages of each field."
)
REFUSED = Problem(
    400, "Problem", "The request is valid but cannot be fulfilled. `detail` contains the reason."
)
NO_TOKEN = Problem(
    401, "Problem", "The bearer token is missing, malformed, expired or revoked.", ("WWW-Authenticate",)
)
NO_KEY = Problem(401, "Problem", "The API key is missing or invalid, or the organization is not active.")
ELSEWHERE = Problem(
    403,
    "Problem",
    "The organization does not allow its API keys to be used from the IP address of the client.",
)
BAD_LOGIN = Problem(401, "Problem", "The e-mail address or the password is wrong.")
FORBIDDEN = Problem(
    403,
    "Problem",
    "The caller's role, the scope of the token, or the state of the organization does not permit this operation.",
)
PLAN_LIMIT = Problem(403, "PlanLimitProblem", "A limit of the organization's plan is reached.")
TEST_LOG_FULL = Problem(
    403, "TestLogProblem", "The activity log of the test environment has its maximum size."
)
NO_FEATURE = Problem(403, "FeatureProblem", "The organization's plan does not include the feature.")
NOT_FOUND = Problem(
    404, "Problem", "The resource does not exist in the caller's organization and environment."
)
CONFLICT = Problem(409, "Problem", "The current state of the resource does not permit this operation.")
GONE = Problem(410, "Problem", "The denial or the task of the access request has expired.")
SLOW = Problem(408, "Problem", "The client sent the request too slowly.")
HEAD_TOO_LARGE = Problem(431, "Problem", "The request line and the headers are too large.")
NOT_READY = Problem(
    503, "NotReady", "The gateway is not ready. `detail` contains the reason.", ("Retry-After",)
)
TOO_LARGE = Problem(413, "Problem", "The request is larger than 256 KiB.")
TOO_MANY = Problem(
    429, "Problem", "Too many requests. Retry after the number of seconds in `Retry-After`.", ("Retry-After",)
)
RATE_LIMIT = Problem(
    429,
    "Problem",
    "The rate limit is exceeded. Retry after the number of seconds in `Retry-After`.",
    ("Retry-After", *RATE),
)
FAILED = Problem(
    500, "Problem", "Internal error. `detail` contains the id of the request and no internal information."
)
UNAVAILABLE = Problem(
    503,
    "Problem",
    "The gateway is temporarily unable to process the request, for instance because its database is not available. Retry later.",
    ("Retry-After",),
)


def problems(*declared: Problem) -> Responses:
    """Return problems in the form of FastAPI's parameter `responses`.

    Problems with the same status become alternatives of one response.
    """
    return merged({}, *declared)


def merged(responses: Mapping[int | str, Mapping[str, Any]], *more: Problem) -> Responses:
    """Return `responses` and the problems `more`. Problems with the same status become alternatives of one response."""
    result: Responses = {status: dict(response) for status, response in responses.items()}
    for problem in more:
        # Look for both forms of the status: routes declare it as a number, but FastAPI's OpenAPI document contains
        # strings.
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
    # Document only the headers that both alternatives have, because every response must have the documented headers.
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


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _error(detail: Mapping[str, Any], description: str, example: JsonValue, code: str) -> dict[str, Any]:
    # Do not require the member `code`: during a rolling update, gateways of version 0.1 respond without it.
    schema = _closed(
        {
            "detail": dict(detail),
            "code": _text("Stable code of the error, for programs.") | {"pattern": "^[a-z_]+$"},
        }
    )
    examples = [{"detail": example, "code": code}]
    return schema | {"required": ["detail"], "description": description, "examples": examples}


_MESSAGE = _text("Message for people.")
_CURRENT_PLAN = _text("Plan of the organization: `free`, `pro`, `business` or `enterprise`.")
_UPGRADE_URL = _text(
    "Path of the console page where the plan can be changed, relative to the gateway's address."
)


def _detail(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return _closed(properties) | {"description": "Details of the error."}


#: JSON schemas of error response bodies, by name
SCHEMAS: dict[str, dict[str, Any]] = {
    "Problem": _error(
        _text("Message that contains the reason for the error."),
        "Error with a message.",
        "Agent not found",
        "not_found",
    ),
    "FieldProblem": _error(
        {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "minProperties": 1,
            "description": "Messages by the name of the field. Names of nested fields are dotted. "
            "The key `body` stands for the whole request body.",
        },
        "Error of a request with missing or invalid fields.",
        {"name": ["This field is required"]},
        "invalid_request",
    ),
    "NotReady": _closed(
        {
            "status": {"type": "string", "const": "unavailable", "description": "Always `unavailable`."},
            "detail": _text("Reason why the gateway is not ready."),
        }
    )
    | {
        "description": "Response of a gateway that is not ready to process requests.",
        "examples": [{"status": "unavailable", "detail": "The database does not respond"}],
    },
    "PlanLimitProblem": _error(
        _detail(
            error={"type": "string", "const": "plan_limit_exceeded", "description": "Type of the error."},
            message=_text("Message for people, with the current number and the limit."),
            limit_type={
                "type": "string",
                "enum": ["agents", "logs", "team_members"],
                "description": "Limit that is reached: `agents`, `logs` (log entries in this calendar month, UTC) or "
                "`team_members`.",
            },
            current_plan=_CURRENT_PLAN,
            upgrade_url=_UPGRADE_URL,
        ),
        "Error of a request that would exceed a limit of the organization's plan.",
        {
            "error": "plan_limit_exceeded",
            "message": "The free plan's limit of agents is reached: 2/2 used",
            "limit_type": "agents",
            "current_plan": "free",
            "upgrade_url": "/console/plan",
        },
        "plan_limit_exceeded",
    ),
    "TestLogProblem": _error(
        _detail(
            error={"type": "string", "const": "test_log_full", "description": "Type of the error."},
            message=_text("Message for people, with the current and the maximum size in bytes."),
            limit_type={
                "type": "string",
                "const": "test_log_bytes",
                "description": "Limit that is reached: the size of the log in bytes.",
            },
        ),
        "Error of a log entry that would exceed the maximum size of the test environment's activity log.",
        {
            "error": "test_log_full",
            "message": "The test environment's log is full: 1048576/1048576 bytes used",
            "limit_type": "test_log_bytes",
        },
        "test_log_full",
    ),
    "FeatureProblem": _error(
        _detail(
            error={"type": "string", "const": "feature_not_available", "description": "Type of the error."},
            feature=_text("Name of the feature, for instance `webhooks`."),
            message=_MESSAGE,
            current_plan=_CURRENT_PLAN,
            upgrade_url=_UPGRADE_URL,
        ),
        "Error of a request that needs a feature which the organization's plan does not include.",
        {
            "error": "feature_not_available",
            "feature": "webhooks",
            "message": "The free plan does not include webhooks",
            "current_plan": "free",
            "upgrade_url": "/console/plan",
        },
        "feature_not_available",
    ),
}


_WHOLE = {"type": "integer", "minimum": 0}


def _header(description: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"description": description, "schema": schema, "required": required}


HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": _header(
        "Id of the request: the id that the client sent in this header if it matches `[A-Za-z0-9._-]{1,128}`, otherwise a new one.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
    "Echoed-Request-ID": _header(
        "Id of the request: the value that the client sent in this header, otherwise a new id.",
        {"type": "string"},
    ),
    "X-API-Version": _header(
        "Version of the API, a date.", {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    ),
    "X-RateLimit-Limit": _header("Maximum number of requests per minute.", _WHOLE),
    "X-RateLimit-Remaining": _header("Number of requests that are left in the current minute.", _WHOLE),
    "X-RateLimit-Reset": _header("End of the current minute, as Unix time in seconds.", _WHOLE),
    "X-Toolgate-Organization": _header("Id of the organization that owns the API key.", {"type": "string"}),
    "X-Toolgate-Environment": _header(
        "Environment of the API key.", {"type": "string", "enum": ["production", "test"]}
    ),
    "Retry-After": _header("Number of seconds to wait before a retry.", _WHOLE),
    "WWW-Authenticate": _header(
        "Authentication scheme that the operation requires.", {"const": "Bearer", "type": "string"}
    ),
    "X-Decision-ID": _header(
        "Id of the decision. Send it as `decision_id` of the log entry.", {"type": "string"}
    ),
    "X-Budget-Left": _header(
        "The smallest amount that remains, after this call, of all budgets that apply to the call.",
        {"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?$"},
        required=False,
    ),
    "X-Rule-ID": _header(
        "Id of the rule that allowed or denied the call, or that requires the approval.",
        {"type": "string", "format": "uuid"},
        required=False,
    ),
    "X-Reason-Code": _header(
        "Code of the decision, for instance `allowed`, `no_permission`, `amount_exceeded` or `approval_required`.",
        {"type": "string", "pattern": "^[a-z_]+$"},
        required=False,
    ),
    "X-Approval-ID": _header(
        "Id of the approved request that allowed the call, or would allow it in the case of a dry run.",
        {"type": "string"},
        required=False,
    ),
    "X-Call-Let-Through": _header(
        "Present if the gateway denied the call because an approval has already allowed a call with this `call_id`.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Replayed": _header(
        "Present if this is the stored response to an earlier request with the same `Idempotency-Key`. The repeated "
        "request stored no entry.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Mismatch": _header(
        "Present if the body differs from that of the first request with this `Idempotency-Key`.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Link": _header(
        'URL of the next page, with `rel="next"`. Absent on the last page.',
        {"type": "string"},
        required=False,
    ),
    "X-Total-Count": _header(
        "Number of items on all pages; `10000+` if there are more than 10,000.",
        {"type": "string", "pattern": r"^(\d{1,5}|10000\+)$"},
    ),
    "Known-Total-Count": _header(
        "Number of items on all pages; `10000+` if there are more than 10,000. Absent if the number is unknown, "
        "because the request read only a part of the list.",
        {"type": "string", "pattern": r"^(\d{1,5}|10000\+)$"},
        required=False,
    ),
}

#: names of the headers that every response has
EVERYWHERE = ("X-Request-ID", "X-API-Version")
#: names of the headers of a response that contains a page of a list
PAGED = ("Link", "X-Total-Count")


#: headers of a response that contains a page of a list, if the total number of items can be unknown
PARTLY_COUNTED = {
    "headers": {"X-Total-Count": {"$ref": "#/components/headers/Known-Total-Count"}},
}


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
    "description": "Key of this request, 1-255 printable Latin-1 characters. Send the same key only when you retry "
    "the same request: the gateway then returns the response to the first one. Keys of log entries are stored for 24 "
    "hours, keys of checks that used an approval for 10 minutes.",
    "schema": HEADER_REFERENCE,
}


def operation(
    name: str,
    summary: str,
    description: str,
    *,
    body: str,
    answer: str,
    ok: str,
    headers: tuple[str, ...],
    refusals: tuple[Problem, ...] = (),
    parameters: tuple[Mapping[str, Any], ...] = (IDEMPOTENCY_KEY,),
) -> dict[str, Any]:
    """Return the OpenAPI object of a POST operation with API key authentication, a JSON body and a JSON response.

    `body` and `answer` are names of schemas in the document. `ok` describes the response 200, and `headers` are the
    names of its headers. `refusals` are the errors that are specific to this operation; the function adds the common
    errors.
    """
    every = (INVALID, NO_KEY, ELSEWHERE, TOO_LARGE, RATE_LIMIT, UNAVAILABLE, *ALWAYS)
    success = {"description": ok, "content": _json(answer), "headers": references(*headers)}
    return {
        "tags": ["sdk"],
        "summary": summary,
        "description": description,
        "operationId": name,
        "security": [{API_KEY: []}, {API_KEY_BEARER: []}],
        "parameters": list(parameters),
        "requestBody": {"required": True, "content": _json(body)},
        "responses": merged({200: success}, *refusals, *every),
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": schema_reference(schema)}}
