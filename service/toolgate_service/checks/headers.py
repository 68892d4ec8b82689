"""Response headers that describe a decision, and the outcome of a check as metrics and traces record it."""

from toolgate_service.checks.decide import (
    Allowed,
    AllowedByApproval,
    Decision,
    Denied,
    PendingApproval,
    Step,
    reason_code,
)

DECISION_ID = b"x-decision-id"
REASON_CODE = b"x-reason-code"
CALL_CONSUMED = b"x-call-let-through"
#: response header with the amount that remains in the budget after the call; with several budgets, the smallest amount
BUDGET_LEFT = b"x-budget-left"
#: response header with the id of the rule that decided, or that requires the approval
RULE_ID = b"x-rule-id"
#: response header with the id of the approved request that allows the call; a client that only made a dry run can use
#: the id to cancel the request
APPROVAL_ID = b"x-approval-id"
#: ASGI scope key of the check's outcome, for metrics and traces
OUTCOME = "toolgate.outcome"


def decision_headers(decision: Decision) -> dict[bytes, bytes]:
    """Return the response headers that describe a decision. Their names are in lower case."""
    headers = {REASON_CODE: reason_code(decision).encode()}
    if decision.rule_id is not None:
        headers[RULE_ID] = decision.rule_id.encode()
    if isinstance(decision, Allowed | AllowedByApproval):
        if decision.decision_id is not None:
            headers[DECISION_ID] = decision.decision_id.encode()
        if decision.budget_left is not None:
            headers[BUDGET_LEFT] = decision.budget_left.encode()
    if isinstance(decision, AllowedByApproval):
        if decision.at is Step.APPROVED and decision.by is not None:
            headers[APPROVAL_ID] = decision.by.encode()
    elif isinstance(decision, Denied) and decision.call_consumed:
        headers[CALL_CONSUMED] = b"true"
    return headers


def outcome_of(decision: Decision) -> str:
    """Return the outcome of a check in metrics and traces: `allowed`, `blocked` or `held`."""
    if isinstance(decision, PendingApproval):
        return "held"
    return "blocked" if isinstance(decision, Denied) else "allowed"
