"""A person decides what is held, and it is asked for again."""

from dataclasses import replace

from hypothesis import strategies as st

from support.machine.driver import ACTIONS
from support.machine.judging import Judging
from support.reference.checking import Question
from support.reference.facts import Tenant

NOTES = st.sampled_from([None, "not today", "Ask Zoë"])
#: how far back a question may lie that is asked again
RECENT = 6
USUAL = ("1", "99.99", "100", "100.5", "-1", '"1"')


class Deciding(Judging):
    """The machine without its rules, able to ask and to decide."""

    def pursue(self, data: st.DataObject, tenant: Tenant, question: Question) -> None:
        """Ask; what is held is now and then decided at once and asked for again."""
        held = self.put(tenant, question).approval
        if held is None:
            return
        what = self.choose(data, ["leave", "leave", "approve", "approve", "deny"], "what is held")
        if what != "leave":
            decided = self.judge(data, held, what == "approve", data.draw(NOTES, label="note"))
            if decided.state(self.now()) == "pending":
                # Another person's word is wanted.
                decided = self.judge(data, decided, True, data.draw(NOTES, label="note"))
            if decided is not held:
                edited = self.questions[decided.id][1]
                if data.draw(st.booleans(), label="without its id"):
                    self.put(tenant, replace(edited, approval_id=None))
                self.put(tenant, self.almost(data, edited))
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                self.put(tenant, self.almost(data, question))
            for grant in [one for one in self.world.grants if one.approval_id == held.id]:
                if data.draw(st.integers(0, 2), label="revoke it") == 0:
                    self.revoke(data, grant)

    def almost(self, data: st.DataObject, question: Question) -> Question:
        """Return a question in other words, which now and then is not quite the same."""
        again = self.in_other_words(data, question)
        change = data.draw(st.sampled_from(["", "", "", "", "run", "call", "facts", "dry"]), label="change")
        return replace(
            again,
            run_id="another run" if change == "run" else again.run_id,
            call_id="another call" if change == "call" else again.call_id,
            context='{"amount":2}' if change == "facts" else again.context,
            dry_run=change == "dry",
        )

    def look(self, data: st.DataObject, agent_id: str | None = None) -> None:
        """Ask at once, mostly as before and of the same agent: what was changed holds for the very next check."""
        asked = [(tenant, one) for tenant, one in self.asked if agent_id in {None, one.agent_id}][-RECENT:]
        if asked and data.draw(st.integers(0, 3), label="as before") < 3:
            tenant, question = self.choose(data, asked, "asked before")
            self.pursue(data, tenant, self.in_other_words(data, question))
        else:
            self.ask_something_usual(data)

    def ask_something_usual(self, data: st.DataObject) -> None:
        """Ask as most callers do, for something that is more or less within bounds."""
        action = self.choose(data, ACTIONS, "action")
        amount = self.choose(data, USUAL, "amount")
        able = [one for one in self.world.agents if one.active and action in one.permissions]
        if able:
            agent = self.choose(data, able, "agent")
            self.pursue(data, agent.tenant, Question(agent.id, action, f'{{"amount":{amount}}}'))
