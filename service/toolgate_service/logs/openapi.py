"""JSON schemas of the bodies of `POST /sdk/log` and `POST /sdk/logs`, for the OpenAPI document."""

from typing import Any

from toolgate_service.core.schemas import (
    ACTION,
    CONTEXT,
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    REFERENCE,
    TEXT,
    nullable,
    schema_reference,
)
from toolgate_service.logs.models import STATUSES
from toolgate_service.logs.schemas import MAX_ENTRIES

_STATUS = {
    "type": "string",
    "enum": list(STATUSES),
    "description": "Outcome of the call: `success`, `failed` (an error occurred), `pending` (not complete yet) or "
    "`denied` (the check did not allow it).",
}
_REFERENCES = {
    "decision_id": "Id of the decision, from the header `X-Decision-ID` of the check. 1-255 printable characters.",
    "approval_id": "Id of the approval request that allowed the call. 1-255 printable characters.",
    "call_id": "Identifier of the call, chosen by the client. 1-255 printable characters.",
    "run_id": "Identifier of the agent run, chosen by the client. 1-255 printable characters.",
}

_NEW_ENTRY: dict[str, Any] = {
    "description": "Log entry of one call. Unknown fields are ignored.",
    "type": "object",
    "required": ["agent_id", "action", "status"],
    "properties": {
        "agent_id": TEXT | {"description": "Id of the agent that performed the call, a UUID."},
        "action": ACTION
        | {"description": "Action of the call, such as `stripe.refund`: 1-255 visible ASCII characters."},
        "status": _STATUS,
        "context": nullable(CONTEXT)
        | {
            "description": "Details of the call, such as its arguments: at most 64 KiB of canonical JSON and 32 levels."
        },
        "ip_address": {
            "anyOf": [
                {"type": "string", "format": "ipv4"},
                {"type": "string", "format": "ipv6"},
                {"type": "null"},
            ],
            "description": "IP address from which the call came. By default, the address of the client.",
        },
        "occurred_at": nullable({"type": "string", "format": "date-time"})
        | {"description": "Time at which the call happened (ISO 8601; without an offset, UTC)."},
    }
    | {name: nullable(REFERENCE) | {"description": text} for name, text in _REFERENCES.items()},
    "examples": [
        {
            "agent_id": "{agent_id}",
            "action": "stripe.refund",
            "status": "success",
            "context": {"amount": 12.5},
        }
    ],
}

_ENTRY_EXAMPLE = {
    "id": EXAMPLE_ID,
    "agent_id": EXAMPLE_AGENT_ID,
    "organization_id": EXAMPLE_ID,
    "action": "stripe.refund",
    "status": "success",
    "created_at": EXAMPLE_TIME,
    "context": {"amount": 12.5},
}

_ENTRY: dict[str, Any] = {
    "description": "Stored log entry.",
    "type": "object",
    "required": ["id", "agent_id", "organization_id", "action", "status", "context", "created_at"],
    "properties": {
        "id": {"type": "string", "description": "Unique id of the entry, a UUID."},
        "agent_id": {"type": "string", "description": "Id of the agent, a UUID."},
        "organization_id": {"type": "string", "description": "Id of the organization, a UUID."},
        "action": {"type": "string", "description": "Action of the call."},
        "status": _STATUS,
        "context": {
            "type": ["object", "null"],
            "additionalProperties": True,
            "description": "Details of the call; null if the client sent none.",
        },
        "created_at": {
            "type": "string",
            "format": "date-time",
            "description": "Time at which the entry was stored (UTC, ISO 8601 with microseconds).",
        },
    },
    "examples": [_ENTRY_EXAMPLE],
}

#: JSON schemas of the request and response bodies of `POST /sdk/log` and `POST /sdk/logs`, by name
LOG_SCHEMAS: dict[str, dict[str, Any]] = {
    "NewLogEntry": _NEW_ENTRY,
    "LogEntry": _ENTRY,
    "NewBatchLogEntry": _NEW_ENTRY
    | {
        "description": "Log entry of one call, in a request with several entries.",
        "properties": _NEW_ENTRY["properties"]
        | {
            "idempotency_key": nullable(REFERENCE)
            | {
                "description": "Idempotency key of this entry, like the header `Idempotency-Key` of `/sdk/log`: "
                "1-255 printable characters. For 24 hours, the gateway returns the stored result for a repeated key."
            }
        },
    },
    "NewLogEntries": {
        "description": "Several log entries.",
        "type": "object",
        "required": ["entries"],
        "properties": {
            "entries": {
                "type": "array",
                "maxItems": MAX_ENTRIES,
                "description": f"At most {MAX_ENTRIES} entries. An invalid entry does not affect the others.",
                "items": schema_reference("NewBatchLogEntry"),
            }
        },
        "examples": [
            {
                "entries": [
                    {
                        "agent_id": "{agent_id}",
                        "action": "stripe.refund",
                        "status": "failed",
                        "run_id": "run-7",
                    }
                ]
            }
        ],
    },
    "StoredLogResult": {
        "description": "Result for an entry that is stored.",
        "type": "object",
        "required": ["status", "entry"],
        "properties": {
            "status": {"type": "integer", "const": 200, "description": "Always 200."},
            "entry": schema_reference("LogEntry") | {"description": "The stored entry."},
            "replayed": {
                "type": "boolean",
                "const": True,
                "description": "Present if the `idempotency_key` was used before: `entry` is then the earlier entry.",
            },
            "mismatch": {
                "type": "boolean",
                "const": True,
                "description": "Present if the earlier entry with this `idempotency_key` had other values.",
            },
        },
        "examples": [{"status": 200, "entry": _ENTRY_EXAMPLE}],
    },
    "RejectedLogResult": {
        "description": "Result for an entry that is not stored.",
        "type": "object",
        "required": ["status", "detail"],
        "properties": {
            "status": {
                "type": "integer",
                "minimum": 400,
                "description": "HTTP status that `/sdk/log` would return for this entry.",
            },
            "detail": {
                "description": "The `detail` that `/sdk/log` would return: a message, messages by field, or an object."
            },
        },
        "examples": [{"status": 404, "detail": "Agent not found"}],
    },
    "LogResults": {
        "description": "Results of several log entries.",
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {
                "type": "array",
                "maxItems": MAX_ENTRIES,
                "description": "One result for each entry of the request, in the same order.",
                "items": {
                    "anyOf": [schema_reference("StoredLogResult"), schema_reference("RejectedLogResult")]
                },
            }
        },
        "examples": [{"results": [{"status": 200, "entry": _ENTRY_EXAMPLE}]}],
    },
}
