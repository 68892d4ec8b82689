"""Records of checks for the decision log."""

from toolgate_service.checks.decide import (
    Allowed,
    AllowedByApproval,
    Denied,
    PendingApproval,
    Step,
    reason_code,
)
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.decisions.models import ALLOWED, APPROVAL_REQUIRED, DENIED
from toolgate_service.decisions.recorder import DecisionRecord

_OUTCOMES = {Allowed: ALLOWED, AllowedByApproval: ALLOWED, Denied: DENIED, PendingApproval: APPROVAL_REQUIRED}
#: steps after `APPROVAL_ID`: if one of them denies a check with an `approval_id`, this approval request exists
_AFTER_APPROVAL_ID = frozenset(
    {Step.BUDGET_AMOUNT, Step.BUDGET, Step.CALL_ID, Step.APPROVED, Step.OPEN, Step.DENIED}
)


def to_record(
    decision_id: str,
    auth: AuthContext,
    request: CheckRequest,
    decision: Allowed | Denied | PendingApproval | AllowedByApproval,
) -> DecisionRecord:
    """Return the record of a decision.

    A decision that consumed an approval or reserved an amount has an id. Every other decision receives `decision_id`.
    """
    approval_id = None
    if isinstance(decision, Allowed):
        decision_id = decision.decision_id or decision_id
    elif isinstance(decision, AllowedByApproval):
        decision_id, approval_id = decision.decision_id, decision.approval_id
    elif isinstance(decision, PendingApproval):
        approval_id = decision.approval_id
    elif decision.at in _AFTER_APPROVAL_ID:
        approval_id = request.approval_id
    return DecisionRecord(
        decision_id,
        auth,
        request.agent_id,
        request.action,
        request.run_id,
        request.call_id,
        request.context,
        request.canonical_text,
        _OUTCOMES[type(decision)],
        reason_code(decision),
        decision.rule_id,
        approval_id,
    )
