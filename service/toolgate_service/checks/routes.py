"""ASGI endpoint of `POST /sdk/check` and its OpenAPI description.

The endpoint validates, in this order: API key, organization, source address, rate limit, body, agent, permission, amount,
approval, budgets.
"""

import asyncio
from functools import partial
from typing import Any

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
from toolgate_service.checks.records import to_record
from toolgate_service.checks.schemas import CheckRequest, read_check_request
from toolgate_service.checks.service import settle
from toolgate_service.context import AuthContext
from toolgate_service.core.clock import utcnow
from toolgate_service.core.concurrency import DEADLINE, MAX_ON_LOOP
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
from toolgate_service.core.telemetry import span
from toolgate_service.db.retry import with_retry
from toolgate_service.decisions.recorder import DecisionRecord
from toolgate_service.decisions.repository import insert_decision
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse, add_headers
from toolgate_service.http.dependencies import authenticate_api_key, load_context
from toolgate_service.http.openapi import operation

DECISION_ID = b"x-decision-id"
REASON_CODE = b"x-reason-code"
CALL_CONSUMED = b"x-call-let-through"
#: response header with the smallest amount that is left of the budgets that apply to the call
BUDGET_LEFT = b"x-budget-left"
#: response header with the id of the rule that decided, or that requires the approval
RULE_ID = b"x-rule-id"
#: response header with the id of the approved request that allows the call; a client that only made a dry run can use
#: the id to cancel the request
APPROVAL_ID = b"x-approval-id"
#: ASGI scope key of the check's outcome, for metrics and traces
OUTCOME = "toolgate.outcome"


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
        auth = await load_context(gateway, caller, request.agent_id, request.action)
        rules = await gateway.rules.find(auth)
        with span("toolgate.gateway.decide"):
            decision = decide(auth, request, rules, utcnow())
        if isinstance(decision, Denied):
            _record(gateway, decision_id, auth, request, decision)
            return _respond(received, decision)
        if isinstance(decision, Allowed) and request.approval_id is None:
            # Find out from the cache if a budget applies, because most calls need no transaction.
            budgets = await gateway.budgets.find(auth)
            if not budgets.match(auth.agent_id, request.action):
                _record(gateway, decision_id, auth, request, decision)
                return _respond(received, decision)
        database = gateway.database
        # One deadline applies to all retries of the transaction together, because the SDK waits only five seconds for
        # the response.
        deadline = asyncio.get_running_loop().time() + DEADLINE

        async def settle_in_transaction() -> tuple[
            Allowed | Denied | PendingApproval | Consumed, DecisionRecord | None
        ]:
            if request.dry_run:
                transaction = database.reading()
            else:
                transaction = database.writing(auth.organization_id, until=deadline)
            async with transaction as session:
                settled = await settle(
                    session,
                    gateway.settings,
                    gateway.rules,
                    gateway.budgets,
                    caller.key_digest,
                    request,
                    retry_key,
                    raw,
                )
                if request.dry_run:
                    return settled.decision, None
                record = to_record(decision_id, settled.auth or auth, request, settled.decision)
                stores_context = gateway.settings.decision_context_days > 0
                is_new = await insert_decision(session, record, stores_context=stores_context)
                return settled.decision, record if is_new else None

        # Build the response after the commit of the transaction, so that it never contains a decision that was not
        # stored.
        settled, record = await with_retry(settle_in_transaction)
        if record is not None:
            gateway.decisions.observe(record)
        return _respond(received, settled)

    return check


def _record(
    gateway: Gateway, decision_id: str, auth: AuthContext, request: CheckRequest, decision: Allowed | Denied
) -> None:
    """Queue the record of a check that changes nothing. It is written after the response."""
    if not request.dry_run:
        gateway.decisions.record(to_record(decision_id, auth, request, decision))


def _parse(raw: bytes) -> CheckRequest:
    return read_check_request(read_object(raw), raw)


def _respond(
    received: PlainRequest, decision: Allowed | Denied | PendingApproval | Consumed
) -> PlainResponse:
    received.scope[OUTCOME] = _outcome(decision)
    add_headers(received.scope, {REASON_CODE: reason_code(decision).encode()})
    if decision.rule_id is not None:
        add_headers(received.scope, {RULE_ID: decision.rule_id.encode()})
    if isinstance(decision, Allowed | Consumed):
        if decision.decision_id is not None:
            add_headers(received.scope, {DECISION_ID: decision.decision_id.encode()})
        if decision.budget_left is not None:
            add_headers(received.scope, {BUDGET_LEFT: decision.budget_left.encode()})
    if isinstance(decision, Consumed):
        if decision.at is Step.APPROVED and decision.by is not None:
            add_headers(received.scope, {APPROVAL_ID: decision.by.encode()})
    elif isinstance(decision, Denied) and decision.call_consumed:
        add_headers(received.scope, {CALL_CONSUMED: b"true"})
    return PlainResponse(response_body(decision))


def _outcome(decision: Allowed | Denied | PendingApproval | Consumed) -> str:
    if isinstance(decision, PendingApproval):
        return "held"
    return "blocked" if isinstance(decision, Denied) else "allowed"


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
            | {"description": "Id of the only approval request that may allow the call."},
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
    "which is allowed once. The header `X-Reason-Code` contains a code of the decision. A check stores no log entry, but "
    "a record in the decision log (`GET /api/decisions`), unless it is a dry run.",
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
