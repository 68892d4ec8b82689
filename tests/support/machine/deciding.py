"""A person decides what is held, and it is asked for again."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from support.machine.asking import Asking
from support.machine.driver import ACTIONS, refused, told
from support.reference.checking import Question
from support.reference.facts import Approval, Tenant, meaning

NOTES = st.sampled_from([None, "not today", "Ask Zoë"])
#: how far back a question may lie that is asked again
RECENT = 6
USUAL = ("1", "99.99", "100", "100.5", "-1", '"1"')


class Deciding(Asking):
    """The machine without its rules, able to ask and to decide."""

    def pursue(self, data: st.DataObject, tenant: Tenant, question: Question) -> None:
        """Ask; what is held is now and then decided at once and asked for again."""
        held = self.put(tenant, question).approval
        if held is None:
            return
        what = self.choose(data, ["leave", "leave", "approve", "approve", "deny"], "what is held")
        if what != "leave":
            self.judge(data, held, what == "approve", data.draw(NOTES, label="note"))
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                self.put(tenant, self.almost(data, question))

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

    def judge(self, data: st.DataObject, approval: Approval, approve: bool, note: str | None) -> None:
        """Approve or deny something at both, now and then as somebody who may not."""
        caller = self.whoever(data, approval.tenant)
        path = f"/api/approvals/{approval.id}/{'approve' if approve else 'deny'}"
        answer = self.manage("POST", caller, path, None if note is None else {"note": note})
        if caller != approval.tenant:
            refused(answer, 404, "Approval not found")
        elif self.world.decide(approval, approve=approve, note=note, now=self.now()):
            self.counts.seen["approved" if approve else "denied"] += 1
            self.shows_approval(approval, told(answer), for_people=True)
        else:
            state = approval.state(self.now())
            refused(answer, 409, f"Approval is no longer pending: it is {state}")

    def shows_approval(self, approval: Approval, shown: Any, *, for_people: bool) -> None:
        """Compare an approval with how it is shown."""
        for name in ("id", "agent_id", "action", "run_id", "call_id", "note"):
            assert shown[name] == getattr(approval, name), (name, shown)
        assert shown["status"] == approval.state(self.now())
        assert meaning(shown["context"]) == approval.context
        moments = {
            "created_at": approval.created,
            "expires_at": approval.until,
            "decided_at": approval.decided,
        }
        if for_people:
            user = self.organizations[approval.tenant.organization].user_id
            assert shown["decided_by"] == (user if approval.decided else None)
            assert shown["agent_name"] == self.world.named(approval.agent_id).name
            assert shown["permission_id"] == approval.permission_id
            moments |= {"consumed_at": approval.consumed, "cancelled_at": approval.cancelled}
        else:
            assert not {"decided_by", "agent_name"} & set(shown)
        for name, moment in moments.items():
            self._same_moment(shown[name], moment)

    def _same_moment(self, shown: str | None, moment: datetime | None) -> None:
        assert (shown is None) == (moment is None)
        if shown is not None and self.clock.settable:
            assert datetime.fromisoformat(shown) == moment
