"""ASGI endpoint of `POST /sdk/check` and its OpenAPI description.

The endpoint examines, in this order: API key, organization, source address, rate limit, body, agent, freezes, rules,
permission, amount, budgets, approval.
"""

from functools import partial
from typing import Any

from toolgate_service.checks.decide import Decision, response_body
from toolgate_service.checks.headers import DECISION_ID, OUTCOME, decision_headers, outcome_of
from toolgate_service.checks.schemas import CheckRequest, read_check_request
from toolgate_service.core.concurrency import MAX_ON_LOOP
from toolgate_service.core.ids import new_id
from toolgate_service.core.schemas import (
    ACTION,
    CONTEXT,
    DESCRIPTION,
    EXAMPLE_APPROVAL_ID,
    REFERENCE,
    TEXT,
    nullable,
)
from toolgate_service.core.sdk_fields import idempotency_key
from toolgate_service.core.strict_json import read_object
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse, add_headers
from toolgate_service.http.dependencies import authenticate_api_key, refuse_advisory
from toolgate_service.http.openapi import operation


def check_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /sdk/check`."""

    async def check(received: PlainRequest) -> PlainResponse:
        # Error responses also contain a decision id, so that the client can put it into its log entry.
        decision_id = new_id()
        add_headers(received.scope, {DECISION_ID: decision_id.encode()})
        caller = await authenticate_api_key(received.scope, gateway, "actions")
        raw = await received.read()
        if len(raw) <= MAX_ON_LOOP:
            request = _parse(raw)
        else:
            request = await gateway.parser.run(len(raw), partial(_parse, raw))
        retry_key = idempotency_key(received.header(b"idempotency-key"))
        if not request.dry_run:
            # With an advisory key, every check is a dry run. Reject a check that does not request a dry run, so that
            # the client does not mistake the result for a decision that it must enforce.
            refuse_advisory(caller)
        decision = await gateway.checker.check(
            caller, request, raw, decision_id=decision_id, idempotency_key=retry_key
        )
        return _respond(received, decision)

    return check


def _parse(raw: bytes) -> CheckRequest:
    return read_check_request(read_object(raw), raw)


def _respond(received: PlainRequest, decision: Decision) -> PlainResponse:
    received.scope[OUTCOME] = outcome_of(decision)
    add_headers(received.scope, decision_headers(decision))
    return PlainResponse(response_body(decision))


#: JSON schemas of the request and response bodies in the OpenAPI document, by name
CHECK_SCHEMAS: dict[str, dict[str, Any]] = {
    "CheckRequest": {
        "description": "Request for a decision about a tool call. Unknown fields are ignored.",
        "type": "object",
        "required": ["agent_id", "action"],
        "properties": {
            "agent_id": TEXT | {"description": "Id of the agent that wants to perform the call, a UUID."},
            "action": ACTION
            | {
                "description": "Action that the agent wants to perform, such as `stripe.refund`: 1-255 visible ASCII "
                "characters."
            },
            "context": nullable(CONTEXT)
            | {
                "description": "Arguments of the call, which approvers see: at most 64 KiB of canonical JSON and 32 "
                "levels. `amount` is compared with the `max_amount` of the permission. An approval is bound to the "
                "whole context."
            },
            "approval_id": nullable(REFERENCE)
            | {"description": "Id of an approval request. Only this request may then allow the call."},
            "call_id": nullable(REFERENCE)
            | {
                "description": "Identifier of the call, chosen by the client: 1-255 printable characters. Checks with "
                "the same identifier belong to one approval request, which allows the call once."
            },
            "run_id": nullable(REFERENCE)
            | {
                "description": "Identifier of the agent run, chosen by the client: 1-255 printable characters. An "
                "approval is valid only for the same run."
            },
            "reason": nullable(DESCRIPTION)
            | {
                "description": "Reason for the call, at most 1,000 characters. Approvers see it. The gateway does not "
                "verify it, and an approval is not bound to it."
            },
            "dry_run": {
                "type": ["boolean", "null"],
                "default": False,
                "description": "True to receive the decision without creating or consuming an approval request.",
            },
        },
        "examples": [{"agent_id": "{agent_id}", "action": "stripe.refund", "context": {"amount": 12.5}}],
    },
    "CheckResult": {
        "title": "CheckResult",
        "description": "Decision about a tool call.",
        "type": "object",
        "required": ["allowed", "requires_approval", "reason", "approval_id"],
        "properties": {
            "allowed": {"type": "boolean", "description": "True if the agent may perform the call now."},
            "requires_approval": {
                "type": "boolean",
                "description": "True if the call needs an approval first. `allowed` is then false.",
            },
            "reason": {
                "type": ["string", "null"],
                "description": "Reason for the decision, for people; null if the call is allowed.",
            },
            "approval_id": {
                "type": ["string", "null"],
                "description": "Id of the approval request, a UUID, if the call needs an approval; otherwise null.",
            },
        },
        "examples": [
            {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None},
            {
                "allowed": False,
                "requires_approval": True,
                "reason": "Action 'stripe.refund' needs human approval",
                "approval_id": EXAMPLE_APPROVAL_ID,
            },
        ],
    },
}

CHECK = operation(
    "check",
    "Check whether a call is allowed",
    "Decide whether an agent may perform a call: the call is allowed, denied with a reason, or needs an approval.\n\n"
    "All three decisions have the status 200, even for an unknown or disabled agent, whose calls are denied. If the "
    "call needs an approval, wait for the decision with `GET /sdk/approvals/{approval_id}` and then repeat the check, "
    "which is allowed once. The header `X-Reason-Code` contains a code of the decision. A check stores no log entry. "
    "A check stores a record in the decision log (`GET /api/decisions`), unless the check is a dry run.",
    body="CheckRequest",
    answer="CheckResult",
    ok="Decision about the call.",
    headers=(
        "X-Decision-ID",
        "X-Reason-Code",
        "X-Rule-ID",
        "X-Approval-ID",
        "X-Budget-Left",
        "X-Call-Let-Through",
    ),
)
