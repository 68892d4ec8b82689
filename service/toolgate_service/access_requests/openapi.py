"""OpenAPI description of the error responses of access requests. Their format differs from that of other routes."""

from typing import Any

from toolgate_service.core.schemas import schema_reference

_FIRST_ERROR = 400
_TEXT = {"type": "string"}

#: JSON schemas of the error responses, by name
ACCESS_REQUEST_SCHEMAS: dict[str, dict[str, Any]] = {
    "AccessRequestProblem": {
        "type": "object",
        "description": "Error in the form of RFC 9457.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": _TEXT
            | {
                "description": "`urn:openid:authzen:access-request:error:` and the code of the error, or `about:blank` for "
                "errors that the profile does not define."
            },
            "title": _TEXT | {"description": "Name of the HTTP status."},
            "status": {"type": "integer", "description": "HTTP status of the response."},
            "detail": _TEXT | {"description": "Message that contains the reason for the error."},
        },
        "examples": [
            {
                "type": "urn:openid:authzen:access-request:error:unknown_task",
                "title": "Not Found",
                "status": 404,
                "detail": "Access request not found",
            }
        ],
    }
}


def describe_problems(operation: dict[str, Any]) -> None:
    """Replace the error responses of an operation by those of the Access Request and Approval Profile."""
    for status, response in operation["responses"].items():
        headers = response.setdefault("headers", {})
        # The specification allows any text as the id of a request.
        headers["X-Request-ID"] = {"$ref": "#/components/headers/Echoed-Request-ID"}
        if int(status) >= _FIRST_ERROR:
            schema = schema_reference("AccessRequestProblem")
            response["content"] = {"application/problem+json": {"schema": schema}}
