"""What the SDK tells the standard logging: logger `toolgate`, extra fields with stable names.

toolgate_event        decision | waiting | approved | edited | cancelled | cancel_failed | record | record_failed |
                      record_resumed | outbox_fills | entries_lost | fail_open | request_failed
toolgate_action       the action
toolgate_agent_id     the agent
toolgate_outcome      allowed | blocked | held | unasked, or the log entry's status
toolgate_reason       the explanation, or None
toolgate_approval_id  the approval request, or None
toolgate_entries      how many log entries wait or are lost
"""

from __future__ import annotations

import logging
from typing import Final, Literal, TypeAlias

__all__ = ["logger", "tell"]

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


def tell(
    event: Event,
    action: object,
    agent_id: object,
    outcome: object,
    *,
    reason: object = None,
    approval_id: object = None,
    level: int = logging.INFO,
) -> None:
    """Write one log record; never any argument of a call."""
    if not logger.isEnabledFor(level):
        return
    if reason:
        from toolgate._capture.redaction import scrub

        # In the words of a person or of whatever answered: neither knows what must not be logged.
        reason = scrub(str(reason), ())
    logger.log(
        level,
        # %r, so that no reason can begin a line of its own.
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
