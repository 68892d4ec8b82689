"""One log entry on its way to the gateway."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from toolgate._capture.jsontext import Json, dumps
from toolgate.traced import trace_headers

__all__ = ["Entry", "Intent", "new_entry"]

_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """A log entry and the key that makes sending it twice harmless (spec §4).

    Attributes:
        body: What is sent to `POST /sdk/log`.
        key: Its Idempotency-Key, minted once: 128 random bits in hexadecimal.
    """

    body: dict[str, Json]
    key: str = field(default_factory=lambda: secrets.token_hex(_KEY_BYTES))

    def text(self) -> str:
        """The entry as one of many: what is sent to `POST /sdk/logs`, as JSON."""
        return dumps({**self.body, "idempotency_key": self.key})


@dataclass(frozen=True, slots=True)
class Intent:
    """An entry that was written down before its tool ran.

    Attributes:
        place: Where it is in the outbox.
        key: Its Idempotency-Key.
        process: The process it was written in.
        size: Bytes that are counted for it and its outcome.
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
    """An entry of something that happened now.

    Args:
        action: What was done.
        agent_id: Who did it.
        status: `success`, `failed`, `pending` or `denied`.
        context: JSON-safe details.
        key: An Idempotency-Key in place of a new one.
        **details: Further members, such as `approval_id`, `run_id` or `ip_address`; None leaves one out.
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
        # In the entry itself: many of them go together, by a thread that is in nobody's trace.
        body["traceparent"] = trace
    return Entry(body, key) if key is not None else Entry(body)
