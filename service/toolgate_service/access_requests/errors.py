"""Error responses of access requests. The problem type (RFC 9457) of each error ends with the error's code."""

from toolgate_service.core.errors import ApiError


def problem(status: int, code: str, message: str) -> ApiError:
    """Return an error whose problem type (RFC 9457) ends with this code."""
    return ApiError(status, {"error": code, "message": message})


def invalid_binding(message: str) -> ApiError:
    """Return the 400 error for a submission that does not belong to a denied evaluation."""
    return problem(400, "invalid_denial_binding", message)


def not_requestable(message: str) -> ApiError:
    """Return the 400 error for an access request whose denied evaluation does not wait for an approval."""
    return problem(400, "not_requestable", message)


def expired_denial() -> ApiError:
    """Return the 410 error for a denial that was submitted too late."""
    return problem(410, "expired_denial", "The denial has expired; evaluate the access again")


def duplicate_request() -> ApiError:
    """Return the 409 error for an idempotency key that was sent with another body."""
    return problem(409, "duplicate_request", "This Idempotency-Key was sent with another body; use a new key")


def unknown_task() -> ApiError:
    """Return the 404 error for a task that does not exist, or that the API key may not use."""
    return problem(404, "unknown_task", "Access request not found")


def task_expired() -> ApiError:
    """Return the 410 error for a task that can no longer be read."""
    return problem(410, "task_expired", "The access request has expired; evaluate the access again")


def invalid_task_state(status: str) -> ApiError:
    """Return the 409 error for the cancellation of a task that is no longer pending."""
    return problem(409, "invalid_task_state", f"The access request is no longer pending: it is {status}")
