"""Comparison of decisions with the results of a candidate policy, for replays and for shadow policies, without I/O.

A candidate is a policy that is not applied yet. Each decision is compared on its own. The candidate is evaluated for
the recorded time. The decision may also have depended on the state of the gateway at that time, which the decision log
does not contain: approvals, temporary approvals and totals of budgets. A decision is replayable if the comparison does
not need this state, mainly in these cases:

- The candidate denies the call, or allows it and no budget applies. The state then has no effect.
- The current policy and the candidate have the same result for the call, with the same terms of approval and the same
  budgets. The state then has the same effect.
- A rule or permission alone decided the call. This decision is then compared with the result of the candidate, although
  an approval or a budget could change that result.

If the candidate only makes the terms of the approval stricter, the decision is unchanged, unless the call was allowed
or a budget denied it. After other changes of the terms, the decision is not replayable, because it is unknown whether
the earlier approvals meet the new terms.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from toolgate_service.budgets.evaluation import BudgetSet, CompiledBudget
from toolgate_service.core.strict_json import Json
from toolgate_service.decisions.models import ALLOWED, DENIED
from toolgate_service.policies.evaluation import Judgement, Outcome, PolicyEvaluator
from toolgate_service.policies.models import NEWLY_ALLOWED, NEWLY_DENIED, NEWLY_HELD
from toolgate_service.rules.models import ALLOW

UNCHANGED: Final = "unchanged"
NOT_REPLAYABLE: Final = "not_replayable"

Category: TypeAlias = Literal["unchanged", "newly_allowed", "newly_held", "newly_denied", "not_replayable"]
CATEGORIES: tuple[Category, ...] = (UNCHANGED, NEWLY_ALLOWED, NEWLY_HELD, NEWLY_DENIED, NOT_REPLAYABLE)

#: reason codes of denials that do not depend on the policy: the gateway checks the key, the agent and freezes before it
#: evaluates the policy, and it denies an unknown approval id under every policy
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

AGENT_DELETED = "The agent was deleted after the decision"
TERMS_CHANGED = (
    "The candidate policy changes the terms of the approval: it is unknown whether the earlier approvals meet the "
    "new terms"
)
POLICY_CHANGED = (
    "The current policy decides the call differently than the policy at the time of the decision. The approval terms "
    "and budgets of that earlier policy are unknown"
)
IF_COVERED = "Allowed if the budgets of the candidate policy cover the call"


#: maximum number of pairs of agent and action for which a `LiveComparison` caches the difference between the policies
MAX_SCOPES = 10_000


class DecidedCall(NamedTuple):
    """Call about which the gateway has decided.

    Attributes:
        agent_id: Id of the agent; None if the environment had no agent with the requested id.
        moment: Time of the call.
        outcome: Outcome of the decision, as in the decision log.
        rule_id: Id of the rule that decided or that required the approval; None if no rule did.
    """

    agent_id: str | None
    action: str
    context: Mapping[str, Json]
    run_id: str | None
    moment: datetime
    outcome: str
    reason_code: str
    rule_id: str | None = None


class Comparison(NamedTuple):
    """Comparison of the decision about a call with the result of a candidate policy for the same call.

    Attributes:
        judgement: Result of the candidate; None if the candidate was not evaluated.
        problem: Reason why the decision is not replayable; None if it is replayable.
    """

    category: Category
    judgement: Judgement | None = None
    problem: str | None = None


_INDEPENDENT_OF_POLICY = Comparison(UNCHANGED)


def is_independent(agent_id: str | None, reason_code: str) -> bool:
    """Return whether a decision does not depend on the policy, for example because the agent is unknown."""
    return agent_id is None or reason_code in _INDEPENDENT


class PolicyComparison:
    """Comparison of decisions with the results of a candidate policy.

    The current policy is evaluated too, to find out whether an approval or a budget affected the decision.
    """

    def __init__(self, current: PolicyEvaluator, candidate: PolicyEvaluator) -> None:
        self._current = current
        self._candidate = candidate
        self._changed_budgets = _find_changes(current.budgets, candidate.budgets)

    def compare(self, call: DecidedCall, candidate: PolicyEvaluator | None = None) -> Comparison:
        """Compare the decision about a call with the result of the candidate policy.

        `candidate` replaces the evaluator of the candidate policy. It must have the same result for this call, but can
        be faster.
        """
        code, agent_id = call.reason_code, call.agent_id
        if agent_id is None or is_independent(agent_id, code):
            return _INDEPENDENT_OF_POLICY
        new = self._judge(candidate or self._candidate, agent_id, call)
        if new.outcome is Outcome.DENIED:
            return self._compare_denial(agent_id, call, new)
        if code != _ALLOWED_BY_POLICY and code not in _DENIED_BY_POLICY:
            return self._compare_with_state(agent_id, call, new)
        if new.outcome is Outcome.APPROVAL_REQUIRED:
            return Comparison(NEWLY_HELD, new)
        if code == _ALLOWED_BY_POLICY:
            return self._compare_budgets(agent_id, call, new)
        return self._newly_allowed(agent_id, call, new)

    def _compare_denial(self, agent_id: str, call: DecidedCall, new: Judgement) -> Comparison:
        """Compare a decision about a call that the candidate policy denies.

        Approvals and totals of budgets cannot change the denial.
        """
        if call.outcome == DENIED:
            return Comparison(UNCHANGED, new)
        if new.reason_code == _AGENT_NOT_FOUND:
            current = self._judge(self._current, agent_id, call)
            if current.reason_code == _AGENT_NOT_FOUND:
                return Comparison(NOT_REPLAYABLE, new, AGENT_DELETED)
        return Comparison(NEWLY_DENIED, new)

    def _compare_with_state(self, agent_id: str, call: DecidedCall, new: Judgement) -> Comparison:
        """Compare a decision that depended on approvals or totals of budgets.

        The candidate policy does not deny the call.
        """
        if new.outcome is Outcome.ALLOWED and not self._candidate.budgets.match(agent_id, call.action):
            # An approval or a budget decided at the time. Under the candidate, the call needs no approval and no budget
            # applies.
            return Comparison(NEWLY_ALLOWED, new)
        current = self._judge(self._current, agent_id, call)
        required = self._required_approval(agent_id, call, current)
        over_budget = call.reason_code == _BUDGET_EXCEEDED
        if new.outcome is Outcome.ALLOWED:
            if over_budget or required is False:
                return self._compare_budgets(agent_id, call, new)
            if required:
                return self._newly_allowed(agent_id, call, new)
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        if required is None:
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        if over_budget and not required:
            return Comparison(NEWLY_HELD, new)
        changed = self._changed_budget(agent_id, call.action)
        if changed is not None:
            return Comparison(NOT_REPLAYABLE, new, changed)
        return _compare_terms(call, current, new, is_required=required)

    def _judge(self, policy: PolicyEvaluator, agent_id: str, call: DecidedCall) -> Judgement:
        return policy.judge(agent_id, call.action, call.context, call.run_id, call.moment)

    def _required_approval(self, agent_id: str, call: DecidedCall, current: Judgement) -> bool | None:
        """Return whether a permission or rule required an approval at the time of the decision.

        False means that a budget required the approval or denied the call. None means that the reason is unknown,
        because the policy was changed since then.
        """
        if call.rule_id is not None or call.reason_code == _TEMPORARY_APPROVAL:
            return True
        if current.outcome is Outcome.APPROVAL_REQUIRED:
            return True
        if current.outcome is Outcome.ALLOWED and self._current.budgets.match(agent_id, call.action):
            return False
        return None

    def _compare_budgets(self, agent_id: str, call: DecidedCall, new: Judgement) -> Comparison:
        """Compare a decision about a call that both policies allow, provided that their budgets cover the call."""
        if not self._candidate.budgets.match(agent_id, call.action):
            return Comparison(UNCHANGED, new)
        changed = self._changed_budget(agent_id, call.action)
        return Comparison(UNCHANGED, new) if changed is None else Comparison(NOT_REPLAYABLE, new, changed)

    def _changed_budget(self, agent_id: str, action: str) -> str | None:
        """Return a description of a budget that differs between the policies and applies to a call, or None."""
        if not self._changed_budgets:
            return None
        for budget in self._applying(agent_id, action):
            if budget.name in self._changed_budgets:
                return (
                    f"Budget '{budget.name}' was changed: the totals of the budget at that time are unknown"
                )
        return None

    def _applying(self, agent_id: str, action: str) -> Iterator[CompiledBudget]:
        yield from self._candidate.budgets.match(agent_id, action)
        yield from self._current.budgets.match(agent_id, action)

    def _newly_allowed(self, agent_id: str, call: DecidedCall, new: Judgement) -> Comparison:
        if self._candidate.budgets.match(agent_id, call.action):
            new = replace(new, reason=IF_COVERED)
        return Comparison(NEWLY_ALLOWED, new)


def _compare_terms(call: DecidedCall, current: Judgement, new: Judgement, *, is_required: bool) -> Comparison:
    """Compare a decision that depended on approvals or totals of budgets, by the terms of the approval.

    The candidate policy requires an approval for the call, and both policies have the same budgets for the call.
    `is_required` is True if a permission or rule required an approval at the time of the decision.
    """
    if current.terms is None or new.terms is None:
        # If `is_required` is False, only a budget could require an approval. The candidate is stricter, because it
        # always requires one.
        if is_required:
            return Comparison(NOT_REPLAYABLE, new, POLICY_CHANGED)
        is_same, is_stricter = False, True
    else:
        is_same = new.terms == current.terms
        is_stricter = new.terms.is_stricter_or_equal(current.terms)
    was_allowed = call.outcome == ALLOWED
    # If a budget denied an approved call, and the approval does not meet the new terms, the call would wait for another
    # approval instead.
    needs_same = was_allowed or call.reason_code == _BUDGET_EXCEEDED
    if is_same or (is_stricter and not needs_same):
        return Comparison(UNCHANGED, new)
    return Comparison(NOT_REPLAYABLE, new, TERMS_CHANGED)


def _find_changes(current: BudgetSet, candidate: BudgetSet) -> frozenset[str]:
    """Return the names of the budgets that are not equal in both policies."""
    before, after = _by_name(current.budgets), _by_name(candidate.budgets)
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _by_name(budgets: Sequence[CompiledBudget]) -> Mapping[str, CompiledBudget]:
    return {budget.name: replace(budget, actions=tuple(sorted(set(budget.actions)))) for budget in budgets}


class LiveComparison:
    """Comparison like `PolicyComparison`, but faster: it evaluates only the differences between the two policies.

    If the two policies are equivalent for an agent and action, nothing is evaluated. If the current policy allowed a
    call, none of its `forbid` and `require_approval` rules matched, so equal rules of the candidate policy are not
    evaluated.
    """

    def __init__(self, candidate: PolicyEvaluator, current: PolicyEvaluator) -> None:
        self._candidate = candidate
        self._current = current
        self._comparison = PolicyComparison(current, candidate)
        #: evaluators of the candidate by agent and action, for calls that the current policy allowed: without the
        #: `forbid` and `require_approval` rules that the current policy also has; None if the policies are equivalent
        self._reduced: dict[tuple[str, str], PolicyEvaluator | None] = {}

    def is_equivalent(self, agent_id: str, action: str) -> bool:
        """Return whether both policies have the same result for every call of an agent and action."""
        return self._reduce(agent_id, action) is None

    def compare(self, call: DecidedCall, *, is_current: bool) -> Comparison:
        """Return the same result as `PolicyComparison.compare`.

        `is_current` is False if the decision was made under an earlier version of the current policy.
        """
        candidate = None
        if is_current and call.reason_code == _ALLOWED_BY_POLICY and call.agent_id is not None:
            candidate = self._reduce(call.agent_id, call.action)
        return self._comparison.compare(call, candidate)

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
