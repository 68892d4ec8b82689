"""ASGI endpoint of `POST /sdk/check` and its OpenAPI description.

The endpoint validates, in this order: API key, organization, source address, rate limit, body, agent, permission, amount,
approval.
"""

import asyncio
from functools import partial

from toolgate_service.checks.decide import (
    Allowed,
    Consumed,
    Denied,
    PendingApproval,
    Step,
    decide,
    reason_code,
    response_body,
)
from toolgate_service.checks.schemas import CheckRequest, read_check_request
from toolgate_service.checks.service import settle
from toolgate_service.core.concurrency import DEADLINE, MAX_ON_LOOP
from toolgate_service.core.ids import new_id
from toolgate_service.core.schemas import ACTION, CONTEXT, DESCRIPTION, REFERENCE, TEXT, nullable
from toolgate_service.core.sdk_fields import idempotency_key
from toolgate_service.core.strict_json import read_object
from toolgate_service.core.telemetry import span
from toolgate_service.db.retry import with_retry
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse, add_headers
from toolgate_service.http.dependencies import authenticate_api_key, load_context
from toolgate_service.http.openapi import operation

DECISION_ID = b"x-decision-id"
REASON_CODE = b"x-reason-code"
CALL_CONSUMED = b"x-call-let-through"
#: response header with the id of the approved request that allows the call; after a dry run, the caller may cancel this
#: request
APPROVAL_ID = b"x-approval-id"
#: key in the ASGI scope under which metrics and traces find the outcome of a check
OUTCOME = "toolgate.outcome"


def check_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /sdk/check`."""

    async def check(received: PlainRequest) -> PlainResponse:
        # Error responses also contain a decision id, so that the client can put it into its log entry.
        add_headers(received.scope, {DECISION_ID: new_id().encode()})
        caller = await authenticate_api_key(received.scope, gateway, "actions")
        raw = await received.read()
        if len(raw) <= MAX_ON_LOOP:
            request = _parse(raw)
        else:
            request = await gateway.parser.run(len(raw), partial(_parse, raw))
        retry_key = idempotency_key(received.header(b"idempotency-key"))
        auth = await load_context(gateway, caller, request.agent_id, request.action)
        with span("toolgate.gateway.decide"):
            decision = decide(auth, request.agent_id, request.action, request.context)
        if isinstance(decision, Denied) or (isinstance(decision, Allowed) and request.approval_id is None):
            return _respond(received, decision)
        database = gateway.database
        # All retries of the transaction share one deadline, because the SDK waits only five seconds for the response.
        deadline = asyncio.get_running_loop().time() + DEADLINE

        async def settle_in_transaction() -> Allowed | Denied | PendingApproval | Consumed:
            if request.dry_run:
                transaction = database.reading()
            else:
                transaction = database.writing(auth.organization_id, until=deadline)
            async with transaction as session:
                return await settle(session, gateway.settings, caller.key_digest, request, retry_key, raw)

        # Build the response after the commit of the transaction, so that it never contains a decision that was not
        # stored.
        return _respond(received, await with_retry(settle_in_transaction))

    return check


def _parse(raw: bytes) -> CheckRequest:
    return read_check_request(read_object(raw), raw)


def _respond(
    received: PlainRequest, decision: Allowed | Denied | PendingApproval | Consumed
) -> PlainResponse:
    received.scope[OUTCOME] = _outcome(decision)
    add_headers(received.scope, {REASON_CODE: reason_code(decision).encode()})
    if isinstance(decision, Consumed):
        add_headers(received.scope, {DECISION_ID: decision.decision_id.encode()})
        if decision.at is Step.APPROVED and decision.by is not None:
            add_headers(received.scope, {APPROVAL_ID: decision.by.encode()})
    elif isinstance(decision, Denied) and decision.call_consumed:
        add_headers(received.scope, {CALL_CONSUMED: b"true"})
    return PlainResponse(response_body(decision))


def _outcome(decision: Allowed | Denied | PendingApproval | Consumed) -> str:
    if isinstance(decision, PendingApproval):
        return "held"
    return "blocked" if isinstance(decision, Denied) else "allowed"


_REQUEST_BODY = {
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
    body=_REQUEST_BODY,
    answer=_RESULT,
    headers=("X-Decision-ID", "X-Reason-Code", "X-Call-Let-Through"),
)
