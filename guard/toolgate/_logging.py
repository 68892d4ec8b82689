"""Standard logging of the SDK (logger `toolgate`), deprecation warnings, and reports of setup errors.

Extra fields of each record:

toolgate_event        decision | waiting | approved | edited | cancelled | cancel_failed | record | record_failed |
                      record_resumed | outbox_fills | entries_lost | fail_open | request_failed
toolgate_action       the action
toolgate_agent_id     the agent
toolgate_outcome      allowed | blocked (denied) | held (approval required) | unasked (run without a decision), or the
                      status of the log entry
toolgate_reason       explanation by the gateway, the approver or the SDK, or None
toolgate_approval_id  the approval request, or None
toolgate_entries      number of log entries that are queued or lost
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

__all__ = ["log_event", "logger", "report_setup_error", "set_setup_error_listener", "warn_renamed"]

logger: Final = logging.getLogger("toolgate")

Event: TypeAlias = Literal[
    "decision",
    "waiting",
    "approved",
    "edited",
    "cancelled",
    "cancel_failed",
    "record",
    "record_failed",
    "fail_open",
    "request_failed",
]

_setup_error_listener: Callable[[Exception], None] | None = None


def log_event(
    event: Event,
    action: object,
    agent_id: object,
    outcome: object,
    *,
    reason: object = None,
    approval_id: object = None,
    level: int = logging.INFO,
) -> None:
    """Write one record to the logger `toolgate`. The record never contains an argument of a call."""
    if not logger.isEnabledFor(level):
        return
    if reason:
        from toolgate._capture.redaction import scrub

        # The reason is redacted, because a text of an approver or of the gateway may contain a secret.
        reason = scrub(str(reason), ())
    logger.log(
        level,
        # %r escapes line breaks in a reason, so that the record is one line.
        "%s: action %r of agent %r: %s%s",
        event,
        action,
        agent_id,
        outcome,
        f" ({reason!r})" if reason else "",
        extra={
            "toolgate_event": event,
            "toolgate_action": action,
            "toolgate_agent_id": agent_id,
            "toolgate_outcome": outcome,
            "toolgate_reason": reason,
            "toolgate_approval_id": approval_id,
        },
    )


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that `old` is the deprecated name of `new`; `stacklevel` makes the warning show the code that uses `old`."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=stacklevel)


def set_setup_error_listener(
    listener: Callable[[Exception], None] | None,
) -> Callable[[Exception], None] | None:
    """Register the function to call with each setup error of this process; None removes the registered function.

    The pytest plugin uses the listener to fail a test in which an agent framework catches a setup error.

    Returns:
        The previous listener.
    """
    global _setup_error_listener
    previous, _setup_error_listener = _setup_error_listener, listener
    return previous


def report_setup_error(error: Exception) -> None:
    """Pass a setup error to the listener, if there is one.

    Args:
        error: Missing or invalid setting, rejected API key, or response from a server that is not a Toolgate gateway.
    """
    if _setup_error_listener is not None:
        _setup_error_listener(error)
