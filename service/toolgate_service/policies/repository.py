"""Database queries for the policy of an environment and for its revisions."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.agents.models import ACTIVE, Agent
from toolgate_service.budgets.models import Budget
from toolgate_service.budgets.schemas import NewBudget
from toolgate_service.budgets.service import serialize_budget
from toolgate_service.core import strict_json
from toolgate_service.core.schemas import is_reserved
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.document import (
    VERSION,
    PolicyAgent,
    PolicyDocument,
    agent_ids_by_reference,
    digest_of,
)
from toolgate_service.policies.models import PolicyRevision
from toolgate_service.rules.models import Rule
from toolgate_service.rules.schemas import ApprovalTerms, NewRule
from toolgate_service.rules.service import serialize_rule


def _in_environment(
    table: type[Agent | Permission | Rule | Budget | PolicyRevision],
) -> tuple[ColumnElement[bool], ...]:
    return (
        col(table.organization_id) == bindparam("organization_id"),
        col(table.environment) == bindparam("environment"),
    )


_AGENTS = (
    select(Agent)
    .where(*_in_environment(Agent), col(Agent.deleted_at).is_(None))
    .order_by(col(Agent.created_at), col(Agent.id))
)
_PERMISSIONS = (
    select(Permission)
    .where(*_in_environment(Permission))
    .order_by(col(Permission.created_at), col(Permission.id))
)
_RULES = select(Rule).where(*_in_environment(Rule)).order_by(col(Rule.id))
_BUDGETS = select(Budget).where(*_in_environment(Budget)).order_by(col(Budget.id))
_MEMBERS = select(User.id, User.email, col(User.removed_at).is_(None)).where(
    col(User.organization_id) == bindparam("organization_id")
)
_LATEST = (
    select(PolicyRevision)
    .where(*_in_environment(PolicyRevision))
    .order_by(col(PolicyRevision.number).desc())
    .limit(1)
)
_ONE = select(PolicyRevision).where(
    *_in_environment(PolicyRevision), col(PolicyRevision.id) == bindparam("id")
)
_WITH_DIGEST = (
    select(PolicyRevision)
    .where(*_in_environment(PolicyRevision), col(PolicyRevision.digest) == bindparam("digest"))
    .order_by(col(PolicyRevision.number).desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """Policy of an environment, with the rows from which it was read.

    Attributes:
        identified: The policy with the id of every agent.
        document: The policy as users read it, with ids only of agents that share a name.
        agents: Rows of agents by id.
        permissions: Rows of permissions by agent id and action.
        rules: Rows of rules by name.
        budgets: Rows of budgets by name.
    """

    identified: PolicyDocument
    document: PolicyDocument
    digest: str
    agents: Mapping[str, Agent]
    permissions: Mapping[tuple[str, str], Permission]
    rules: Mapping[str, Rule]
    budgets: Mapping[str, Budget]

    @property
    def agent_ids(self) -> Mapping[str, str]:
        """Mapping from the unique names and the ids of the agents to their ids."""
        return agent_ids_by_reference((agent_id, agent.name) for agent_id, agent in self.agents.items())


async def load_policy(session: AsyncSession, organization_id: str, environment: str) -> LoadedPolicy:
    """Return the current policy of an environment."""
    values = {"organization_id": organization_id, "environment": environment}
    agents = (await session.exec(_AGENTS, params=values)).all()
    permissions = (await session.exec(_PERMISSIONS, params=values)).all()
    rules = (await session.exec(_RULES, params=values)).all()
    budgets = (await session.exec(_BUDGETS, params=values)).all()
    emails: Mapping[str, str] = {}
    if any(rule.approvers for rule in rules):
        members = (await session.exec(_MEMBERS, params={"organization_id": organization_id})).all()
        present = {email for _, email, is_member in members if is_member}
        # A user who was removed and invited again has another id: only this id stands for the e-mail address.
        emails = {
            user_id: email for user_id, email, is_member in members if is_member or email not in present
        }
    # Convert thousands of rows in a thread, because that takes longer than the event loop may be blocked.
    return await asyncio.to_thread(_build, agents, permissions, rules, budgets, emails)


def _build(
    agents: Sequence[Agent],
    permissions: Sequence[Permission],
    rules: Sequence[Rule],
    budgets: Sequence[Budget],
    emails: Mapping[str, str],
) -> LoadedPolicy:
    counts = Counter(agent.name for agent in agents)
    references = {
        agent.id: agent.name if counts[agent.name] == 1 and not is_reserved(agent.name) else agent.id
        for agent in agents
    }
    by_agent: dict[str, list[NewPermission]] = {agent.id: [] for agent in agents}
    for permission in (one for one in permissions if one.agent_id in by_agent):
        by_agent[permission.agent_id].append(
            NewPermission.model_construct(
                **{name: getattr(permission, name) for name in NewPermission.model_fields}
            )
        )
    items = [
        PolicyAgent.model_construct(
            name=agent.name,
            id=agent.id,
            description=agent.description,
            enabled=agent.status == ACTIVE,
            permissions=by_agent[agent.id],
        )
        for agent in agents
    ]
    identified = PolicyDocument.model_construct(
        version=VERSION,
        agents=items,
        rules=[_rule(rule, references, emails) for rule in rules],
        budgets=[_budget(budget, references) for budget in budgets],
    )
    public = [item if counts[item.name] > 1 else item.model_copy(update={"id": None}) for item in items]
    document = identified.model_copy(update={"agents": public})
    return LoadedPolicy(
        identified,
        document,
        digest_of(document),
        {agent.id: agent for agent in agents},
        {(one.agent_id, one.action): one for one in permissions},
        {rule.name: rule for rule in rules},
        {budget.name: budget for budget in budgets},
    )


def _rule(rule: Rule, references: Mapping[str, str], emails: Mapping[str, str]) -> NewRule:
    view = serialize_rule(rule)
    terms = view.approval
    approval = None
    if terms is not None and any(value is not None for value in (terms.quorum, terms.ttl, terms.approvers)):
        approvers = None if terms.approvers is None else [emails.get(one, one) for one in terms.approvers]
        approval = ApprovalTerms.model_construct(quorum=terms.quorum, ttl=terms.ttl, approvers=approvers)
    return NewRule.model_construct(
        name=view.name,
        effect=view.effect,
        agents=[references.get(one, one) for one in view.agents],
        actions=list(view.actions),
        when=view.when,
        approval=approval,
        enabled=view.enabled,
    )


def _budget(budget: Budget, references: Mapping[str, str]) -> NewBudget:
    view = serialize_budget(budget)
    fields = {name: getattr(view, name) for name in NewBudget.model_fields}
    agents = [references.get(one, one) for one in view.agents]
    return NewBudget.model_construct(**fields | {"agents": agents, "actions": list(view.actions)})


async def find_latest_revision(
    session: AsyncSession, organization_id: str, environment: str
) -> PolicyRevision | None:
    """Return the latest revision of an environment's policy; None if no revision is stored."""
    values = {"organization_id": organization_id, "environment": environment}
    return (await session.exec(_LATEST, params=values)).first()


async def find_revision(
    session: AsyncSession, organization_id: str, environment: str, revision_id: str
) -> PolicyRevision | None:
    """Return the revision with this id, or None."""
    values = {"organization_id": organization_id, "environment": environment, "id": revision_id}
    return (await session.exec(_ONE, params=values)).first()


async def find_revision_by_digest(
    session: AsyncSession, organization_id: str, environment: str, digest: str
) -> PolicyRevision | None:
    """Return the latest revision with this digest, or None."""
    values = {"organization_id": organization_id, "environment": environment, "digest": digest}
    return (await session.exec(_WITH_DIGEST, params=values)).first()


def read_document(revision: PolicyRevision) -> PolicyDocument:
    """Return the policy of a revision."""
    return PolicyDocument.model_validate(strict_json.loads_own(revision.document))
