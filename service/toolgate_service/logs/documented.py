"""POST /sdk/log and /sdk/logs for the OpenAPI document; `logs.reading` reads what is described here."""

from typing import Any

from toolgate_service.logs.many import MAX_ENTRIES
from toolgate_service.logs.models import STATUSES
from toolgate_service.openapi.by_hand import operation
from toolgate_service.openapi.problems import NOT_FOUND, PLAN_LIMIT, TEST_LOG_FULL
from toolgate_service.web.field_schemas import ACTION, CONTEXT, REFERENCE, TEXT, nullable

ENTRY: dict[str, Any] = {
    "type": "object",
    "required": ["agent_id", "action", "status"],
    "properties": {
        "agent_id": TEXT | {"description": "Who acted."},
        "action": ACTION | {"description": "What it did."},
        "status": {"enum": list(STATUSES), "description": "What came of it."},
        "context": nullable(CONTEXT) | {"description": "Free-form details."},
        "ip_address": {
            "anyOf": [
                {"type": "string", "format": "ipv4"},
                {"type": "string", "format": "ipv6"},
                {"type": "null"},
            ],
            "description": "Where the call came from; left out, the address that the gateway sees.",
        },
        "occurred_at": nullable({"type": "string", "format": "date-time"})
        | {"description": "When it happened."},
        "decision_id": nullable(REFERENCE) | {"description": "The `X-Decision-ID` of the check."},
        "approval_id": nullable(REFERENCE) | {"description": "The approval that let it through."},
        "call_id": nullable(REFERENCE) | {"description": "The caller's own name of this one call."},
        "run_id": nullable(REFERENCE) | {"description": "The caller's own name of the run it belongs to."},
    },
    "examples": [
        {
            "agent_id": "{agent_id}",
            "action": "stripe.refund",
            "status": "success",
            "context": {"amount": 12.5},
        }
    ],
}

ENTRY_ANSWER: dict[str, Any] = {
    "title": "LogEntry",
    "type": "object",
    "required": ["id", "agent_id", "organization_id", "action", "status", "context", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "agent_id": {"type": "string"},
        "organization_id": {"type": "string"},
        "action": {"type": "string"},
        "status": {"enum": list(STATUSES)},
        "context": {"type": ["object", "null"], "additionalProperties": True},
        "created_at": {"type": "string", "format": "date-time"},
    },
}

LOG = operation(
    "log",
    "Log",
    "Record what came of a call; on disk before it is acknowledged. With an `Idempotency-Key`, a repetition "
    "within 24 hours gets the original answer.",
    body=ENTRY,
    answer=ENTRY_ANSWER,
    headers=("Idempotency-Replayed", "Idempotency-Mismatch"),
    refusals=(NOT_FOUND, PLAN_LIMIT, TEST_LOG_FULL),
)

_ENTRIES = {
    "type": "object",
    "required": ["entries"],
    "properties": {
        "entries": {
            "type": "array",
            "maxItems": MAX_ENTRIES,
            "description": "In order; one that is wrong fails alone.",
            "items": ENTRY
            | {
                "properties": ENTRY["properties"]
                | {"idempotency_key": nullable(REFERENCE) | {"description": "As the header of `/sdk/log`."}}
            },
        }
    },
    "examples": [
        {
            "entries": [
                {"agent_id": "{agent_id}", "action": "stripe.refund", "status": "failed", "run_id": "run-7"}
            ]
        }
    ],
}

_RESULT: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["status", "entry"],
            "properties": {
                "status": {"const": 200},
                "entry": ENTRY_ANSWER,
                "replayed": {"const": True, "description": "The entry is the original one."},
                "mismatch": {"const": True, "description": "The original said something else."},
            },
        },
        {
            "type": "object",
            "required": ["status", "detail"],
            "properties": {
                "status": {"type": "integer", "minimum": 400},
                "detail": {"description": "As it stands in the refusal of `/sdk/log`."},
            },
        },
    ]
}

LOGS = operation(
    "logMany",
    "Log many",
    "Record up to a hundred outcomes at once, each answered for itself: one request against the rate, its entries "
    "against the month.",
    body=_ENTRIES,
    answer={
        "title": "LogResults",
        "type": "object",
        "required": ["results"],
        "properties": {"results": {"type": "array", "maxItems": MAX_ENTRIES, "items": _RESULT}},
    },
    headers=(),
    parameters=(),
)
