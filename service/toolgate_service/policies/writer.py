"""Writer that applies the differences between two policies to the rows of an environment."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import ACTIVE, INACTIVE, Agent
from toolgate_service.agents.schemas import AgentChange, NewAgent
from toolgate_service.agents.service import add_agent, remove_agent, update_agent
from toolgate_service.budgets.schemas import BudgetChange, NewBudget
from toolgate_service.budgets.service import add_budget, remove_budget, update_budget
from toolgate_service.context import AppContext
from toolgate_service.permissions.schemas import NewPermission, PermissionChange
from toolgate_service.permissions.service import add_permission, remove_permission, update_permission
from toolgate_service.policies.changes import Difference
from toolgate_service.policies.document import PolicyAgent, PolicyDocument, resolve_agents
from toolgate_service.policies.repository import LoadedPolicy
from toolgate_service.rules.schemas import NewRule, RuleChange
from toolgate_service.rules.service import add_rule, remove_rule, update_rule


class PolicyWriter:
    """Writer of the differences between the current policy and a new policy, in one open transaction.

    Args:
        context: Dependencies of the services.
        session: Session of the transaction, which holds the organization's lock.
        caller: User who applies the policy.
        environment: Name of the environment.
        loaded: Current policy of the environment, read in the transaction.
        candidate: The new policy.
    """

    def __init__(
        self,
        context: AppContext,
        session: AsyncSession,
        caller: Caller,
        environment: str,
        loaded: LoadedPolicy,
        candidate: PolicyDocument,
    ) -> None:
        self._context = context
        self._session = session
        self._caller = caller
        self._environment = environment
        self._loaded = loaded
        self._references = resolve_agents(candidate, loaded.agent_ids).references
        #: agents that this writer created, by their name or id in the new policy
        self._added: dict[str, Agent] = {}

    async def write(self, differences: Sequence[Difference]) -> None:
        """Write the differences: first all deletions, then all other changes.

        Deletions come first so that no maximum number of items is exceeded in between. Otherwise, the given order is
        kept (agents, permissions, rules, budgets), so that agents exist before other items refer to them.
        """
        for one in sorted(differences, key=lambda difference: difference.after is not None):
            match one.resource:
                case "agent":
                    await self._write_agent(one)
                case "permission":
                    await self._write_permission(one)
                case "rule":
                    await self._write_rule(one)
                case "budget":
                    await self._write_budget(one)
        await self._session.flush()

    async def _write_agent(self, one: Difference) -> None:
        agent = one.after
        if one.agent_id is None:
            assert isinstance(agent, PolicyAgent)  # noqa: S101 - a difference of an agent contains agents
            # The name was valid when the document was stored, even if it is rejected for new agents by now.
            new = NewAgent.model_construct(name=agent.name, description=agent.description)
            row = await add_agent(self._session, self._context.plans, self._caller, self._environment, new)
            self._added[one.agent_reference] = row
            if not agent.enabled:
                await update_agent(self._session, self._caller, row, AgentChange(status="inactive"))
            return
        row = self._loaded.agents[one.agent_id]
        if agent is None:
            await remove_agent(self._session, self._caller, row)
            return
        changes = {name: after for name, (_, after) in one.fields.items()}
        if "enabled" in changes:
            changes["status"] = ACTIVE if changes.pop("enabled") else INACTIVE
        await update_agent(self._session, self._caller, row, AgentChange.model_construct(**changes))

    async def _write_permission(self, one: Difference) -> None:
        permission = one.after if one.after is not None else one.before
        assert isinstance(permission, NewPermission)  # noqa: S101 - as above
        if one.before is None:
            added = self._added.get(one.agent_reference)
            agent = self._loaded.agents[one.agent_id] if one.agent_id is not None else added
            assert agent is not None  # noqa: S101 - agents are added before their permissions
            await add_permission(self._session, self._caller, agent, permission)
            return
        row = self._loaded.permissions[one.agent_id or "", permission.action]
        if one.after is None:
            await remove_permission(self._session, self._caller, row)
            return
        change = PermissionChange.model_validate({name: after for name, (_, after) in one.fields.items()})
        await update_permission(self._session, self._caller, row, change)

    def _agent_ids(self, named: Iterable[str]) -> list[str]:
        """Return the ids of the agents that a rule or budget of the new policy names.

        Other agents of the environment can have the same names, so a name alone is not enough for the services.
        """
        found = [self._references.get(one, one) for one in named]
        return [self._added[one].id if one in self._added else one for one in found]

    def _changes(self, one: Difference) -> dict[str, Any]:
        changes = {name: after for name, (_, after) in one.fields.items()}
        return changes | {"agents": self._agent_ids(changes["agents"])} if "agents" in changes else changes

    async def _write_rule(self, one: Difference) -> None:
        if one.before is None:
            assert isinstance(one.after, NewRule)  # noqa: S101 - as above
            new = one.after.model_copy(update={"agents": self._agent_ids(one.after.agents)})
            await add_rule(self._session, self._caller, self._environment, new)
        elif one.after is None:
            await remove_rule(self._session, self._caller, self._loaded.rules[one.name])
        else:
            change = RuleChange.model_validate(self._changes(one))
            await update_rule(self._session, self._caller, self._loaded.rules[one.name], change)

    async def _write_budget(self, one: Difference) -> None:
        if one.before is not None and (one.after is None or one.replaces_budget):
            await remove_budget(self._session, self._caller, self._loaded.budgets[one.name])
        if isinstance(one.after, NewBudget) and (one.before is None or one.replaces_budget):
            new = one.after.model_copy(update={"agents": self._agent_ids(one.after.agents)})
            await add_budget(self._session, self._caller, self._environment, new)
        elif one.after is not None:
            change = BudgetChange.model_validate(self._changes(one))
            await update_budget(self._session, self._caller, self._loaded.budgets[one.name], change)
