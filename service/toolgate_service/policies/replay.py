"""Comparison of recorded decisions with the results of a candidate policy, without I/O.

Each decision is judged alone, in the state that the gateway had then: with the same approvals, temporary approvals and
totals of budgets. The candidate is evaluated at the recorded time. The log does not contain this state, so a decision
is not replayable if its result under the candidate depends on the state in another way than the recorded result did:

- If the candidate denies the call, or allows it and no budget applies, the state has no effect.
- If the current policy and the candidate have the same result for the call, with the same terms of approval and the
  same budgets, the state has the same effect.
- If the candidate denies, holds or allows a call that was decided by a rule or permission alone, the result of the
  policy is compared, although an approval or a budget could change it again.

The result of a call for which only the terms of the approval become stricter is unchanged if the call was not allowed
at the time. With other changes of the terms, it is not replayable, because approvals of that time were given under
other terms.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from toolgate_service.budgets.evaluation import BudgetSet, CompiledBudget, InvalidAmount
from toolgate_service.core.strict_json import Json, canonical, digest, loads_own
from toolgate_service.decisions.models import ALLOWED, DENIED
from toolgate_service.decisions.recorder import MAX_CONTEXT
from toolgate_service.decisions.repository import RecordedDecision
from toolgate_service.policies.evaluation import Judgement, Outcome, PolicyEvaluator
from toolgate_service.policies.models import NEWLY_ALLOWED, NEWLY_DENIED, NEWLY_HELD

UNCHANGED: Final = "unchanged"
NOT_REPLAYABLE: Final = "not_replayable"

Category: TypeAlias = Literal["unchanged", "newly_allowed", "newly_held", "newly_denied", "not_replayable"]
CATEGORIES: tuple[Category, ...] = (UNCHANGED, NEWLY_ALLOWED, NEWLY_HELD, NEWLY_DENIED, NOT_REPLAYABLE)

#: reason codes of denials that do not depend on the policy: the key, the agent and freezes are examined before it, and
#: an unknown approval id is denied by each policy
_INDEPENDENT = frozenset({"api_key_revoked", "agent_not_found", "frozen", "approval_not_found"})
#: reason codes of denials that depend only on the policy, the call and the time
_DENIED_BY_POLICY = frozenset(
    {
        "agent_disabled",
        "forbidden_by_rule",
        "no_permission",
        "amount_missing",
        "amount_invalid",
        "amount_exceeded",
        "budget_amount_invalid",
    }
)
_ALLOWED_BY_POLICY = "allowed"
_BUDGET_EXCEEDED = "budget_exceeded"
_TEMPORARY_APPROVAL = "temporary_approval"
_AGENT_NOT_FOUND = "agent_not_found"

NO_CONTEXT = (
    f"The arguments are not stored: they are longer than {MAX_CONTEXT:,} characters, or older than "
    "TOOLGATE_DECISION_CONTEXT_DAYS"
)
OTHER_CONTEXT = "The stored arguments do not have the recorded digest"
AGENT_DELETED = "The agent was deleted after the decision"
TERMS_CHANGED = "The candidate changes the terms of the approval: it is unknown whether the approvals of that time meet them"
POLICY_CHANGED = (
    "The current policy has another result for the call than the policy of that time, whose terms of approval and "
    "budgets are unknown"
)
IF_COVERED = "Allowed if its budgets cover the call"


class Comparison(NamedTuple):
    """Result of a candidate for a recorded decision.

    Attributes:
        judgement: Result of the candidate; None if the candidate was not evaluated.
        problem: Reason why the decision is not replayable; None if it is.
    """

    category: Category
    judgement: Judgement | None = None
    problem: str | None = None


_INDEPENDENT_OF_POLICY = Comparison(UNCHANGED)


class PolicyComparison:
    """Current policy and a candidate, which are compared for recorded decisions."""

    def __init__(self, current: PolicyEvaluator, candidate: PolicyEvaluator) -> None:
        self._current = current
        self._candidate = candidate
        self._changed_budgets = _find_changes(current.budgets, candidate.budgets)

    def compare(self, decision: RecordedDecision) -> Comparison:
        """Return the result of the candidate for a recorded decision, compared with the recorded result."""
        code, agent_id = decision.reason_code, decision.agent_id
        if code in _INDEPENDENT or agent_id is None:
            return _INDEPENDENT_OF_POLICY
        if decision.context is None:
            return Comparison(NOT_REPLAYABLE, problem=NO_CONTEXT)
        args = _read_context(decision.context, decision.context_digest)
        if args is None:
            return Comparison(NOT_REPLAYABLE, problem=OTHER_CONTEXT)
        new = self._judge(self._candidate, agent_id, decision, args)
        if new.outcome is Outcome.DENIED:
            return self._compare_denial(agent_id, decision, args, new)
        if code != _ALLOWED_BY_POLICY and code not in _DENIED_BY_POLICY:
            return self._compare_with_state(agent_id, decision, args, new)
        if new.outcome is Outcome.APPROVAL_REQUIRED:
            return Comparison(NEWLY_HELD, new)
        if code == _ALLOWED_BY_POLICY:
            return self._compare_budgets(agent_id, decision, new)
        return self._newly_allowed(agent_id, decision, new)

    def _compare_denial(
        self, agent_id: str, decision: RecordedDecision, args: Mapping[str, Json], new: Judgement
    ) -> Comparison:
        """Compare a decision about a call that the candidate denies, whatever the state is."""
        if decision.outcome == DENIED:
            return Comparison(UNCHANGED, new)
        if new.reason_code == _AGENT_NOT_FOUND:
            current = self._judge(self._current, agent_id, decision, args)
            if current.reason_code == _AGENT_NOT_FOUND:
                return Comparison(NOT_REPLAYABLE, new, AGENT_DELETED)
        return Comparison(NEWLY_DENIED, new)

    def _compare_with_state(
        self, agent_id: str, decision: RecordedDecision, args: Mapping[str, Json], new: Judgement
    ) -> Comparison:
        """Compare a decision that depended on approvals or on totals of budgets. The candidate does not deny the call."""
        if new.outcome is Outcome.ALLOWED and not self._candidate.budgets.match(agent_id, decision.action):
            # An approval or a budget decided at the time, and neither is necessary under the candidate.
            return Comparison(NEWLY_ALLOWED, new)
        current = self._judge(self._current, agent_id, decision, args)
        required = self._required_approval(agent_id, decision, current)
        over_budget = decision.reason_code == _BUDGET_EXCEEDED
        if new.outcome is Outcome.ALLOWED:
            if over_budget or required is False:
                return self._compare_budgets(agent_id, decision, new)
            if required:
                return self._newly_allowed(agent_id, decision, new)
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        if required is None:
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        if over_budget and not required:
            return Comparison(NEWLY_HELD, new)
        changed = self._changed_budget(agent_id, decision.action)
        if changed is not None:
            return Comparison(NOT_REPLAYABLE, new, changed)
        return _compare_terms(decision, current, new, is_required=required)

    def _judge(
        self, policy: PolicyEvaluator, agent_id: str, decision: RecordedDecision, args: Mapping[str, Json]
    ) -> Judgement:
        """Return the result of a policy, which also denies calls without the amounts that its budgets need."""
        judged = policy.judge(agent_id, decision.action, args, decision.run_id, decision.created_at)
        if judged.outcome is not Outcome.DENIED:
            for budget in policy.budgets.match(agent_id, decision.action):
                try:
                    budget.measure(args)
                except InvalidAmount as error:
                    return Judgement(Outcome.DENIED, "budget_amount_invalid", str(error))
        return judged

    def _required_approval(
        self, agent_id: str, decision: RecordedDecision, current: Judgement
    ) -> bool | None:
        """Return whether a permission or rule required an approval then; None if the policy was changed since.

        Otherwise a budget required the approval, or denied the call.
        """
        if decision.rule_id is not None or decision.reason_code == _TEMPORARY_APPROVAL:
            return True
        if current.outcome is Outcome.APPROVAL_REQUIRED:
            return True
        if current.outcome is Outcome.ALLOWED and self._current.budgets.match(agent_id, decision.action):
            return False
        return None

    def _compare_budgets(self, agent_id: str, decision: RecordedDecision, new: Judgement) -> Comparison:
        """Compare a decision for a call that both policies allow if budgets cover it."""
        if not self._candidate.budgets.match(agent_id, decision.action):
            return Comparison(UNCHANGED, new)
        changed = self._changed_budget(agent_id, decision.action)
        return Comparison(UNCHANGED, new) if changed is None else Comparison(NOT_REPLAYABLE, new, changed)

    def _changed_budget(self, agent_id: str, action: str) -> str | None:
        """Return a description of a budget that differs between the policies and applies to a call, or None."""
        if not self._changed_budgets:
            return None
        for budget in self._applying(agent_id, action):
            if budget.name in self._changed_budgets:
                return f"Budget '{budget.name}' was changed: its totals at that time are unknown"
        return None

    def _applying(self, agent_id: str, action: str) -> Iterator[CompiledBudget]:
        yield from self._candidate.budgets.match(agent_id, action)
        yield from self._current.budgets.match(agent_id, action)

    def _newly_allowed(self, agent_id: str, decision: RecordedDecision, new: Judgement) -> Comparison:
        if self._candidate.budgets.match(agent_id, decision.action):
            new = replace(new, reason=IF_COVERED)
        return Comparison(NEWLY_ALLOWED, new)


def _compare_terms(
    decision: RecordedDecision, current: Judgement, new: Judgement, *, is_required: bool
) -> Comparison:
    """Compare a decision of the approval flow, if the candidate requires an approval and no budget was changed."""
    if current.terms is None or new.terms is None:
        # If a budget required the approval, the candidate is stricter, because it always requires an approval.
        if is_required:
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        is_same, is_stricter = False, True
    else:
        is_same = new.terms == current.terms
        is_stricter = new.terms.is_stricter_or_equal(current.terms)
    was_allowed = decision.outcome == ALLOWED
    # A call that was denied because its approval would have exceeded a budget is held if the approval no longer
    # suffices.
    needs_same = was_allowed or decision.reason_code == _BUDGET_EXCEEDED
    if is_same or (is_stricter and not needs_same):
        return Comparison(UNCHANGED, new)
    return Comparison(NOT_REPLAYABLE, new, TERMS_CHANGED)


def _read_context(text: str, expected: str) -> Mapping[str, Json] | None:
    """Return the arguments in a stored text; None if they do not have the recorded digest."""
    try:
        args = loads_own(text)
    except ValueError:
        return None
    if not isinstance(args, dict):
        return None
    # The digest is that of the canonical text, which differs from the stored text only by the types of numbers.
    if digest(text) == expected or digest(canonical(args)) == expected:
        return args
    return None


def _find_changes(current: BudgetSet, candidate: BudgetSet) -> frozenset[str]:
    """Return the names of the budgets that are not equal in both policies."""
    before, after = _by_name(current.budgets), _by_name(candidate.budgets)
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _by_name(budgets: Sequence[CompiledBudget]) -> Mapping[str, CompiledBudget]:
    return {budget.name: replace(budget, actions=tuple(sorted(set(budget.actions)))) for budget in budgets}
