"""Text that the model reads when its tool call did not run: short, stable, and clear about what can help."""

from __future__ import annotations

import logging
from typing import Any, Final

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    GuardError,
)
from toolgate._telemetry import report_setup_error

logger = logging.getLogger("toolgate")
_MAX_REPORTED: Final = 100
#: setup errors, which end the run: a model cannot repair the settings
SETUP_ERRORS: Final = (ConfigurationError, GatewayProtocolError)


#: text that the model reads if the arguments of its call cannot be parsed
UNREADABLE: Final = "Not done: the arguments are not a JSON object. Call the tool again with valid JSON."


class ReportedErrors:
    """Setup errors that were logged, each message once.

    Messages may contain details of single responses, so the number of stored messages is limited.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, error: ConfigurationError | GatewayProtocolError) -> None:
        """Log an error unless its message was logged before, and pass it to the pytest plugin."""
        report_setup_error(error)
        text = str(error)
        if text not in self._texts and len(self._texts) < _MAX_REPORTED:
            self._texts.add(text)
            logger.error("tool calls are not carried out: %s", text)


class OtherArgumentsError(Exception):
    """The tool must not run with these arguments; the model reads the message.

    Args:
        text: The message; by default, that the arguments changed after the approval.
    """

    def __init__(
        self,
        text: str = "Not done: another part of the agent changed the arguments after they were approved. "
        "Asking again will not help; tell the operator.",
    ) -> None:
        super().__init__(text)


def find_error(
    error: BaseException | None, kinds: tuple[type[GuardError], ...] = SETUP_ERRORS
) -> GuardError | None:
    """Return the first exception of one of these kinds among an exception and its causes and contexts, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kinds):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def describe_pending(pending: ApprovalPending) -> dict[str, Any]:
    """Return the fields for the framework's own approval request that describe the pending call."""
    return {"approval_id": pending.approval_id, "action": pending.action, "reason": pending.reason}


def refusal_text(error: GuardError, *, paused: bool = False) -> str:
    """Return what the model reads: what was refused, why, and whether a second call can help.

    A model cannot repair a `ConfigurationError` or a `GatewayProtocolError`. Raise these instead, if the framework
    then ends the run and does not run the tool.

    Args:
        error: The error that a guarded tool raised instead of running.
        paused: Whether the run pauses and is resumed with this same call. The text then asks the model not to repeat
            the call, because a new call would need its own approval.
    """
    match error:
        case ApprovalDenied():
            return f"Not done: a person declined {error.action!r}. {_sentence(error.reason)} Do not ask for it again."
        case ActionDenied():
            return (
                f"Not done: {error.action!r} is blocked. {_sentence(error.reason)} Asking again with the same "
                "arguments will not help."
            )
        case ApprovalPending() if paused:
            return (
                f"Not done yet: {error.action!r} waits for a person (approval {error.approval_id}). It is carried out "
                "when the run is resumed after the approval. Do not call it again."
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
    return f"Not done: the permission gateway could not be asked. {_sentence(str(error))} Asking again will not help; tell the operator."


def _sentence(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
