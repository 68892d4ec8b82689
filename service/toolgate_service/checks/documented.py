"""POST /sdk/check for the OpenAPI document; `checks.question` reads what is described here."""

from toolgate_service.openapi.by_hand import operation
from toolgate_service.web.field_schemas import ACTION, CONTEXT, DESCRIPTION, REFERENCE, TEXT, nullable

_QUESTION = {
    "type": "object",
    "required": ["agent_id", "action"],
    "properties": {
        "agent_id": TEXT | {"description": "Who wants to act."},
        "action": ACTION | {"description": "What it wants to do."},
        "context": nullable(CONTEXT)
        | {
            "description": "The call's facts: `amount` is compared with `max_amount`, approvers see all of it."
        },
        "approval_id": nullable(REFERENCE) | {"description": "Narrows the answer to this one approval."},
        "call_id": nullable(REFERENCE) | {"description": "The caller's own name of this one call."},
        "run_id": nullable(REFERENCE) | {"description": "The caller's own name of the run it belongs to."},
        "reason": nullable(DESCRIPTION)
        | {
            "description": "Why, in the agent's own words: shown to approvers, not verified, and bound to nothing."
        },
        "dry_run": {"type": ["boolean", "null"], "default": False, "description": "Answer, change nothing."},
    },
    "examples": [{"agent_id": "{agent_id}", "action": "stripe.refund", "context": {"amount": 12.5}}],
}

_RESULT = {
    "title": "CheckResult",
    "type": "object",
    "required": ["allowed", "requires_approval", "reason", "approval_id"],
    "properties": {
        "allowed": {"type": "boolean", "description": "Whether the action may happen now."},
        "requires_approval": {"type": "boolean", "description": "Whether a person is asked first."},
        "reason": {"type": ["string", "null"], "description": "Why it is blocked or held."},
        "approval_id": {"type": ["string", "null"], "description": "The request that a person decides."},
    },
}

CHECK = operation(
    "check",
    "Check",
    "Ask whether an agent may act: allowed, blocked with a reason, or held for a person's approval. "
    "An unknown or inactive agent is blocked. A check writes no log entry.",
    body=_QUESTION,
    answer=_RESULT,
    headers=("X-Decision-ID", "X-Call-Let-Through"),
)
