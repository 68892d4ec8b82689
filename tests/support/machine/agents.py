"""Rules of agents and permissions."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from support.machine.driver import ACTIONS, refused, told
from support.machine.scenes import SCENES, Scenes
from support.machine.showing import compare_permission
from support.reference.facts import Agent, Permission, Tenant

MOST_AGENTS = 9


class AgentRules(Scenes):
    """Agents and their permissions, made, changed and removed."""

    @initialize(scene=st.sampled_from(SCENES))
    def begin(self, scene: str) -> None:
        """Begin with an agent of each kind of tenant that may do something."""
        for tenant in (self.tenants[0], self.tenants[0], self.tenants[1], self.tenants[2]):
            agent = self.make_agent(tenant, "bot", None)
            self.grant(tenant, agent, ACTIONS[0], {})
            self.grant(tenant, agent, ACTIONS[1], {"requires_approval": True, "max_amount": 100})
        for agent, people in zip(self.world.agents, (2, 1), strict=False):
            fields = {"requires_approval": True, "required_approvals": people, "max_amount": 100}
            self.grant(self.tenants[0], agent, ACTIONS[2], fields)
        self.play(scene)

    @precondition(lambda self: len(self.world.agents) < MOST_AGENTS)
    @rule(data=st.data(), name=st.sampled_from(["bot", "b", "Zoë"]), words=st.none() | st.just("does things"))
    def create_agent(self, data: st.DataObject, name: str, words: str | None) -> None:
        """Make an agent; it may do nothing yet."""
        self.make_agent(self.tenant(data), name, words)
        self.look(data)

    @rule(data=st.data(), what=st.sampled_from(["rename", "describe", "switch", "switch", "delete"]))
    def change_agent(self, data: st.DataObject, what: str) -> None:
        """Rename, describe, switch off or on, delete; what is not the caller's own is not found."""
        off = [agent for agent in self.world.agents if not agent.active and not agent.deleted]
        agent = self.choose(data, off or self.world.agents, "agent")
        caller = self.whoever(data, agent.tenant)
        path = f"/api/agents/{agent.id}"
        if what == "delete":
            answer = self.manage("DELETE", caller, path)
        else:
            answer = self.manage("PUT", caller, path, _change(agent, what))
        if caller != agent.tenant or agent.deleted:
            refused(answer, 404, "Agent not found")
            return
        self._follow(agent, what)
        self.counts.seen[f"agent: {what}"] += 1
        if what == "delete":
            told(answer, 204)
        else:
            self.shows(agent, told(answer))
        self.look(data, agent.id)

    def _follow(self, agent: Agent, what: str) -> None:
        match what:
            case "delete":
                self.world.delete_agent(agent, self.now())
            case "switch":
                self.world.switch(agent, active=not agent.active, now=self.now())
            case _:
                change = _change(agent, what)
                agent.name = change.get("name", agent.name)
                agent.description = change.get("description", agent.description)

    @rule(data=st.data())
    def list_agents(self, data: st.DataObject) -> None:
        """A tenant's agents are listed, newest first, and no others."""
        tenant = self.tenant(data)
        shown = told(self.manage("GET", tenant, "/api/agents"))
        assert isinstance(shown, list)
        agents = self.world.agents_of(tenant)
        assert [one["id"] for one in shown] == [agent.id for agent in agents]
        for agent, one in zip(agents, shown, strict=True):
            self.shows(agent, one)
        self.look(data)

    def shows(self, agent: Agent, shown: Any) -> None:
        """Compare an agent with how it is shown."""
        status = "active" if agent.active else "inactive"
        expected = (agent.id, agent.name, agent.description, status)
        assert (shown["id"], shown["name"], shown["description"], shown["status"]) == expected
        assert shown["created_by"] == self.organizations[agent.tenant.organization].user_id

    def make_agent(self, tenant: Tenant, name: str, words: str | None) -> Agent:
        """Make an agent at both."""
        shown: Any = told(
            self.manage("POST", tenant, "/api/agents", {"name": name, "description": words}), 201
        )
        agent = Agent(shown["id"], tenant, name, words)
        agent.creator = self.organizations[tenant.organization].user_id
        assert self.world.agent(tenant, agent.id) is None
        self.world.agents.append(agent)
        self.shows(agent, shown)
        return agent

    def grant(
        self, tenant: Tenant, agent: Agent, action: str, fields: dict[str, Any], person: str | None = None
    ) -> None:
        """Grant an action at both, as a user or as the founder; an agent has one permission for an action."""
        person = person or self.people(tenant)[0]
        path = f"/api/agents/{agent.id}/permissions"
        answer = self.manage_as("POST", person, tenant, path, {"action": action, **fields})
        if agent.tenant != tenant or agent.deleted:
            refused(answer, 404, "Agent not found")
        elif action in agent.permissions:
            refused(answer, 400, "Permission already exists for this action")
        else:
            shown: Any = told(answer, 201)
            given = fields.get("max_amount")
            maximum = None if given is None else Decimal(repr(given))
            permission = Permission(
                shown["id"],
                action,
                fields.get("requires_approval", False),
                maximum,
                fields.get("amount_required", False),
                fields.get("required_approvals", 1),
                fields.get("separation_of_duties", False),
                fields.get("approval_ttl_seconds"),
                {person},
            )
            agent.permissions[action] = permission
            compare_permission(agent, permission, shown)


def _change(agent: Agent, what: str) -> dict[str, Any]:
    match what:
        case "switch":
            return {"status": "inactive" if agent.active else "active"}
        case "rename":
            return {"name": f"{agent.name[:20]}'"}
    return {"description": None if agent.description else "does other things"}
