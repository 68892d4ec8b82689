"""Exceptions of the gateway, with their base classes and meanings.

Tree of the classes::

    ApiError                 the gateway rejects a request with a status and the JSON of `error_body`
    ├── FieldErrors          400; `detail` maps the names of invalid fields to messages
    └── PlanLimitExceeded    403; `detail` describes the limit of the plan that is reached
    StorageError             the database or the secret cannot be used at startup; the operator sees the message
    StartError               a command for operators cannot run, or a setting is invalid
    StorageFault             the database is temporarily unavailable; the client may repeat its request
    └── LostRace             another transaction caused a rollback; the gateway retries the transaction
"""

from collections.abc import Iterable, Iterator, Mapping
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


def error_text(detail: Detail) -> str:
    """Return the message of an error as one text, for responses whose body is only a message."""
    if isinstance(detail, str):
        return detail
    message = detail.get("message")
    if isinstance(message, str):
        return message
    return "; ".join(f"{field}: {', '.join(map(str, messages))}" for field, messages in _lists(detail))


def _lists(detail: Mapping[str, object]) -> Iterator[tuple[str, Iterable[object]]]:
    for field, messages in detail.items():
        yield field, messages if isinstance(messages, list | tuple) else [messages]


class ApiError(Exception):
    """Error that becomes an HTTP response with a status code, a JSON `detail` and optional headers."""

    def __init__(self, status: int, detail: Detail, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status_code = status
        self.headers = headers
        self.detail = detail


class FieldErrors(ApiError):
    """Error that becomes a 400 response with messages for each invalid field.

    The response body is ``{"detail": {"<field>": ["message", …]}}``.

    Attributes:
        fields: Error messages by the path of the field, such as ``rules.0.name``.
    """

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        super().__init__(400, fields)
        self.fields = fields


class PlanLimitExceeded(ApiError):
    """Error that becomes a 403 response, which describes the limit of the plan that the organization has reached."""

    def __init__(self, limit_type: str, used: int, limit: int, plan: str) -> None:
        super().__init__(403, plan_limit_detail(limit_type, used, limit, plan))


class StorageFault(Exception):
    """Raised if the database fails or does not respond in time. The client may repeat its request.

    The message contains no values of database rows.
    """


class LostRace(StorageFault):
    """Raised if a concurrent transaction caused a rollback. The module `db.retry` repeats the transaction."""


class StorageError(Exception):
    """Raised if the database or the gateway's secret cannot be used. The message contains the fix."""


class StartError(Exception):
    """Raised if a command for operators cannot run, or a setting is invalid. The message is one line of text."""


def plan_limit_detail(limit_type: str, used: int, limit: int, plan: str) -> dict[str, object]:
    """Return the `detail` of the error response for a request that would exceed a limit of the plan."""
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
    """Return the 401 error for a missing or invalid session token. The response does not contain the reason."""
    return ApiError(401, "Not authenticated", {"WWW-Authenticate": "Bearer"})


def not_found(what: str) -> ApiError:
    """Return the 404 error for a resource of the given kind, for example ``Agent not found``."""
    return ApiError(404, f"{what} not found")
