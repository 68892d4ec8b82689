"""Texts that the model reads when its tool call did not run: what was refused, why, and whether to try again."""

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
#: Errors of the setup. They end the run, because a model cannot correct settings.
SETUP_ERRORS: Final = (ConfigurationError, GatewayProtocolError)


#: Text that the model reads if the arguments of its call cannot be parsed.
UNREADABLE: Final = "Not done: the arguments are not a JSON object. Call the tool again with valid JSON."


class ReportedErrors:
    """Setup errors that were already logged; each error message is logged only once.

    The number of stored messages is limited, because a message may contain details of a single response.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, error: ConfigurationError | GatewayProtocolError) -> None:
        """Pass a setup error to Toolgate's pytest plugin if that is active, and log the error if its message is new."""
        report_setup_error(error)
        text = str(error)
        if text not in self._texts and len(self._texts) < _MAX_REPORTED:
            self._texts.add(text)
            logger.error("tool calls are blocked, because the guard is not configured correctly: %s", text)


class OtherArgumentsError(Exception):
    """Raised if the arguments were changed after the check, so the tool must not run; the model reads the message.

    Args:
        text: The message. The default says that the arguments changed after the approval.
    """

    def __init__(
        self,
        text: str = "Not done: another part of the agent changed the arguments after they were approved. "
        "Calling the tool again will not help; tell the operator.",
    ) -> None:
        super().__init__(text)


def find_error(
    error: BaseException | None, kinds: tuple[type[GuardError], ...] = SETUP_ERRORS
) -> GuardError | None:
    """Return the first instance of `kinds` in an exception and its chain of causes and contexts, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kinds):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def describe_pending(pending: ApprovalPending) -> dict[str, Any]:
    """Return the description of a pending call that plugins add to the framework's own approval request."""
    return {"approval_id": pending.approval_id, "action": pending.action, "reason": pending.reason}


def refusal_text(error: GuardError, *, paused: bool = False) -> str:
    """Return the text that the model reads for a call that did not run: what was refused, why, and whether to try again.

    A model cannot correct the cause of a `ConfigurationError` or a `GatewayProtocolError`. Raise such an error
    instead, if that makes the framework end the run without running the tool.

    Args:
        error: The error because of which the tool did not run.
        paused: True if the run pauses and later executes the same call again. The text then asks the model not to
            repeat the call, because a new call would need its own approval.
    """
    match error:
        case ApprovalDenied():
            return f"Not done: a person rejected {error.action!r}. {_sentence(error.reason)} Do not call the tool again for it."
        case ActionDenied():
            return f"Not done: {error.action!r} is blocked. {_sentence(error.reason)} Calling the tool again with the same arguments will not help."
        case ApprovalPending() if paused:
            return f"Not done yet: {error.action!r} waits for a person's approval (approval {error.approval_id}). It runs when the run is resumed after the approval. Do not call it again."
        case ApprovalPending():
            return f"Not done yet: {error.action!r} waits for a person's approval (approval {error.approval_id}). Once it is approved, the same call with the same arguments will run."
        case ApprovalExpired():
            return f"Not done: {error.action!r} was not decided in time (approval {error.approval_id}). Calling the tool again creates a new request."
        case GatewayUnavailable():
            return "Not done: the permission gateway did not answer. Calling the tool again later may help."
    return f"Not done: the permission gateway could not check the call. {_sentence(str(error))} Calling the tool again will not help; tell the operator."


def _sentence(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
