"""Comparison of decisions with the results of a candidate policy, for the replay and for shadow policies.

A decision also depends on the state of the gateway: freezes, approvals, and the totals of budgets. The comparison claims
a result only if this state cannot change it. All other calls are not replayable.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from toolgate_service.core.strict_json import Json
from toolgate_service.decisions.models import APPROVAL_REQUIRED, DENIED
from toolgate_service.policies.evaluation import Judgement, Outcome, PolicyEvaluator
from toolgate_service.policies.models import NEWLY_ALLOWED, NEWLY_DENIED, NEWLY_HELD
from toolgate_service.rules.models import ALLOW

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
#: maximum number of pairs of agent and action for which a comparison keeps how the policies differ
MAX_SCOPES = 10_000


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
    new, old = (one.relevant_budgets(call.agent_id, call.action) for one in (candidate, current))
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


class LiveComparison:
    """Comparison of decisions of the current policy with a candidate, which evaluates only what differs.

    If the two policies are equivalent for an agent and action, nothing is evaluated. If the current policy allowed a
    call, none of its `forbid` and `require_approval` rules matched, so these rules are not evaluated again.
    """

    def __init__(self, candidate: PolicyEvaluator, current: PolicyEvaluator) -> None:
        self._candidate = candidate
        self._current = current
        #: by agent and action: the candidate without the rules that do not match calls which the current policy allowed;
        #: None if the policies are equivalent
        self._reduced: dict[tuple[str, str], PolicyEvaluator | None] = {}

    def is_equivalent(self, agent_id: str, action: str) -> bool:
        """Return whether both policies have the same result for every call of an agent and action."""
        return self._reduce(agent_id, action) is None

    def compare(self, call: DecidedCall, *, is_current: bool) -> tuple[str, Judgement | None]:
        """Return the same as `compare_call`. `is_current` is false if an earlier policy decided about the call."""
        candidate = self._candidate
        if is_current and call.reason_code == _ALLOWED and call.agent_id is not None:
            candidate = self._reduce(call.agent_id, call.action) or candidate
        return compare_call(call, candidate, self._current)

    def _reduce(self, agent_id: str, action: str) -> PolicyEvaluator | None:
        key = (agent_id, action)
        if key not in self._reduced:
            if len(self._reduced) >= MAX_SCOPES:
                self._reduced.clear()
            new, old = (one.relevant_parts(agent_id, action) for one in (self._candidate, self._current))
            conditions = {(rule.effect, rule.condition) for rule in old.rules if rule.effect != ALLOW}
            rules = [rule for rule in new.rules if (rule.effect, rule.condition) not in conditions]
            self._reduced[key] = None if new.is_equivalent(old) else self._candidate.with_rules(rules)
        return self._reduced[key]
