"""What a model reads when its tool call did not happen: short, stable, and clear about what can help."""

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    GatewayUnavailable,
    GuardError,
)


def refusal_text(error: GuardError) -> str:
    """Say to a model what was refused, why, and whether asking again can help.

    Args:
        error: what a guarded tool raised in place of running.
    """
    match error:
        case ApprovalDenied():
            return f"Not done: a person declined {error.action!r}. {_sentence(error.reason)} Do not ask for it again."
        case ActionDenied():
            return (
                f"Not done: {error.action!r} is blocked. {_sentence(error.reason)} Asking again with the same "
                "arguments will not help."
            )
        case ApprovalPending():
            return (
                f"Not done yet: {error.action!r} waits for a person (approval {error.approval_id}). Once it is "
                "approved, the same call with the same arguments will go through."
            )
        case ApprovalExpired():
            return (
                f"Not done: nobody decided about {error.action!r} in time (approval {error.approval_id}). Asking again "
                "makes a new request."
            )
        case GatewayUnavailable():
            return "Not done: the permission gateway did not answer. Asking again later may help."
    return "Not done: the permission gateway could not decide. Asking again will not help; tell the operator."


def _sentence(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
