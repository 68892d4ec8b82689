"""Comparison of decisions with the results of a candidate policy, for the replay and for shadow policies.

A decision also depends on the state of the gateway: freezes, approvals, and the totals of budgets. The comparison claims
a result only if this state cannot change it. All other calls are not replayable.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from toolgate_service.budgets.evaluation import CompiledBudget
from toolgate_service.core.strict_json import Json
from toolgate_service.decisions.models import APPROVAL_REQUIRED, DENIED
from toolgate_service.policies.evaluation import Judgement, Outcome, PolicyEvaluator
from toolgate_service.policies.models import NEWLY_ALLOWED, NEWLY_DENIED, NEWLY_HELD

UNCHANGED = "unchanged"
NOT_REPLAYABLE = "not_replayable"
#: all results of a comparison
RESULTS = (UNCHANGED, NEWLY_ALLOWED, NEWLY_HELD, NEWLY_DENIED, NOT_REPLAYABLE)

#: reason codes of denials that no policy changes
_INDEPENDENT = frozenset({"api_key_revoked", "agent_not_found", "frozen"})
#: reason codes of denials that follow from the policy and the arguments alone
_STATIC = frozenset(
    {"agent_disabled", "forbidden_by_rule", "no_permission", "amount_missing", "amount_invalid", "amount_exceeded"}
)  # fmt: skip
_ALLOWED = "allowed"


class DecidedCall(NamedTuple):
    """Call about which the gateway has decided.

    Attributes:
        agent_id: Id of the agent; None if the environment had no agent with the requested id.
        moment: Time of the decision.
        outcome: Outcome of the decision, as in the decision log.
    """

    agent_id: str | None
    action: str
    context: Mapping[str, Json]
    run_id: str | None
    moment: datetime
    outcome: str
    reason_code: str


def compare_call(
    call: DecidedCall, candidate: PolicyEvaluator, current: PolicyEvaluator
) -> tuple[str, Judgement | None]:
    """Return the result of the comparison, and the candidate's judgement; None if it was not needed.

    The current policy is evaluated only if the decision depends on approvals or budgets.
    """
    if call.agent_id is None or call.reason_code in _INDEPENDENT:
        return UNCHANGED, None
    arguments = (call.agent_id, call.action, call.context, call.run_id, call.moment)
    judgement = candidate.judge(*arguments)
    if judgement.outcome is Outcome.DENIED:
        return UNCHANGED if call.outcome == DENIED else NEWLY_DENIED, judgement
    if call.reason_code in _STATIC:
        return _difference(judgement.outcome), judgement
    new, old = (_budgets(one, call.agent_id, call.action) for one in (candidate, current))
    if call.reason_code == _ALLOWED:
        if judgement.outcome is not Outcome.ALLOWED:
            return NEWLY_HELD, judgement
        return UNCHANGED if new == old else NOT_REPLAYABLE, judgement
    if new == old and _agree(call, judgement, current.judge(*arguments)):
        return UNCHANGED, judgement
    if not new and not old and call.outcome == APPROVAL_REQUIRED and judgement.outcome is Outcome.ALLOWED:
        return NEWLY_ALLOWED, judgement
    return NOT_REPLAYABLE, judgement


def _difference(outcome: Outcome) -> str:
    return NEWLY_ALLOWED if outcome is Outcome.ALLOWED else NEWLY_HELD


def _agree(call: DecidedCall, candidate: Judgement, current: Judgement) -> bool:
    """Return whether both policies lead to the decision about a call that depends on approvals or budgets."""
    if candidate.outcome != current.outcome:
        return False
    # Other terms of the approval do not matter for a call that waits for an approval, but they may for one that used it.
    return candidate.terms == current.terms or call.outcome == APPROVAL_REQUIRED


def _budgets(policy: PolicyEvaluator, agent_id: str, action: str) -> tuple[CompiledBudget, ...]:
    """Return the budgets that apply to a call, in a form that is equal for budgets with the same meaning."""
    return tuple(
        replace(budget, actions=tuple(sorted(budget.actions)))
        for budget in policy.budgets.match(agent_id, action)
    )
