"""Evaluation of rules against a call, without I/O.

The result does not depend on the order of the rules: a matching `forbid` rule is stronger than all `require_approval`
rules, and these are stronger than all `allow` rules.

Conditions fail closed. If a condition has no result, for example because of an error, a missing field or very large
arguments, an `allow` rule does not match, and a `forbid` or `require_approval` rule matches.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeAlias

from toolgate_service.rules.expressions import Variables
from toolgate_service.rules.models import ALLOW, FORBID, REQUIRE_APPROVAL

#: suffix of an action pattern that matches all actions with the prefix before it
WILDCARD = "*"
#: maximum size of the cache of a `RuleSet`, which maps pairs of agent and action to the rules that apply. The size is
#: the number of pairs plus the number of references to rules.
MAX_CANDIDATES = 50_000


#: function that evaluates the condition of a rule and returns None if the evaluation fails
Condition: TypeAlias = Callable[[Variables], bool | None]


class RuleTerms(NamedTuple):
    """Terms that a rule sets for an approval.

    Attributes:
        required_approvals: Number of different users who must approve; None if the rule sets no number.
        ttl_seconds: Time in seconds after which a pending request expires; None if the rule sets no time.
        approvers: Ids of the only users who may approve; None if every user with the right may approve. In the
            evaluation of a policy document, e-mail addresses instead of ids.
    """

    required_approvals: int | None = None
    ttl_seconds: int | None = None
    approvers: frozenset[str] | None = None

    def stricter(self, other: "RuleTerms") -> "RuleTerms":
        """Return the combination with other terms: the higher number, the shorter time, and the common approvers."""
        people = [one for one in (self.required_approvals, other.required_approvals) if one is not None]
        seconds = [one for one in (self.ttl_seconds, other.ttl_seconds) if one is not None]
        return RuleTerms(
            max(people, default=None),
            min(seconds, default=None),
            intersect(self.approvers, other.approvers),
        )


NO_TERMS = RuleTerms()


def intersect(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Return the users who are in both sets, where None stands for all users."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """Enabled rule in the form in which it is evaluated.

    Attributes:
        agents: Ids of the agents to which the rule applies; None for all agents.
        actions: Action patterns: exact actions, or prefixes followed by `*`.
        condition: Compiled condition; None if the rule has none.
        terms: Terms of the approval that a `require_approval` rule requires.
        when: Text of the condition; None if the rule has none.
    """

    id: str
    name: str
    effect: str
    agents: frozenset[str] | None
    actions: tuple[str, ...]
    condition: Condition | None = None
    terms: RuleTerms = NO_TERMS
    when: str | None = None

    def applies_to(self, agent_id: str, action: str) -> bool:
        """Return whether the rule's agents and actions match. The condition is not evaluated."""
        if self.agents is not None and agent_id not in self.agents:
            return False
        return any(action_matches(pattern, action) for pattern in self.actions)

    def matches(self, call: Variables) -> bool:
        """Return whether the rule matches a call to which it applies, depending on the result of its condition.

        If the condition has no result, an `allow` rule does not match, and other rules match.
        """
        if self.condition is None:
            return True
        result = self.condition(call)
        return result is True if self.effect == ALLOW else result is not False


def action_matches(pattern: str, action: str) -> bool:
    """Return whether an action equals a pattern or, if the pattern ends with `*`, begins with the text before it."""
    if pattern.endswith(WILDCARD):
        return action.startswith(pattern[:-1])
    return pattern == action


class RuleMatch(NamedTuple):
    """Rules that match a call.

    Attributes:
        forbidding: Rule that forbids the call; None if no rule forbids it. The other fields are then empty.
        requiring: All rules that require approval for the call.
        allowing: Rule that allows the call; None if there is none, or if a rule forbids the call or requires an
            approval.
    """

    forbidding: CompiledRule | None = None
    requiring: tuple[CompiledRule, ...] = ()
    allowing: CompiledRule | None = None

    @property
    def terms(self) -> RuleTerms:
        """Combined terms of the approval that the rules in `requiring` require."""
        return reduce(RuleTerms.stricter, (rule.terms for rule in self.requiring), NO_TERMS)


NO_MATCH = RuleMatch()


class RuleSet:
    """All enabled rules of an environment.

    Args:
        rules: Rules in the order of their ids. If several rules with the same effect match a call, the decision names
            the first rule without a condition or, if all have a condition, the first rule.
    """

    def __init__(self, rules: Iterable[CompiledRule] = ()) -> None:
        self.rules = tuple(rules)
        self._exact: dict[str, list[CompiledRule]] = {}
        self._prefixes: dict[str, list[CompiledRule]] = {}
        for rule in self.rules:
            for pattern in dict.fromkeys(rule.actions):
                if pattern.endswith(WILDCARD):
                    self._prefixes.setdefault(pattern[:-1], []).append(rule)
                else:
                    self._exact.setdefault(pattern, []).append(rule)
        self._candidates: dict[tuple[str, str], dict[str, tuple[CompiledRule, ...]]] = {}
        #: size of `_candidates`, as defined for `MAX_CANDIDATES`
        self._kept = 0

    def match(self, agent_id: str, call: Variables) -> RuleMatch:
        """Return the rules that match a call of an agent."""
        candidates = self._candidates_for(agent_id, call.action)
        if not candidates:
            return NO_MATCH
        forbidding = next((rule for rule in candidates.get(FORBID, ()) if rule.matches(call)), None)
        if forbidding is not None:
            return RuleMatch(forbidding)
        # All of these rules are evaluated, because the strictest terms of all matching ones apply.
        requiring = tuple(rule for rule in candidates.get(REQUIRE_APPROVAL, ()) if rule.matches(call))
        if requiring:
            return RuleMatch(None, requiring)
        allowing = next((rule for rule in candidates.get(ALLOW, ()) if rule.matches(call)), None)
        return RuleMatch(None, (), allowing)

    def explain(self, agent_id: str, call: Variables) -> Sequence[tuple[CompiledRule, bool]]:
        """Return every rule that applies to the agent and action, each with True if its condition matches the call."""
        return [(rule, rule.matches(call)) for rule in self.rules if rule.applies_to(agent_id, call.action)]

    def _candidates_for(self, agent_id: str, action: str) -> dict[str, tuple[CompiledRule, ...]]:
        key = (agent_id, action)
        found = self._candidates.get(key)
        if found is None:
            found = self._find_candidates(agent_id, action)
            size = 1 + sum(map(len, found.values()))
            if self._kept + size > MAX_CANDIDATES:
                self._candidates.clear()
                self._kept = 0
            self._candidates[key] = found
            self._kept += size
        return found

    def _find_candidates(self, agent_id: str, action: str) -> dict[str, tuple[CompiledRule, ...]]:
        possible = {rule.id: rule for rule in self._exact.get(action, ())}
        for length in range(len(action) + 1):
            possible.update((rule.id, rule) for rule in self._prefixes.get(action[:length], ()))
        by_effect: dict[str, list[CompiledRule]] = {}
        for rule in possible.values():
            if rule.agents is None or agent_id in rule.agents:
                by_effect.setdefault(rule.effect, []).append(rule)
        # Evaluate rules without a condition first, because they cost nothing and may decide. Otherwise, evaluate rules
        # in the order of their ids, which is the order of creation.
        return {
            effect: tuple(sorted(rules, key=lambda rule: (rule.condition is not None, rule.id)))
            for effect, rules in by_effect.items()
        }


NO_RULES = RuleSet()
