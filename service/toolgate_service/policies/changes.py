"""Differences between two policy documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from toolgate_service.budgets.schemas import NewBudget
from toolgate_service.core.errors import FieldErrors
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.document import PolicyAgent, PolicyDocument, normalize_budget, normalize_rule
from toolgate_service.policies.schemas import ChangeView, FieldChange, Operation, ResourceName
from toolgate_service.rules.schemas import NewRule

#: fields of a budget that cannot change, because its totals would no longer match them: the budget is replaced
FIXED_BUDGET_FIELDS = ("scope", "measure", "currency_arg", "window")

Item: TypeAlias = PolicyAgent | NewPermission | NewRule | NewBudget
ItemT = TypeVar("ItemT", bound=Item)


class Difference(NamedTuple):
    """Item of a policy that differs between two documents.

    Attributes:
        name: Name of the item; for a permission, the name of its agent and the action.
        before: Item in the current document; None if it is new.
        after: Item in the candidate; None if it is deleted.
        fields: Names of the fields that differ, with the value before and the value after.
        agent_id: Id of the current agent to which the item or the permission belongs; None for a new agent.
        agent_reference: Reference of this agent in the candidate; empty for rules and budgets.
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
        """Whether the item is a budget that must be replaced, because its totals no longer match its definition."""
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

    The permissions of a deleted agent are deleted with it and are not listed.

    Raises:
        FieldErrors: An agent of the candidate has an unknown id, or the name of several current agents.
    """
    found: list[Difference] = []
    permissions: list[Difference] = []
    for before, after in _pair_agents(current.agents, candidate.agents):
        reference = after.reference if after is not None else ""
        of_agent = (before.id if before is not None else None, reference)
        name = _name(after or before)
        found += _difference("agent", name, before, after, *of_agent)
        if after is not None:
            held = before.permissions if before is not None else []
            pairs = _pair_by(held, after.permissions, lambda permission: permission.action)
            for action, old, new in pairs:
                permissions += _difference("permission", f"{name} {action}", old, new, *of_agent)
    found += permissions
    for name, old_rule, new_rule in _pair_by(current.rules, candidate.rules, lambda rule: rule.name):
        found += _difference("rule", name, old_rule, new_rule)
    for name, old_budget, new_budget in _pair_by(
        current.budgets, candidate.budgets, lambda budget: budget.name
    ):
        found += _difference("budget", name, old_budget, new_budget)
    return found


def _difference(
    resource: ResourceName,
    name: str,
    before: Item | None,
    after: Item | None,
    agent_id: str | None = None,
    agent_reference: str = "",
) -> Iterator[Difference]:
    old, new = _content(before), _content(after)
    fields = {
        field: (old.get(field), new.get(field))
        for field in (old or new)
        if before is None or after is None or old[field] != new[field]
    }
    if fields:
        yield Difference(resource, name, before, after, fields, agent_id, agent_reference)


def _content(item: Item | None) -> Mapping[str, Any]:
    match item:
        case None:
            return {}
        case PolicyAgent():
            return {"name": item.name, "description": item.description, "enabled": item.enabled}
        case NewRule():
            return normalize_rule(item)
        case NewBudget():
            return normalize_budget(item)
        case NewPermission():
            return item.model_dump()


def _pair_agents(
    current: Iterable[PolicyAgent], candidate: Iterable[PolicyAgent]
) -> Iterator[tuple[PolicyAgent | None, PolicyAgent | None]]:
    left = list(current)
    by_id = {agent.id: agent for agent in left if agent.id is not None}
    for index, agent in enumerate(candidate):
        if agent.id is not None:
            found = by_id.get(agent.id)
            if found is None:
                raise FieldErrors(
                    {f"agents.{index}.id": [f"{agent.id!r} is not the id of an agent: omit it"]}
                )
            left.remove(found)
            yield found, agent
    by_name: dict[str, list[PolicyAgent]] = {}
    for agent in left:
        by_name.setdefault(agent.name, []).append(agent)
    for index, agent in enumerate(candidate):
        if agent.id is None:
            same = by_name.get(agent.name, [])
            if len(same) > 1:
                ids = ", ".join(str(one.id) for one in same)
                message = f"several agents have the name {agent.name!r}: add the id of one of them, {ids}"
                raise FieldErrors({f"agents.{index}.name": [message]})
            yield (same.pop() if same else None), agent
    for remaining in by_name.values():
        for agent in remaining:
            yield agent, None


def _name(agent: PolicyAgent | None) -> str:
    return "" if agent is None else agent.name


def _pair_by(
    before: Iterable[ItemT], after: Iterable[ItemT], key: Callable[[ItemT], str]
) -> Iterator[tuple[str, ItemT | None, ItemT | None]]:
    old = {key(item): item for item in before}
    for item in after:
        yield key(item), old.pop(key(item), None), item
    for name, item in old.items():
        yield name, item, None
