"""Rules of approvals: decided, withdrawn, read and listed by people and by agents."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.checks import CheckRules
from support.machine.deciding import NOTES
from support.machine.driver import ACTIONS, refused, told
from support.machine.paging import Wanted, compare_list, wanted
from support.machine.permissions import TERMS
from support.reference.facts import NO_PERMISSION, Approval, Tenant

STATES = ("pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed")


class ApprovalRules(CheckRules):
    """What becomes of a held check."""

    @precondition(lambda self: self._in_state("pending"))
    @rule(data=st.data(), note=NOTES)
    def approve(self, data: st.DataObject, note: str | None) -> None:
        """Approve something that waits."""
        approval = self.choose(data, self._in_state("pending"), "pending")
        self.judge(data, approval, True, note)
        self.look(data, approval.agent_id)

    @precondition(lambda self: self._of_permissions())
    @rule(data=st.data(), terms=TERMS, again=st.booleans(), note=NOTES)
    def change_terms(self, data: st.DataObject, terms: dict[str, Any], again: bool, note: str | None) -> None:
        """Change the terms of something that waits; then approve it, with another check before it or without."""
        approval = self.choose(data, self._of_permissions(), "pending")
        owner = self.world.owner_of(approval.permission_id)
        assert owner is not None
        person = self.choose(data, self.managers(approval.tenant), "person")
        self.change_conditions(person, *owner, terms)
        if again:
            self.put(*self.questions[approval.id])
        decided = self.judge(data, approval, True, note)
        self.put(*self.questions[decided.id])

    @precondition(lambda self: self.world.approvals)
    @rule(data=st.data(), approve=st.booleans(), note=NOTES)
    def decide(self, data: st.DataObject, approve: bool, note: str | None) -> None:
        """Decide whatever was ever asked, also what is no longer pending or not one's own."""
        approval = self.choose(data, self.world.approvals, "approval")
        self.judge(data, approval, approve, note)
        self.look(data, approval.agent_id)

    @precondition(lambda self: self.world.approvals)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """Cancel by the key what is open; it stays cancelled."""
        approval = self.choose(data, self.world.approvals, "approval")
        caller = self.whoever(data, approval.tenant)
        if self.withdraw_by(caller, approval):
            self.look(data, approval.agent_id)

    @precondition(lambda self: self.world.approvals)
    @rule(data=st.data(), by_key=st.booleans())
    def read_approval(self, data: st.DataObject, by_key: bool) -> None:
        """Read one, as a person or as the agent."""
        approval = self.choose(data, self.world.approvals, "approval")
        caller = self.whoever(data, approval.tenant)
        path = f"/approvals/{approval.id}"
        answer = (
            self.call("GET", caller, f"/sdk{path}") if by_key else self.manage("GET", caller, f"/api{path}")
        )
        if caller != approval.tenant:
            refused(answer, 404, "Approval not found")
        else:
            self.shows_approval(approval, told(answer), for_people=not by_key)
        self.look(data)

    @rule(
        data=st.data(),
        status=st.none() | st.sampled_from(STATES),
        action=st.none() | st.sampled_from(ACTIONS),
        page=wanted(),
    )
    def list_approvals(
        self, data: st.DataObject, status: str | None, action: str | None, page: Wanted
    ) -> None:
        """Lists hold what matches, newest first, page by page."""
        tenant = self.tenant(data)
        agent_id = self.choose(data, [None, None, *self.world.agents], "agent")
        filters = {"status": status, "action": action, "agent_id": agent_id and agent_id.id}
        self.compare_approvals(tenant, filters, page)
        self.look(data)

    def compare_approvals(self, tenant: Tenant, filters: dict[str, str | None], page: Wanted) -> None:
        """Compare a list of approvals."""
        now = self.now()
        expected = [
            one
            for one in reversed(self.world.approvals)
            if one.tenant == tenant
            and filters["status"] in {None, one.state(now)}
            and filters["action"] in {None, one.action}
            and filters["agent_id"] in {None, one.agent_id}
        ]
        shown = compare_list(
            self.manage_now, tenant, "/api/approvals", filters, page, [one.id for one in expected]
        )
        by_id = {one.id: one for one in expected}
        for one in shown:
            self.shows_approval(by_id[one["id"]], one, for_people=True)

    def _of_permissions(self) -> list[Approval]:
        return [one for one in self._in_state("pending") if one.permission_id != NO_PERMISSION]

    def _in_state(self, state: str) -> list[Approval]:
        return [one for one in self.world.approvals if one.state(self.now()) == state]
