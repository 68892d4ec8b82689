"""What answers look like on the wire."""

import re
from collections.abc import Mapping

import httpx

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
REQUIRED = "This field is required"


CODES = {
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


def problem(status: int, detail: object) -> dict[str, object]:
    """Return the body of an error response."""
    specific = detail.get("error") if isinstance(detail, Mapping) else None
    return {"detail": detail, "code": specific if isinstance(specific, str) else CODES[status]}


def refused(answer: httpx.Response, status: int, detail: object) -> None:
    """Assert that an answer is this refusal and nothing more."""
    assert (answer.status_code, answer.json()) == (status, problem(status, detail))


def complaints(answer: httpx.Response) -> Mapping[str, list[str]]:
    """Return the messages of a 400 by field."""
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"detail", "code"}
    detail: dict[str, list[str]] = answer.json()["detail"]
    assert isinstance(detail, dict)
    assert all(isinstance(messages, list) and messages for messages in detail.values())
    return detail


def nothing_inside(answer: httpx.Response) -> None:
    """Assert that an answer is JSON and tells nothing about the gateway's inside."""
    assert answer.status_code < 500, answer.text
    if answer.content:
        answer.json()
    for word in ("Traceback", 'File "', "sqlalchemy", "sqlite", "pydantic", "toolgate_service"):
        assert word not in answer.text
