"""Classes of tool calls, for the comparison of two policies.

A class contains the calls of one agent with one action, or with all actions that the same action patterns of rules
match. In each policy, the same permission and the same rules apply to all calls of a class.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import NamedTuple

from toolgate_service.core.schemas import MAX_ACTION, is_action
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.document import PolicyAgent, PolicyDocument, resolve_agents
from toolgate_service.rules.evaluation import WILDCARD
from toolgate_service.rules.models import ALLOW, FORBID, REQUIRE_APPROVAL
from toolgate_service.rules.schemas import NewRule

_EFFECTS = (FORBID, REQUIRE_APPROVAL, ALLOW)
#: endings that are appended to a prefix to find an example of an action, in the order in which they are tried
_ENDINGS = ("other", "x", "1", "_", "~", "")


@dataclass(frozen=True, slots=True)
class RuleContent:
    """Fields of a rule that affect decisions, and its name. Rules that differ only in their names are equal."""

    name: str = field(compare=False)
    effect: str
    when: str | None
    quorum: int | None
    ttl: int | None
    approvers: frozenset[str] | None


class PermissionContent(NamedTuple):
    """Fields of a permission that affect decisions."""

    requires_approval: bool
    max_amount: Decimal | None
    amount_required: bool
    quorum: int
    separation_of_duties: bool
    ttl: int | None


@dataclass(frozen=True, slots=True)
class PolicyPart:
    """Part of a policy that applies to the calls of one agent with a set of actions.

    Attributes:
        is_enabled: False if the agent does not exist or is disabled, so that all calls are denied.
        agent_name: Name of the agent; empty if all calls are denied.
        rules: Rules in the order in which the gateway evaluates them.
    """

    is_enabled: bool
    agent_name: str = ""
    permission: PermissionContent | None = None
    rules: tuple[RuleContent, ...] = ()

    def reads(self, variable: str) -> bool:
        """Return whether a condition may read a variable such as `action`."""
        return any(variable in rule.when for rule in self.rules if rule.when is not None)

    def with_effect(self, effect: str) -> tuple[RuleContent, ...]:
        """Return the rules with this effect."""
        return tuple(rule for rule in self.rules if rule.effect == effect)


DENIED = PolicyPart(is_enabled=False)


@dataclass(frozen=True, slots=True)
class Actions:
    """Set of actions: the action `exact`, or all actions that begin with `prefix`.

    The set of all actions with `prefix` does not contain those that begin with one of `longer_prefixes` or are in
    `excluded`.
    """

    exact: str | None = None
    prefix: str = ""
    longer_prefixes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def contains(self, action: str) -> bool:
        """Return whether the action is valid and belongs to the set."""
        if self.exact is not None:
            return action == self.exact
        return (
            is_action(action)
            and action.startswith(self.prefix)
            and not action.startswith(self.longer_prefixes)
            and action not in self.excluded
        )

    def example(self) -> str | None:
        """Return an action of the set, or None if none was found."""
        if self.exact is not None:
            return self.exact
        candidates = (self.prefix + ending for ending in _ENDINGS)
        return next((action for action in candidates if self.contains(action)), None)

    @property
    def pattern(self) -> str:
        """The single action, or a pattern that matches all actions of the set."""
        return self.prefix + WILDCARD if self.exact is None else self.exact


@dataclass(frozen=True, slots=True)
class CallClass:
    """All calls of one agent with an action in a set of actions.

    Attributes:
        agent: Name of the agent in the new policy.
        old: Part of the old policy that applies to the calls.
        new: Part of the new policy that applies to the calls.
    """

    agent: str
    agent_id: str
    actions: Actions
    old: PolicyPart
    new: PolicyPart

    @property
    def key(self) -> object:
        """Key of the comparison. Classes with equal keys have the same formulas, so only one of them is compared."""
        parts = (self.old, self.new)
        reads_agent = any(part.reads("agent") for part in parts)
        reads_action = any(part.reads("action") for part in parts)
        return (
            self.agent_id if reads_agent else None,
            self.actions if reads_action else None,
            *((part.is_enabled, part.permission, part.rules) for part in parts),
            *(part.agent_name for part in parts if reads_agent),
        )

    @property
    def is_unchanged(self) -> bool:
        """True if the same rules and permission apply to the calls in both policies, so that the results are equal.

        The agent's name must also be the same if a condition reads it.
        """
        if self.old.permission != self.new.permission or self.old.rules != self.new.rules:
            return False
        return self.old.agent_name == self.new.agent_name or not self.old.reads("agent")

    @property
    def only_adds_restrictions(self) -> bool:
        """True if the new policy, compared with the old one, only adds `forbid` rules and removes `allow` rules.

        The results of the new policy are then at least as strict, unless the changed rules affect which conditions
        exceed the cost limits.
        """
        old, new = self.old, self.new
        if old.permission != new.permission or old.agent_name != new.agent_name:
            return False
        return (
            not Counter(old.with_effect(FORBID)) - Counter(new.with_effect(FORBID))
            and not Counter(new.with_effect(ALLOW)) - Counter(old.with_effect(ALLOW))
            and old.with_effect(REQUIRE_APPROVAL) == new.with_effect(REQUIRE_APPROVAL)
        )


class _Rule(NamedTuple):
    """Rule with its patterns of actions."""

    content: RuleContent
    actions: tuple[str, ...]


class _Rules:
    """Rules of one policy that apply to one agent, with indexes by action.

    The indexes are created when they are first read, because agents with unchanged rules need none.
    """

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self.rules = rules

    @cached_property
    def exact(self) -> dict[str, list[int]]:
        """Positions in `rules` of the rules for single actions, by action."""
        return self._index(lambda pattern: None if pattern.endswith(WILDCARD) else pattern)

    @cached_property
    def prefixes(self) -> dict[str, list[int]]:
        """Positions in `rules` of the rules for all actions with a prefix, by prefix."""
        return self._index(lambda pattern: pattern[:-1] if pattern.endswith(WILDCARD) else None)

    def _index(self, key_of: Callable[[str], str | None]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, rule in enumerate(self.rules):
            for pattern in rule.actions:
                key = key_of(pattern)
                if key is not None:
                    found.setdefault(key, []).append(index)
        return found

    def find(self, prefix: str, exact: str | None) -> tuple[RuleContent, ...]:
        """Return the rules that apply to the action `exact` or, if it is None, to all actions with the prefix.

        The rules have the order in which the gateway evaluates them.
        """
        found = set(self.exact.get(exact, ())) if exact is not None else set()
        text = prefix if exact is None else exact
        for length in range(len(text) + 1):
            found.update(self.prefixes.get(text[:length], ()))
        ordered = sorted(found, key=lambda index: (*_order(self.rules[index].content), index))
        return tuple(self.rules[index].content for index in ordered)


def _order(content: RuleContent) -> tuple[int, bool]:
    return _EFFECTS.index(content.effect), content.when is not None


class _Policy:
    """Policy document with resolved references to agents."""

    def __init__(self, document: PolicyDocument, agent_ids: Mapping[str, str]) -> None:
        resolved = resolve_agents(document, agent_ids)
        self.agents: dict[str, PolicyAgent] = dict(zip(resolved.ids, document.agents, strict=True))
        self._rules = [
            (
                resolved.ids_of(rule.agents),
                _Rule(_rule_content(rule), tuple(dict.fromkeys(rule.actions))),
            )
            for rule in document.rules
            if rule.enabled
        ]
        self._index = lru_cache(maxsize=None)(self._build_index)

    def permissions(self, agent_id: str) -> dict[str, PermissionContent]:
        """Return the permissions of an agent by their actions; none if the agent is disabled or missing."""
        agent = self.agents.get(agent_id)
        if agent is None or not agent.enabled:
            return {}
        return {one.action: _permission_content(one) for one in agent.permissions}

    def rules(self, agent_id: str) -> _Rules:
        """Return the rules that apply to an agent; none if the agent is disabled or missing."""
        agent = self.agents.get(agent_id)
        if agent is None or not agent.enabled:
            return self._index(())
        return self._index(
            tuple(
                index for index, (agents, _) in enumerate(self._rules) if agents is None or agent_id in agents
            )
        )

    def _build_index(self, indexes: tuple[int, ...]) -> _Rules:
        return _Rules(tuple(self._rules[index][1] for index in indexes))


class ComparisonTimeoutError(Exception):
    """Error for a comparison that reached its time limit."""


def find_changed_classes(
    old: PolicyDocument, new: PolicyDocument, agent_ids: Mapping[str, str], has_time: Callable[[], bool]
) -> Iterator[CallClass]:
    """Yield the classes of calls for which the two policies differ.

    Of several classes with the same `CallClass.key`, only the first is yielded.

    Agents that are disabled or missing in the new policy are omitted, because the new policy denies all their calls.

    Raises:
        ComparisonTimeoutError: `has_time` returned False before all classes were found.
    """
    before, after = _Policy(old, agent_ids), _Policy(new, agent_ids)
    seen = set()
    for agent_id, agent in after.agents.items():
        if not agent.enabled or _is_unchanged(agent_id, before, after):
            continue
        for call_class in _classes_of(agent_id, agent, before, after):
            if not has_time():
                raise ComparisonTimeoutError
            if call_class.is_unchanged or (key := call_class.key) in seen:
                continue
            seen.add(key)
            yield call_class
        if not has_time():
            raise ComparisonTimeoutError


def _is_unchanged(agent_id: str, before: _Policy, after: _Policy) -> bool:
    """Return whether the results for all calls of an agent are unchanged. The new policy must enable the agent.

    This is the case if the old policy also enables the agent, with the same name, permissions and rules.
    """
    old, new = before.agents.get(agent_id), after.agents[agent_id]
    return (
        old is not None
        and old.enabled
        and old.name == new.name
        and before.permissions(agent_id) == after.permissions(agent_id)
        and before.rules(agent_id).rules == after.rules(agent_id).rules
    )


def _classes_of(agent_id: str, agent: PolicyAgent, before: _Policy, after: _Policy) -> Iterator[CallClass]:
    previous = before.agents.get(agent_id)
    rules = before.rules(agent_id), after.rules(agent_id)
    permissions = before.permissions(agent_id), after.permissions(agent_id)
    for actions in _actions(rules, permissions):
        parts = [DENIED, DENIED]
        for index, one in enumerate((previous, agent)):
            if one is not None and one.enabled:
                permission = None if actions.exact is None else permissions[index].get(actions.exact)
                applicable = rules[index].find(actions.prefix, actions.exact)
                parts[index] = PolicyPart(True, one.name, permission, applicable)
        yield CallClass(agent.name, agent_id, actions, *parts)


def _actions(rules: Iterable[_Rules], permissions: Iterable[Mapping[str, object]]) -> Iterator[Actions]:
    """Yield disjoint sets of actions that together contain each action to which a rule or a permission applies.

    Both policies deny every other action.
    """
    exact = dict.fromkeys(action for given in permissions for action in given)
    prefixes: dict[str, None] = {}
    for one in rules:
        exact.update(dict.fromkeys(one.exact))
        prefixes.update(dict.fromkeys(one.prefixes))
    for action in exact:
        yield Actions(action)
    for prefix in prefixes:
        if len(prefix) > MAX_ACTION:
            continue
        longer = tuple(other for other in prefixes if other != prefix and other.startswith(prefix))
        yield Actions(None, prefix, longer, tuple(action for action in exact if action.startswith(prefix)))


def _rule_content(rule: NewRule) -> RuleContent:
    terms = rule.approval
    if terms is None or rule.effect != REQUIRE_APPROVAL:
        return RuleContent(rule.name, rule.effect, rule.when, None, None, None)
    approvers = None if terms.approvers is None else frozenset(one.lower() for one in terms.approvers)
    return RuleContent(rule.name, rule.effect, rule.when, terms.quorum, terms.ttl, approvers)


def _permission_content(permission: NewPermission) -> PermissionContent:
    return PermissionContent(
        permission.requires_approval,
        permission.max_amount,
        permission.amount_required,
        permission.required_approvals,
        permission.separation_of_duties,
        permission.approval_ttl_seconds,
    )
