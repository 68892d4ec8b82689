"""Rules of checks: asked anew, asked again in other words, repeated by a caller who lost the answer."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.budgets import BudgetRules
from support.machine.driver import ACTIONS
from support.machine.wording import contexts
from support.reference.checking import Question
from support.reference.facts import Tenant

RUNS = st.sampled_from([None, None, None, "run-1", "run-2"])
CALLS = st.sampled_from([None, None, None, "call-1", "call-2"])
KEYS = st.sampled_from([None, None, "key-1", "key-2", "key-3"])
NOBODY = "0199b2c4-7c1e-7000-8000-000000000000"


class CheckRules(BudgetRules):
    """May this agent do this now?"""

    @rule(data=st.data(), action=st.sampled_from(ACTIONS), run=RUNS, call=CALLS, key=KEYS)
    def ask(
        self, data: st.DataObject, action: str, run: str | None, call: str | None, key: str | None
    ) -> None:
        """Ask whatever one may ask."""
        agent = self.choose(data, self.world.agents, "agent")
        agent_id = self.choose(data, [agent.id] * 9 + [NOBODY], "named")
        context = data.draw(contexts(), label="context")
        dry_run = self.choose(data, [False] * 5 + [True], "dry run")
        named = self._some_approval(data)
        question = Question(agent_id, action, context, named, call, run, dry_run, key)
        self.pursue(data, self.whoever(data, agent.tenant), question)

    @rule(data=st.data())
    def ask_plainly(self, data: st.DataObject) -> None:
        """Ask as most callers do."""
        self.ask_something_usual(data)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        """Ask the same in other words."""
        tenant, question = self.choose(data, self.asked, "asked before")
        self.pursue(data, tenant, self.in_other_words(data, question))

    @precondition(lambda self: self._approved())
    @rule(data=st.data(), key=KEYS)
    def ask_for_approved(self, data: st.DataObject, key: str | None) -> None:
        """Ask for what a person has approved; now and then it is not quite the same, or somebody else asks."""
        tenant, question = self.choose(data, self._approved(), "approved")
        self.put(self.whoever(data, tenant), replace(self.almost(data, question), idempotency_key=key))

    @precondition(lambda self: self._attempts())
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Repeat a request, byte for byte, as a transport does that lost the answer."""
        tenant, question = self.choose(data, self._attempts(), "attempt")
        self.put(tenant, question)

    def _some_approval(self, data: st.DataObject) -> str | None:
        if not self.world.approvals or data.draw(st.integers(0, 5), label="names an approval") > 0:
            return None
        return self.choose(data, self.world.approvals, "approval").id

    def _approved(self) -> list[tuple[Tenant, Question]]:
        # Each as it was first asked, by its id, and without: what was edited does not pass then.
        approved = [one for one in self.world.approvals if one.state(self.now()) == "approved"]
        found = []
        for approval in approved:
            tenant, question = self.questions[approval.id]
            found += [
                (tenant, replace(question, approval_id=named))
                for named in (question.approval_id, approval.id, None)
            ]
        return found

    def _attempts(self) -> list[tuple[Tenant, Question]]:
        return [(tenant, question) for tenant, question in self.asked if question.idempotency_key]
