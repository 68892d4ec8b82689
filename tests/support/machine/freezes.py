"""Rules of freezes: created for the organization, an agent or an action, lifted, and listed."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.driver import ACTIONS, refused, told
from support.machine.permissions import PermissionRules
from support.reference.facts import Freeze

#: mostly narrow, so that most calls are decided by the permissions
PATTERNS = st.sampled_from([*ACTIONS, "db.*", "pay*", "mail.*", None])
MOST_FREEZES = 2


class FreezeRules(PermissionRules):
    """Freezes of both organizations."""

    @precondition(lambda self: len(self.world.freezes) < MOST_FREEZES)
    @rule(data=st.data(), action=PATTERNS, of_agent=st.booleans())
    def freeze(self, data: st.DataObject, action: str | None, of_agent: bool) -> None:
        """Deny calls from the next check on."""
        if data.draw(st.integers(0, 2), label="one in three") > 0:
            return
        agent = self.choose(data, self.world.agents, "agent")
        caller = self.whoever(data, agent.tenant)
        reason = f"freeze {len(self.world.freezes)}"
        body: dict[str, Any] = {
            "action": action,
            "reason": reason,
            "agent_id": agent.id if of_agent else None,
        }
        answer = self.manage_everywhere("POST", caller, "/api/freeze", body)
        if of_agent and (agent.deleted or agent.tenant.organization != caller.organization):
            refused(answer, 404, "Agent not found")
            return
        shown: Any = told(answer, 201)
        assert {name: shown[name] for name in body} == body
        self.world.freezes.append(Freeze(shown["id"], caller.organization, body["agent_id"], action, reason))
        self.counts.seen["frozen"] += 1
        self.look(data)

    @precondition(lambda self: self.world.freezes)
    @rule(data=st.data())
    def lift(self, data: st.DataObject) -> None:
        """End a freeze; a user of another organization cannot."""
        freeze = self.choose(data, self.world.freezes, "freeze")
        caller = self.whoever(data, self.tenants[0])
        path = f"/api/freeze/{freeze.id}"
        answer = self.manage_everywhere("POST", caller, f"{path}/lift")
        if caller.organization != freeze.organization:
            refused(answer, 404, "Freeze not found")
            return
        assert told(answer)["lifted_at"] is not None
        refused(self.manage_everywhere("POST", caller, f"{path}/lift"), 409, "Freeze was already lifted")
        self.world.freezes.remove(freeze)
        self.counts.seen["lifted"] += 1
        self.look(data)

    @rule(data=st.data())
    def list_freezes(self, data: st.DataObject) -> None:
        """The active freezes of the organization are listed, newest first."""
        caller = self.tenant(data)
        shown: Any = told(self.manage_everywhere("GET", caller, "/api/freeze"))
        own = [one.id for one in reversed(self.world.freezes) if one.organization == caller.organization]
        assert [one["id"] for one in shown] == own
