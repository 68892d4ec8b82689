"""Exceptions of the gateway.

ApiError                 rejected request; becomes a response with a status and the JSON of `error_body`
├── FieldErrors          400; the detail maps field names to messages
└── PlanLimitExceeded    403; the detail describes the reached plan limit
StorageError             the database cannot be opened or used at startup; the message is for the operator
StartError               an operator's command cannot run
StorageFault             the database is temporarily unavailable; the client may repeat the request
└── LostRace             a concurrent transaction caused a rollback; the gateway retries the transaction
"""

from collections.abc import Mapping
from typing import TypeAlias

Detail: TypeAlias = str | Mapping[str, object]

REQUIRED = "This field is required"

#: code of an error response by its status, unless the detail contains a more specific one
CODES: Mapping[int, str] = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "request_too_large",
    429: "rate_limited",
    431: "headers_too_large",
    500: "internal_error",
    503: "unavailable",
}


def error_body(status: int, detail: Detail) -> dict[str, object]:
    """Return the JSON body of an error response: the detail for people, and a code for programs."""
    specific = detail.get("error") if isinstance(detail, Mapping) else None
    code = specific if isinstance(specific, str) else CODES.get(status, "error")
    return {"detail": detail, "code": code}


class ApiError(Exception):
    """Error response with a status code, a detail and optional headers."""

    def __init__(self, status: int, detail: Detail, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status_code = status
        self.headers = headers
        self.detail = detail


class FieldErrors(ApiError):
    """Error response 400 with the messages of each invalid field: ``{"detail": {"<field>": ["message", …]}}``."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        super().__init__(400, fields)


class PlanLimitExceeded(ApiError):
    """Error response 403 that describes the plan limit that the organization has reached."""

    def __init__(self, limit_type: str, used: int, limit: int, plan: str) -> None:
        super().__init__(403, plan_limit_detail(limit_type, used, limit, plan))


class StorageFault(Exception):
    """The database failed or did not respond; the client may repeat the request. The message contains no row values."""


class LostRace(StorageFault):
    """The database rolled back the transaction because of a concurrent transaction; `db.retry` repeats it."""


class StorageError(Exception):
    """The database cannot be opened, created or migrated; the message contains the fix."""


class StartError(Exception):
    """A command of the operator cannot run, or a setting is invalid; the message is one line."""


def plan_limit_detail(limit_type: str, used: int, limit: int, plan: str) -> dict[str, object]:
    """Return the `detail` object of the error response for a reached plan limit."""
    return {
        "error": "plan_limit_exceeded",
        "message": f"The {plan} plan's limit of {limit_type} is reached: {used}/{limit} used",
        "limit_type": limit_type,
        "current_plan": plan,
        "upgrade_url": "/console/plan",
    }


def feature_not_available(feature: str, plan: str) -> ApiError:
    """Return the 403 error for a feature that the organization's plan does not include."""
    return ApiError(
        403,
        {
            "error": "feature_not_available",
            "feature": feature,
            "message": f"The {plan} plan does not include {feature}",
            "current_plan": plan,
            "upgrade_url": "/console/plan",
        },
    )


def bad_credentials() -> ApiError:
    """Return the 401 error for a missing or invalid token. The response does not contain the reason."""
    return ApiError(401, "Not authenticated", {"WWW-Authenticate": "Bearer"})


def not_found(what: str) -> ApiError:
    """Return the 404 error for a kind of resource, for instance ``Agent not found``."""
    return ApiError(404, f"{what} not found")
