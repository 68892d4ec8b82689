"""Budgets of an environment: created, switched off and on, deleted, and what is left of them."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.driver import ACTIONS, refused, told
from support.machine.rules import RuleRules
from support.reference.facts import Budget

MOST_BUDGETS = 3


class BudgetRules(RuleRules):
    """Budgets of both organizations."""

    @precondition(lambda self: len(self.world.budgets) < MOST_BUDGETS)
    @rule(
        data=st.data(),
        scope=st.sampled_from(["organization", "agent", "run"]),
        action=st.sampled_from([*ACTIONS, "*"]),
        argument=st.sampled_from([None, None, "amount"]),
        window=st.sampled_from(["hour", 600]),
        of_agent=st.booleans(),
        limit=st.sampled_from([1, 3, 150, 100.5]),
        at_limit=st.sampled_from(["deny", "require_approval"]),
    )
    def create_budget(
        self,
        data: st.DataObject,
        scope: str,
        action: str,
        argument: str | None,
        window: str | int,
        of_agent: bool,
        limit: float,
        at_limit: str,
    ) -> None:
        """Make a budget, towards which the very next call counts."""
        agent = self.choose(data, self.world.agents, "agent")
        name = f"budget {self.counts.seen['budget']}"
        body = {
            "name": name,
            "scope": scope,
            "agents": [agent.id] if of_agent else ["*"],
            "actions": [action],
            "measure": "count" if argument is None else f"sum(args.{argument})",
            "window": window if isinstance(window, str) else f"rolling({window})",
            "limit": limit,
            "at_limit": at_limit,
        }
        answer = self.manage("POST", agent.tenant, "/api/budgets", body)
        if of_agent and agent.deleted:
            assert answer.status_code == 400, answer.text
            return
        shown: Any = told(answer, 201)
        agents = frozenset({agent.id}) if of_agent else None
        self.world.budgets.append(
            Budget(
                shown["id"],
                agent.tenant,
                name,
                scope,
                agents,
                action,
                argument,
                window,
                Decimal(repr(limit)),
                at_limit,
            )
        )
        self.counts.seen["budget"] += 1
        self.look(data, agent.id)

    @precondition(lambda self: self.world.budgets)
    @rule(data=st.data(), what=st.sampled_from(["switch", "switch", "delete", "deny", "require_approval"]))
    def change_budget(self, data: st.DataObject, what: str) -> None:
        """Change or delete a budget; what is not the caller's own is not found."""
        one = self.choose(data, self.world.budgets, "budget")
        caller = self.whoever(data, one.tenant)
        path = f"/api/budgets/{one.id}"
        if what == "delete":
            answer = self.manage("DELETE", caller, path)
        elif what == "switch":
            answer = self.manage("PUT", caller, path, {"enabled": not one.enabled})
        else:
            answer = self.manage("PUT", caller, path, {"at_limit": what})
        if caller != one.tenant:
            refused(answer, 404, "Budget not found")
            return
        told(answer, 204 if what == "delete" else 200)
        if what == "delete":
            self.world.budgets.remove(one)
        elif what == "switch":
            one.enabled = not one.enabled
        else:
            one.at_limit = what
        self.counts.seen["budget changed"] += 1
        self.look(data)

    @precondition(lambda self: self.world.budgets)
    @rule(data=st.data())
    def read_usage(self, data: st.DataObject) -> None:
        """What is used and left of each total is what the calls and their outcomes add up to."""
        one = self.choose(data, self.world.budgets, "budget")
        shown: Any = told(self.manage("GET", one.tenant, f"/api/budgets/{one.id}/usage", limit=100))
        now = self.now()
        mine = [each for each in self.world.reservations if each.budget.id == one.id]
        for total in shown:
            subject = total["subject"] or ""
            within = [each for each in mine if each.subject == subject and one.contains(each.created, now)]
            for name, state in (("used", "settled"), ("reserved", "unsettled")):
                expected = sum((each.amount for each in within if each.state == state), Decimal(0))
                assert total[name] == expected, (name, total, within)
            assert total["left"] == one.limit - self.world.total(one, subject, now)
        subjects = {total["subject"] or "" for total in shown}
        assert {each.subject for each in mine if one.contains(each.created, now)} <= subjects
