"""Policy document `toolgate.policy/v1`: the agents, permissions, rules and budgets of one environment.

The document refers to agents by name and to approvers by e-mail address, so that it is independent of the ids in one
database. The order of its lists has no effect on the outcome of a check.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from toolgate_service.budgets.schemas import NewBudget
from toolgate_service.budgets.service import MAX_BUDGETS
from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import AGENT_NAME_RULE, Body, Description, Name, example, is_reserved
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.rules.evaluation import WILDCARD
from toolgate_service.rules.expressions import InvalidExpression, compile_expression
from toolgate_service.rules.models import REQUIRE_APPROVAL
from toolgate_service.rules.schemas import NewRule
from toolgate_service.rules.service import MAX_RULES

VERSION: Final = "toolgate.policy/v1"
#: maximum number of agents in one document, and of permissions of one agent
MAX_AGENTS = MAX_PERMISSIONS = 2_000

_PERMISSIONS = (
    "Permissions of the agent. They apply to exact actions; rules can allow calls by patterns and conditions."
)
_RULES = (
    "Rules of the environment. If several rules with the same effect match a call, the decision names the first of "
    "these rules that has no condition, or the first one if all have a condition."
)


class PolicyAgent(Body):
    """Agent of a policy document, with its permissions."""

    name: Name = Field(description="Name of the agent. Rules and budgets refer to it by this name.")
    id: str | None = Field(
        default=None,
        description="Id of the agent, a UUID. It is only necessary if several agents have the same name, or to rename an "
        "agent. Without it, the name identifies the agent.",
    )
    description: Description | None = Field(default=None, description="Description of the agent, for people.")
    enabled: bool = Field(default=True, description="False if the checks of the agent are denied.")
    permissions: Annotated[list[NewPermission], Field(max_length=MAX_PERMISSIONS)] = Field(
        default_factory=list, description=_PERMISSIONS
    )

    @property
    def reference(self) -> str:
        """Text that identifies the agent: its id or, if the document contains no id for it, its name."""
        return self.name if self.id is None else self.id


class PolicyDocument(Body):
    """Policy of one environment: all its agents with their permissions, its rules and its budgets."""

    model_config = example(
        version=VERSION,
        agents=[{"name": "refund-bot", "permissions": [{"action": "stripe.refund", "max_amount": 50}]}],
        rules=[{"name": "No refunds abroad", "effect": "forbid", "actions": ["stripe.*"]}],
        budgets=[],
    )

    version: Literal["toolgate.policy/v1"] = Field(description="Version of the format of the document.")
    agents: Annotated[list[PolicyAgent], Field(max_length=MAX_AGENTS)] = Field(
        default_factory=list, description="All agents of the environment, with their permissions."
    )
    rules: Annotated[list[NewRule], Field(max_length=MAX_RULES)] = Field(
        default_factory=list, description=_RULES
    )
    budgets: Annotated[list[NewBudget], Field(max_length=MAX_BUDGETS)] = Field(
        default_factory=list, description="Budgets."
    )

    def verify(self) -> None:
        """Verify the requirements that the types of the fields do not ensure.

        Names must be unique, rules and budgets must refer to agents of the document or to agent ids, and conditions and
        terms of approvals must be valid.

        Raises:
            FieldErrors: The document is invalid. The error contains every problem with the path of its field.
        """
        errors = {path: [message] for path, message in self._problems()}
        if errors:
            raise FieldErrors(errors)

    def _problems(self) -> Iterator[tuple[str, str]]:
        yield from _duplicates("agents", "agent", (agent.reference for agent in self.agents))
        for index, agent in enumerate(self.agents):
            if is_reserved(agent.name):
                yield f"agents.{index}.name", AGENT_NAME_RULE
            actions = (permission.action for permission in agent.permissions)
            yield from _duplicates(f"agents.{index}.permissions", "permission for the action", actions)
        yield from _duplicates("rules", "rule", (rule.name for rule in self.rules))
        yield from _duplicates("budgets", "budget", (budget.name for budget in self.budgets))
        agents = {agent.reference for agent in self.agents} | set(canonical_references(self).values())
        scopes = [
            *((f"rules.{index}", rule.agents) for index, rule in enumerate(self.rules)),
            *((f"budgets.{index}", budget.agents) for index, budget in enumerate(self.budgets)),
        ]
        for path, named in scopes:
            unknown = [one for one in named if not (one in agents or one == WILDCARD or is_id(one))]
            if unknown:
                yield f"{path}.agents", f"{unknown[0]!r} is not an agent of this document: add it"
        for index, rule in enumerate(self.rules):
            if rule.approval is not None and rule.effect != REQUIRE_APPROVAL:
                yield (
                    f"rules.{index}.approval",
                    (
                        f"must be omitted, because the effect is {rule.effect!r}: only rules with the effect "
                        "'require_approval' have terms of an approval"
                    ),
                )
            approvers = rule.approval.approvers if rule.approval is not None else None
            unclear = [one for one in approvers or () if is_id(one.lower())]
            if unclear:
                yield f"rules.{index}.approval", f"{unclear[0]!r} is an id: use the approver's e-mail address"
            try:
                if rule.when is not None:
                    compile_expression(rule.when)
            except InvalidExpression as error:
                yield f"rules.{index}.when", str(error)


def _duplicates(path: str, name: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield f"{path}.{index}", f"the document contains another {name} {value!r}: remove one of the two"
        seen.add(value)


def canonical_references(policy: PolicyDocument) -> Mapping[str, str]:
    """Return the names of agents by their ids, for the agents with an id and a unique name in the document."""
    names = Counter(agent.name for agent in policy.agents)
    return {
        agent.id: agent.name for agent in policy.agents if agent.id is not None and names[agent.name] == 1
    }


def agent_ids_by_reference(agents: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return a mapping from the unique names and the ids of agents to their ids.

    Args:
        agents: Pairs of the id and the name of the existing agents.
    """
    pairs = list(agents)
    counts = Counter(name for _, name in pairs)
    by_name = {name: agent_id for agent_id, name in pairs if counts[name] == 1}
    return by_name | {agent_id: agent_id for agent_id, _ in pairs}


class ResolvedAgents(NamedTuple):
    """Ids of the agents of a document.

    Attributes:
        ids: Ids in the order of the document. For an agent that does not exist yet, the name is used as the id.
        references: Mapping from each name or id with which rules and budgets of the document can refer to an agent, to
            the id of this agent.
    """

    ids: Sequence[str]
    references: Mapping[str, str]

    def ids_of(self, named: Iterable[str]) -> frozenset[str] | None:
        """Return the ids of the agents that a rule or budget names; None if it applies to all agents."""
        found = frozenset(self.references.get(one, one) for one in named)
        return None if WILDCARD in found else found


def resolve_agents(policy: PolicyDocument, agent_ids: Mapping[str, str]) -> ResolvedAgents:
    """Return the ids of the agents of a document.

    An agent with an id is the existing agent with this id, even if its name changes. An agent without an id is the
    existing agent with this name. It is a new agent if no or several existing agents have this name, or if another
    agent of the document has the id of that existing agent.

    Args:
        policy: Valid document.
        agent_ids: Mapping from the unique names and the ids of existing agents to their ids.
    """
    claimed = {agent.id for agent in policy.agents if agent.id is not None}
    ids: list[str] = []
    references: dict[str, str] = {}
    for agent in policy.agents:
        found = agent.id if agent.id is not None else agent_ids.get(agent.name, agent.name)
        if agent.id is None and found in claimed:
            found = agent.name
        ids.append(found)
        references[agent.reference] = found
    for agent_id, name in canonical_references(policy).items():
        references.setdefault(name, references[agent_id])
    return ResolvedAgents(ids, references)


def normalize(policy: PolicyDocument) -> dict[str, Any]:
    """Return the content of a document in a form that is equal for all documents with the same meaning."""
    references = canonical_references(policy)
    agents = [
        {
            "name": agent.name,
            # If the name is unique in the document, it already identifies the agent.
            "id": None if agent.id in references else agent.id,
            "description": agent.description,
            "enabled": agent.enabled,
            "permissions": _by("action", [one.model_dump() for one in agent.permissions]),
        }
        for agent in policy.agents
    ]
    return {
        "version": policy.version,
        "agents": sorted(agents, key=lambda agent: (str(agent["name"]), str(agent["id"]))),
        "rules": _by("name", [normalize_rule(rule, references) for rule in policy.rules]),
        "budgets": _by("name", [normalize_budget(budget, references) for budget in policy.budgets]),
    }


def normalize_rule(rule: NewRule, references: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a rule in a form that is equal for rules with the same meaning.

    `references` is the result of `canonical_references` for the document.
    """
    content = rule.model_dump()
    content |= {"agents": _agents(rule.agents, references), "actions": sorted(set(rule.actions))}
    if rule.approval is not None:
        terms = rule.approval
        approvers = None if terms.approvers is None else sorted({one.lower() for one in terms.approvers})
        given = {"quorum": terms.quorum, "ttl": terms.ttl, "approvers": approvers}
        content["approval"] = given if any(value is not None for value in given.values()) else None
    return content


def normalize_budget(budget: NewBudget, references: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a budget in a form that is equal for budgets with the same meaning.

    `references` is the result of `canonical_references` for the document.
    """
    agents = _agents(budget.agents, references)
    return budget.model_dump() | {"agents": agents, "actions": sorted(set(budget.actions))}


def _agents(named: Iterable[str], references: Mapping[str, str]) -> list[str]:
    found = {references.get(one, one) for one in named}
    return [WILDCARD] if WILDCARD in found else sorted(found)


def digest_of(policy: PolicyDocument) -> str:
    """Return the SHA-256 digest of the content of a document. Documents with the same meaning have the same digest."""
    return strict_json.digest(strict_json.canonical(normalize(policy)))


def _by(field: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: str(item[field]))
