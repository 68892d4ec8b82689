"""Log entries, and the exceptions that are raised if a log entry cannot be stored in the outbox."""

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
    """The outbox cannot be used: log entries cannot be stored or read.

    Args:
        reason: The problem, for the error message.
        hint: The fix, for the error message.
        full: Whether the only problem is that the outbox has reached its maximum number of entries or bytes.
    """

    def __init__(self, reason: str, hint: str, *, full: bool = False) -> None:
        super().__init__(f"{reason}; {hint}")
        self.full = full
        self.reason = reason
        self.hint = hint


class Busy(Exception):
    """Another thread or process is using the outbox; the caller can try again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Log entry of one call, and the entry's Idempotency-Key.

    If an entry is sent twice, the gateway recognizes the key and stores the entry only once.

    Attributes:
        body: The entry as the JSON object of `POST /sdk/log`.
        key: Idempotency-Key: by default 128 random bits in hexadecimal.
    """

    body: dict[str, Json]
    key: str = field(default_factory=lambda: secrets.token_hex(_KEY_BYTES))

    def text(self) -> str:
        """Return the JSON text of the entry, as it is sent in the list `entries` of `POST /sdk/logs`."""
        return dumps({**self.body, "idempotency_key": self.key})


@dataclass(frozen=True, slots=True)
class Intent:
    """Reference to an intent in the outbox.

    An intent is a log entry that is stored before the tool runs. The outcome is added when the tool has ended.

    Attributes:
        place: Row id in the outbox file.
        key: Idempotency-Key of the log entry.
        process: Id of the process that stored the intent.
        size: Number of bytes that the outbox counts for the intent, including bytes reserved for the outcome.
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
    """Return a log entry whose `occurred_at` is the current time.

    Args:
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        status: `success`, `failed`, `pending` or `denied`.
        context: The arguments of the call, and details of its outcome such as duration or error.
        key: Idempotency-Key, or None for a new one.
        **details: Further members of the JSON object, such as `approval_id`, `run_id` or `ip_address`. Members whose
            value is None are omitted.
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
        # The trace id of the call is stored in the entry, because the thread that sends the entry has no access to it.
        body["traceparent"] = trace
    return Entry(body, key) if key is not None else Entry(body)
