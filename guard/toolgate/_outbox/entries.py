"""Log entries, and the exceptions that are raised if one cannot be stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from toolgate._capture.jsontext import Json, dumps
from toolgate._telemetry import trace_headers

__all__ = ["Busy", "Entry", "Intent", "OutboxFault", "new_entry"]

_KEY_BYTES: Final = 16


class OutboxFault(Exception):
    """Entries cannot be stored.

    Args:
        reason: What is wrong.
        hint: How to fix it.
        full: Whether the only problem is that the outbox has reached its limit.
    """

    def __init__(self, reason: str, hint: str, *, full: bool = False) -> None:
        super().__init__(f"{reason}; {hint}")
        self.full = full
        self.reason = reason
        self.hint = hint


class Busy(Exception):
    """Another thread or process is writing to the file; the caller can try again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Log entry with its Idempotency-Key, by which the gateway stores the entry only once if it is sent twice.

    Attributes:
        body: The JSON object of `POST /sdk/log`.
        key: 128 random bits in hexadecimal.
    """

    body: dict[str, Json]
    key: str = field(default_factory=lambda: secrets.token_hex(_KEY_BYTES))

    def text(self) -> str:
        """Return the JSON text of the entry, as it is sent in the list `entries` of `POST /sdk/logs`."""
        return dumps({**self.body, "idempotency_key": self.key})


@dataclass(frozen=True, slots=True)
class Intent:
    """Reference to a stored intent: a log entry that is stored before the tool runs and completed when it has ended.

    Attributes:
        place: Row id in the outbox.
        key: Idempotency-Key.
        process: Id of the process that stored the intent.
        size: Bytes that the outbox counts for the intent, including a reserve for the outcome.
    """

    place: int
    key: str
    process: int
    size: int = 0


def new_entry(
    *,
    action: str,
    agent_id: str,
    status: str,
    context: dict[str, Json],
    key: str | None = None,
    **details: str | None,
) -> Entry:
    """Return an entry with the current time.

    Args:
        action: The action.
        agent_id: The agent.
        status: `success`, `failed`, `pending` or `denied`.
        context: The call's context (its arguments), and details of its outcome such as duration or error.
        key: Idempotency-Key, or None for a new one.
        **details: Further members of the JSON object, such as `approval_id`, `run_id` or `ip_address`; those that are
            None are omitted.
    """
    body: dict[str, Json] = {
        "agent_id": agent_id,
        "action": action,
        "status": status,
        "context": context,
        "occurred_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    body.update({name: value for name, value in details.items() if value is not None})
    if trace := trace_headers().get("traceparent"):
        # The trace is stored in the entry, since the thread that sends the entry is not part of the trace.
        body["traceparent"] = trace
    return Entry(body, key) if key is not None else Entry(body)
