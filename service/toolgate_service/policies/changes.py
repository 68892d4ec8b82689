"""Differences between two policy documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from toolgate_service.budgets.schemas import NewBudget
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.document import (
    PolicyAgent,
    PolicyDocument,
    canonical_references,
    normalize_budget,
    normalize_rule,
)
from toolgate_service.policies.schemas import ChangeView, FieldChange, Operation, ResourceName
from toolgate_service.rules.schemas import NewRule

#: fields of a budget that cannot change, because existing totals would not match the new values. If one of these fields
#: differs, the budget is deleted and created again
FIXED_BUDGET_FIELDS = ("scope", "measure", "currency_arg", "window")

Item: TypeAlias = PolicyAgent | NewPermission | NewRule | NewBudget
ItemT = TypeVar("ItemT", bound=Item)


class Difference(NamedTuple):
    """Item of a policy that differs between two documents: the current policy and a candidate to replace it.

    Attributes:
        name: Name of the item; for a permission, the name of its agent and the action.
        before: Item in the current document; None if it is new.
        after: Item in the candidate; None if it is deleted.
        fields: Names of the fields that differ, with the value before and the value after.
        agent_id: Id of the current agent that differs or that has the permission; None for a new agent, and for rules
            and budgets.
        agent_reference: Id or name by which the candidate identifies this agent; empty for rules and budgets, and if
            the agent is deleted.
    """

    resource: ResourceName
    name: str
    before: Item | None
    after: Item | None
    fields: Mapping[str, tuple[Any, Any]]
    agent_id: str | None = None
    agent_reference: str = ""

    @property
    def replaces_budget(self) -> bool:
        """True for a budget that must be deleted and created again, because one of `FIXED_BUDGET_FIELDS` differs."""
        both = self.before is not None and self.after is not None
        return self.resource == "budget" and both and any(one in self.fields for one in FIXED_BUDGET_FIELDS)

    def view(self) -> ChangeView:
        """Return the difference for a response of the API."""
        operation: Operation = "update"
        if self.before is None or self.after is None:
            operation = "create" if self.before is None else "delete"
        fields = [
            FieldChange(field=name, before=before, after=after)
            for name, (before, after) in self.fields.items()
        ]
        return ChangeView(resource=self.resource, operation=operation, name=self.name, fields=fields)


def compare(current: PolicyDocument, candidate: PolicyDocument) -> Sequence[Difference]:
    """Return the differences between two documents: agents, then permissions, rules and budgets.

    The permissions of a deleted agent are deleted with the agent and are not listed. An agent of the candidate with an
    id corresponds to the current agent with this id, and an agent without an id to a current agent with the same name.
    An agent of the candidate without such a current agent is new.
    """
    found: list[Difference] = []
    permissions: list[Difference] = []
    pairs = list(_pair_agents(current.agents, candidate.agents))
    for before, after in pairs:
        reference = after.reference if after is not None else ""
        of_agent = (before.id if before is not None else None, reference)
        name = after.name if after is not None else before.name if before is not None else ""
        found += _difference(
            "agent", name, before, after, _agent_fields(before), _agent_fields(after), *of_agent
        )
        if after is not None:
            present = before.permissions if before is not None else []
            for action, old, new in _pair_by(
                present, after.permissions, lambda permission: permission.action
            ):
                old_fields = None if old is None else old.model_dump()
                new_fields = None if new is None else new.model_dump()
                permissions += _difference(
                    "permission", f"{name} {action}", old, new, old_fields, new_fields, *of_agent
                )
    found += permissions
    scopes = _Scopes(current, candidate, pairs)
    for name, old_rule, new_rule in _pair_by(current.rules, candidate.rules, lambda rule: rule.name):
        found += _difference(
            "rule", name, old_rule, new_rule, *scopes.unify(_rule_fields(old_rule), _rule_fields(new_rule))
        )
    for name, old_budget, new_budget in _pair_by(
        current.budgets, candidate.budgets, lambda budget: budget.name
    ):
        fields = scopes.unify(_budget_fields(old_budget), _budget_fields(new_budget))
        found += _difference("budget", name, old_budget, new_budget, *fields)
    return found


class _Scopes:
    """Comparison of the agents of rules and budgets, which the two documents can name in different ways.

    The same name can also stand for different agents: if the candidate renames `bot` to `old-bot` and adds a new agent
    `bot`, its rules for `bot` apply to the new agent.
    """

    def __init__(
        self,
        current: PolicyDocument,
        candidate: PolicyDocument,
        pairs: Sequence[tuple[PolicyAgent | None, PolicyAgent | None]],
    ) -> None:
        old, new = {}, {}
        #: ids of the current agents by name, as far as the document contains them
        self._ids = {agent.name: agent.id for agent in current.agents if agent.id is not None}
        for number, (before, after) in enumerate(pairs):
            if before is not None:
                old[before.reference] = number
            if after is not None:
                new[after.reference] = number
        self._old = self._with_names(current, old)
        self._new = self._with_names(candidate, new)

    @staticmethod
    def _with_names(policy: PolicyDocument, numbers: dict[str, int]) -> Mapping[str, int]:
        for agent_id, name in canonical_references(policy).items():
            numbers.setdefault(name, numbers[agent_id])
        return numbers

    def unify(
        self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """Return the old and the new fields of a rule or budget, with comparable lists of agents.

        If both lists stand for the same agents, both results have the new names of these agents. If equal lists stand
        for different agents, the old fields have the ids of the agents.
        """
        if old is not None and new is not None:
            before = {self._old.get(one, one) for one in old["agents"]}
            if before == {self._new.get(one, one) for one in new["agents"]}:
                return {**old, "agents": new["agents"]}, new
            if old["agents"] == new["agents"]:
                # The same names stand for different agents, so show the ids of the agents in the old fields. The same id
                # stands for a new agent if the agent with this id was deleted.
                ids = [self._ids.get(one, one) for one in old["agents"]]
                return {
                    **old,
                    "agents": [f"{one} (deleted)" for one in ids] if ids == new["agents"] else ids,
                }, new
        return old, new


def _rule_fields(rule: NewRule | None) -> Mapping[str, Any] | None:
    return None if rule is None else normalize_rule(rule, {})


def _budget_fields(budget: NewBudget | None) -> Mapping[str, Any] | None:
    return None if budget is None else normalize_budget(budget, {})


def _difference(
    resource: ResourceName,
    name: str,
    before: Item | None,
    after: Item | None,
    before_fields: Mapping[str, Any] | None,
    after_fields: Mapping[str, Any] | None,
    agent_id: str | None = None,
    agent_reference: str = "",
) -> Iterator[Difference]:
    old, new = before_fields or {}, after_fields or {}
    fields = {
        field: (old.get(field), new.get(field))
        for field in (old or new)
        if not old or not new or old[field] != new[field]
    }
    if fields:
        yield Difference(resource, name, before, after, fields, agent_id, agent_reference)


def _agent_fields(agent: PolicyAgent | None) -> Mapping[str, Any] | None:
    if agent is None:
        return None
    return {"name": agent.name, "description": agent.description, "enabled": agent.enabled}


def _pair_agents(
    current: Sequence[PolicyAgent], candidate: Sequence[PolicyAgent]
) -> Iterator[tuple[PolicyAgent | None, PolicyAgent | None]]:
    by_id = {agent.id: agent for agent in current if agent.id is not None}
    found = [by_id.get(agent.id) if agent.id is not None else None for agent in candidate]
    by_name: dict[str, list[PolicyAgent]] = {}
    identified = {one.id for one in found if one is not None}
    for agent in current:
        if agent.id is None or agent.id not in identified:
            by_name.setdefault(agent.name, []).append(agent)
    for agent, same in zip(candidate, found, strict=True):
        left = by_name.get(agent.name) if agent.id is None else None
        yield (left.pop(0) if left else same), agent
    for remaining in by_name.values():
        for agent in remaining:
            yield agent, None


def _pair_by(
    before: Iterable[ItemT], after: Iterable[ItemT], key: Callable[[ItemT], str]
) -> Iterator[tuple[str, ItemT | None, ItemT | None]]:
    old = {key(item): item for item in before}
    for item in after:
        yield key(item), old.pop(key(item), None), item
    for name, item in old.items():
        yield name, item, None
