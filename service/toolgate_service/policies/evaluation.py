"""Evaluation of a policy document against calls, without I/O.

The evaluator compiles a document into the data that the gateway uses for a check, and calls the same function `decide`.
It therefore returns what a check would return, except for what depends on the state of the gateway: existing approvals,
freezes, and the totals of budgets.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from toolgate_service.agents.models import ACTIVE, INACTIVE
from toolgate_service.budgets.evaluation import BudgetSet, CompiledBudget, InvalidAmount, measured_argument
from toolgate_service.budgets.windows import parse_window
from toolgate_service.checks.decide import (
    Allowed,
    ApprovalRequired,
    Denied,
    call_variables,
    decide,
    reason_code,
)
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.core.strict_json import Json
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.document import PolicyAgent, PolicyDocument, resolve_agents
from toolgate_service.rules.evaluation import CompiledRule, Condition, RuleSet, RuleTerms
from toolgate_service.rules.expressions import compile_expression
from toolgate_service.rules.schemas import NewRule

#: maximum number of pairs of agent and action for which the evaluator caches the `AuthContext`
MAX_CONTEXTS = 10_000

Decision: TypeAlias = Allowed | Denied | ApprovalRequired


class Outcome(IntEnum):
    """Result of a policy for a call. The values are ordered from the strictest to the most lenient."""

    DENIED = 0
    APPROVAL_REQUIRED = 1
    ALLOWED = 2

    @property
    def label(self) -> Literal["denied", "approval_required", "allowed"]:
        """Name of the outcome in the API."""
        return _LABELS[self]


_LABELS: Mapping[Outcome, Literal["denied", "approval_required", "allowed"]] = {
    Outcome.DENIED: "denied",
    Outcome.APPROVAL_REQUIRED: "approval_required",
    Outcome.ALLOWED: "allowed",
}


@dataclass(frozen=True, slots=True)
class JudgementTerms:
    """Terms of the approval that a call needs. Each term is the strictest one of the permission and the matching rules.

    Attributes:
        quorum: Number of different users who must approve.
        seconds: Time in seconds in which a request must be decided; None if neither the permission nor a rule limits
            it.
        uses_default: True if the gateway's setting also limits the time, because the permission does not limit it.
        approvers: E-mail addresses or ids of the only users who may approve; None if every user with the right to
            approve may.
        separation_of_duties: True if the creators of the agent and of the permission must not approve.
    """

    quorum: int
    seconds: int | None
    uses_default: bool
    approvers: frozenset[str] | None
    separation_of_duties: bool

    def is_stricter_or_equal(self, other: "JudgementTerms") -> bool:
        """Return whether no term is more lenient than in `other`, for every default time limit of the gateway."""
        approvers = other.approvers is None or (
            self.approvers is not None and self.approvers <= other.approvers
        )
        return (
            self.quorum >= other.quorum
            and (self.separation_of_duties or not other.separation_of_duties)
            and approvers
            and self.uses_default == other.uses_default
            and (other.seconds is None or (self.seconds is not None and self.seconds <= other.seconds))
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of a policy for a call.

    Attributes:
        reason: Reason that the agent receives; None if the call is allowed.
        rule: Name of the rule that decided; None if no rule did.
        terms: Terms of the approval; None if the outcome is not `APPROVAL_REQUIRED`.
    """

    outcome: Outcome
    reason_code: str
    reason: str | None = None
    rule: str | None = None
    terms: JudgementTerms | None = None

    def is_more_lenient(self, other: "Judgement") -> bool:
        """Return whether this result is more lenient than `other`: in its outcome, or in a term of the approval."""
        if self.outcome != other.outcome or self.terms is None or other.terms is None:
            return self.outcome > other.outcome
        return not self.terms.is_stricter_or_equal(other.terms)


class RelevantParts(NamedTuple):
    """Parts of a policy that apply to calls of one agent and action.

    Attributes:
        agent: Name of the agent, and whether it is enabled; None if the policy does not contain it.
    """

    agent: tuple[str, bool] | None
    permission: NewPermission | None
    rules: tuple[CompiledRule, ...]
    budgets: tuple[CompiledBudget, ...]

    @property
    def effects(self) -> frozenset[tuple[str, Condition | None, RuleTerms]]:
        """Effect, condition and terms of each rule. Rules that differ only in their names have equal entries."""
        return frozenset((rule.effect, rule.condition, rule.terms) for rule in self.rules)

    def is_equivalent(self, other: "RelevantParts") -> bool:
        """Return whether the parts of two policies are equal, except for the ids and names of rules.

        Both policies then have the same result for every call of the agent and action.
        """
        return (
            self.agent == other.agent
            and self.permission == other.permission
            and self.budgets == other.budgets
            and self.effects == other.effects
        )


class PolicyEvaluator:
    """Evaluator of calls against one policy document, which it compiles once.

    Args:
        policy: Valid document.
        agent_ids: Mapping from the unique names and the ids of existing agents to their ids. For an agent that does not
            exist yet, the evaluator uses the name as the id.
    """

    def __init__(self, policy: PolicyDocument, agent_ids: Mapping[str, str] | None = None) -> None:
        self._resolved = resolve_agents(policy, agent_ids or {})
        self._agents: dict[str, PolicyAgent] = dict(zip(self._resolved.ids, policy.agents, strict=True))
        self._permissions = {
            (agent_id, permission.action): permission
            for agent_id, agent in self._agents.items()
            for permission in agent.permissions
        }
        self.rules = RuleSet(
            self._compile_rule(index, rule) for index, rule in enumerate(policy.rules) if rule.enabled
        )
        self.budgets = BudgetSet(
            CompiledBudget(
                budget.name,
                budget.name,
                budget.scope,
                self._resolved.ids_of(budget.agents),
                tuple(dict.fromkeys(budget.actions)),
                measured_argument(budget.measure),
                budget.currency_arg,
                parse_window(budget.window),
                budget.limit,
                budget.at_limit,
            )
            for budget in policy.budgets
            if budget.enabled
        )
        self._names = {_rule_id(index): rule.name for index, rule in enumerate(policy.rules)}
        self._contexts: dict[tuple[str, str], AuthContext] = {}

    def agent_id(self, reference: str) -> str | None:
        """Return the id of the agent with this name or id in the document; None if none or several have it."""
        if reference in self._agents:
            return reference
        found = self._resolved.references.get(reference)
        if found is None:
            named = [agent_id for agent_id, agent in self._agents.items() if agent.name == reference]
            found = named[0] if len(named) == 1 else None
        return found

    def relevant_parts(self, agent_id: str, action: str) -> "RelevantParts":
        """Return the parts of the policy that apply to calls of an agent and action."""
        agent = self._agents.get(agent_id)
        return RelevantParts(
            None if agent is None else (agent.name, agent.enabled),
            self._permissions.get((agent_id, action)),
            tuple(rule for rule in self.rules.rules if rule.applies_to(agent_id, action)),
            self.relevant_budgets(agent_id, action),
        )

    def find_requiring_rules(
        self, agent_id: str, action: str, context: Mapping[str, Json], run_id: str | None, moment: datetime
    ) -> frozenset[str]:
        """Return the names of all rules that require an approval for a call; none if a rule forbids the call."""
        request = CheckRequest(agent_id, action, context, None, None, run_id, dry_run=False)
        variables = call_variables(self._auth_context(agent_id, action), request, moment)
        return frozenset(self._names[rule.id] for rule in self.rules.match(agent_id, variables).requiring)

    def relevant_budgets(self, agent_id: str, action: str) -> tuple[CompiledBudget, ...]:
        """Return the budgets that apply to calls of an agent and action, with sorted actions."""
        # The order of the actions has no meaning. Sort them, so that budgets that differ only in this order are equal.
        return tuple(
            replace(budget, actions=tuple(sorted(budget.actions)))
            for budget in self.budgets.match(agent_id, action)
        )

    def with_rules(self, rules: Iterable[CompiledRule]) -> "PolicyEvaluator":
        """Return an evaluator of the same policy, with `rules` in place of all rules of the policy."""
        other = copy(self)
        other.rules = RuleSet(rules)
        return other

    def judge(
        self, agent_id: str, action: str, context: Mapping[str, Json], run_id: str | None, moment: datetime
    ) -> Judgement:
        """Return the result of the policy for a call of the agent with this id.

        Unlike in `decide`, a call is also denied if its arguments do not contain the amount or the currency that a
        budget needs.
        """
        decision = self.decide(agent_id, action, context, run_id, moment)
        rule = None if decision.rule_id is None else self._names[decision.rule_id]
        if isinstance(decision, Denied):
            return Judgement(Outcome.DENIED, reason_code(decision), decision.reason, rule)
        try:
            for budget in self.budgets.match(agent_id, action):
                budget.measure(context)
        except InvalidAmount as error:
            return Judgement(Outcome.DENIED, "budget_amount_invalid", str(error))
        if isinstance(decision, Allowed):
            return Judgement(Outcome.ALLOWED, reason_code(decision), None, rule)
        terms = self._terms(agent_id, action, decision.terms)
        return Judgement(Outcome.APPROVAL_REQUIRED, "approval_required", decision.reason, rule, terms)

    def decide(
        self, agent_id: str, action: str, context: Mapping[str, Json], run_id: str | None, moment: datetime
    ) -> Decision:
        """Return the decision about a call of the agent with this id, without budgets."""
        request = CheckRequest(agent_id, action, context, None, None, run_id, dry_run=False)
        return decide(self._auth_context(agent_id, action), request, self.rules, moment)

    def _terms(self, agent_id: str, action: str, of_rules: RuleTerms) -> JudgementTerms:
        permission = self._permissions.get((agent_id, action))
        quorum = of_rules.required_approvals or 1
        if permission is None:
            return JudgementTerms(quorum, of_rules.ttl_seconds, True, of_rules.approvers, False)
        limits = [one for one in (permission.approval_ttl_seconds, of_rules.ttl_seconds) if one is not None]
        return JudgementTerms(
            max(quorum, permission.required_approvals),
            min(limits, default=None),
            permission.approval_ttl_seconds is None,
            of_rules.approvers,
            permission.separation_of_duties,
        )

    def _auth_context(self, agent_id: str, action: str) -> AuthContext:
        key = (agent_id, action)
        found = self._contexts.get(key)
        if found is None:
            if len(self._contexts) >= MAX_CONTEXTS:
                self._contexts.clear()
            found = self._contexts[key] = self._build_context(agent_id, action)
        return found

    def _build_context(self, agent_id: str, action: str) -> AuthContext:
        agent = self._agents.get(agent_id)
        permission = self._permissions.get((agent_id, action))
        context = AuthContext("", None, "", "", 1, "", None)
        if agent is not None:
            status = ACTIVE if agent.enabled else INACTIVE
            context = context._replace(agent_id=agent_id, agent_name=agent.name, agent_status=status)
        return context if permission is None else _with_permission(context, permission)

    def _compile_rule(self, index: int, rule: NewRule) -> CompiledRule:
        terms = rule.approval
        return CompiledRule(
            _rule_id(index),
            rule.name,
            rule.effect,
            self._resolved.ids_of(rule.agents),
            tuple(dict.fromkeys(rule.actions)),
            None if rule.when is None else compile_expression(rule.when).evaluate,
            RuleTerms()
            if terms is None
            else RuleTerms(
                terms.quorum,
                terms.ttl,
                None if terms.approvers is None else frozenset(one.lower() for one in terms.approvers),
            ),
        )


def _rule_id(index: int) -> str:
    """Return an id for the rule at this index of the document. Sorted ids have the order of the document."""
    return f"{index:06d}"


def _with_permission(context: AuthContext, permission: NewPermission) -> AuthContext:
    maximum = permission.max_amount
    return context._replace(
        permission_id=permission.action,
        requires_approval=int(permission.requires_approval),
        max_amount=None if maximum is None else str(maximum),
        amount_required=int(permission.amount_required),
    )
