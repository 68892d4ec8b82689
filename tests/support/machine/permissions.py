"""Rules of permissions: granted, changed, deleted by both paths, listed for people and for agents."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from support.machine.agents import AgentRules
from support.machine.driver import ACTIONS, refused, told
from support.machine.showing import compare_permission
from support.reference.facts import Agent, Permission

#: as JSON numbers that Python writes with the same digits
MAXIMA = (0, 0.1, 99.99, 100, 9007199254740992)
#: conditions that an approval request stores
_TERMS = {
    "max_amount": st.none() | st.sampled_from(MAXIMA),
    "amount_required": st.booleans(),
    "required_approvals": st.sampled_from([1, 1, 2, 2, 3]),
    "separation_of_duties": st.sampled_from([False, False, False, True]),
}
TERMS = st.fixed_dictionaries({}, optional=_TERMS)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional=_TERMS
    | {
        "requires_approval": st.sampled_from([True, True, False]),
        "approval_ttl_seconds": st.sampled_from([None, 600, 3600]),
    },
)


class PermissionRules(AgentRules):
    """What agents may do."""

    @rule(data=st.data(), action=st.sampled_from(ACTIONS), conditions=CONDITIONS)
    def permit(self, data: st.DataObject, action: str, conditions: dict[str, Any]) -> None:
        """Grant an action, preferably to an agent that has not got it."""
        living = [one for one in self.world.agents if not one.deleted]
        lacking = [one for one in living if action not in one.permissions]
        agent = self.choose(data, lacking or self.world.agents, "agent")
        caller = self.whoever(data, agent.tenant)
        person = self.choose(data, self.managers(caller), "person")
        self.grant(caller, agent, action, conditions, person)
        self.look(data, agent.id)

    @rule(data=st.data(), conditions=CONDITIONS)
    def change_permission(self, data: st.DataObject, conditions: dict[str, Any]) -> None:
        """Change what is sent; what waits for the permission goes on waiting."""
        found = self._some_permission(data)
        if found is None:
            return
        agent, permission = found
        caller = self.whoever(data, agent.tenant)
        if caller.organization != agent.tenant.organization:
            path = f"/api/permissions/{permission.id}"
            refused(self.manage_everywhere("PUT", caller, path, conditions), 404, "Permission not found")
            return
        person = self.choose(data, self.managers(caller), "person")
        self.change_conditions(person, agent, permission, conditions)
        self.look(data, agent.id)

    @rule(data=st.data(), by_agent=st.booleans())
    def delete_permission(self, data: st.DataObject, by_agent: bool) -> None:
        """Delete by either path; what is open for it is cancelled."""
        found = self._some_permission(data)
        if found is None or data.draw(st.integers(0, 2), label="one in three") > 0:
            return
        agent, permission = found
        caller = self.whoever(data, agent.tenant)
        if by_agent:
            answer = self.manage("DELETE", caller, f"/api/agents/{agent.id}/permissions/{permission.id}")
        else:
            answer = self.manage_everywhere("DELETE", caller, f"/api/permissions/{permission.id}")
        if by_agent and caller != agent.tenant:
            refused(answer, 404, "Agent not found")
        elif caller.organization != agent.tenant.organization:
            refused(answer, 403, "Permission not found")
        else:
            told(answer, 204)
            self.world.delete_permission(agent, permission, self.now())
            self.counts.seen["permission: deleted"] += 1
            self.look(data, agent.id)

    @rule(data=st.data(), by_key=st.booleans())
    def list_permissions(self, data: st.DataObject, by_key: bool) -> None:
        """People see all of an agent's permissions, newest first; an inactive agent is told that it may do nothing."""
        agent = self.choose(data, self.world.agents, "agent")
        caller = self.whoever(data, agent.tenant)
        if by_key:
            answer = self.call("GET", caller, f"/sdk/permissions?agent_id={agent.id}")
        else:
            answer = self.manage("GET", caller, f"/api/agents/{agent.id}/permissions")
        if caller != agent.tenant or agent.deleted:
            refused(answer, 404, "Agent not found")
            return
        shown = told(answer)
        assert isinstance(shown, list)
        expected = list(reversed(agent.permissions.values())) if agent.active or not by_key else []
        assert [one["id"] for one in shown] == [one.id for one in expected]
        for permission, one in zip(expected, shown, strict=True):
            compare_permission(agent, permission, one)
        self.look(data)

    def _some_permission(self, data: st.DataObject) -> tuple[Agent, Permission] | None:
        held = [(agent, one) for agent in self.world.agents for one in agent.permissions.values()]
        return self.choose(data, held, "permission") if held else None
