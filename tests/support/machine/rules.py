"""Rules of an environment: created, changed, deleted and listed."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.driver import ACTIONS, refused, told
from support.machine.freezes import FreezeRules
from support.reference.facts import CONDITIONS, Rule

PATTERNS = st.sampled_from(
    [(ACTIONS[0],), (ACTIONS[1],), (ACTIONS[2],), ("pay*", "db.*"), ("mail.*",), ("*",)]
)
#: mostly rules that hold calls or allow them, so that not everything is forbidden
EFFECTS = st.sampled_from(["forbid", "require_approval", "require_approval", "allow", "allow"])
MOST_RULES = 4


class RuleRules(FreezeRules):
    """Rules of both organizations, beside their permissions."""

    @precondition(lambda self: len(self.world.rules) < MOST_RULES)
    @rule(
        data=st.data(),
        effect=EFFECTS,
        actions=PATTERNS,
        condition=st.none() | st.sampled_from(CONDITIONS),
        of_agent=st.booleans(),
        required=st.sampled_from([None, None, 1, 2]),
        waits=st.sampled_from([None, None, 600]),
    )
    def create_rule(
        self,
        data: st.DataObject,
        effect: str,
        actions: tuple[str, ...],
        condition: str | None,
        of_agent: bool,
        required: int | None,
        waits: int | None,
    ) -> None:
        """Make a rule, which holds for the very next check."""
        agent = self.choose(data, self.world.agents, "agent")
        tenant = agent.tenant
        approval: dict[str, Any] | None = None
        if effect == "require_approval":
            people = self.people(tenant)
            chosen = self.choose(data, [None, None, people[:1], people[:2]], "approvers")
            approval = {"quorum": required, "ttl": waits, "approvers": chosen}
        name = f"rule {self.counts.seen['rule']}"
        agents = [agent.id] if of_agent else ["*"]
        body = {"name": name, "effect": effect, "agents": agents, "actions": actions, "when": condition}
        answer = self.manage("POST", tenant, "/api/rules", body | {"approval": approval})
        if of_agent and agent.deleted:
            assert answer.status_code == 400, answer.text
            return
        shown: Any = told(answer, 201)
        made = Rule(
            shown["id"], tenant, name, effect, frozenset({agent.id}) if of_agent else None, actions, condition
        )
        if approval is not None:
            approvers = approval["approvers"]
            made.required, made.waits = required, waits
            made.approvers = None if approvers is None else frozenset(approvers)
        self.world.rules.append(made)
        self.counts.seen["rule"] += 1
        self.counts.seen[f"rule: {effect}"] += 1
        self.look(data, agent.id)

    @precondition(lambda self: self.world.rules)
    @rule(data=st.data(), what=st.sampled_from(["enable", "disable", "delete", "forbid", "allow"]))
    def change_rule(self, data: st.DataObject, what: str) -> None:
        """Change or delete a rule; what is not the caller's own is not found."""
        one = self.choose(data, self.world.rules, "rule")
        caller = self.whoever(data, one.tenant)
        path = f"/api/rules/{one.id}"
        if what == "delete":
            answer = self.manage("DELETE", caller, path)
        elif what in {"enable", "disable"}:
            answer = self.manage("PUT", caller, path, {"enabled": what == "enable"})
        else:
            answer = self.manage("PUT", caller, path, {"effect": what})
        if caller != one.tenant:
            refused(answer, 404, "Rule not found")
            return
        if what == "delete":
            told(answer, 204)
            self.world.rules.remove(one)
        elif what in {"enable", "disable"}:
            told(answer)
            one.enabled = what == "enable"
        else:
            told(answer)
            one.effect, one.required, one.waits, one.approvers = what, None, None, None
        self.counts.seen["rule changed"] += 1
        self.look(data)

    @rule(data=st.data())
    def list_rules(self, data: st.DataObject) -> None:
        """The rules of an environment are listed, newest first."""
        tenant = self.tenant(data)
        shown: Any = told(self.manage("GET", tenant, "/api/rules"))
        own = [one for one in reversed(self.world.rules) if one.tenant == tenant]
        assert [(one["id"], one["effect"], one["enabled"]) for one in shown] == [
            (one.id, one.effect, one.enabled) for one in own
        ]
