"""Rules of what is allowed for a while, of who may decide, and of what the gateway does by itself."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.approvals import ApprovalRules
from support.machine.paging import Wanted, compare_list
from support.reference.facts import Grant, Tenant


class GrantRules(ApprovalRules):
    """Grants are revoked and listed, people lose their right and regain it, jobs run, the gateway restarts."""

    @precondition(lambda self: self._active())
    @rule(data=st.data())
    def use_grant(self, data: st.DataObject) -> None:
        """Ask for what is allowed for a while, or almost."""
        grant = self.choose(data, self._active(), "grant")
        tenant, question = self.questions[grant.approval_id]
        for _ in range(data.draw(st.integers(1, 3), label="times")):
            self.put(tenant, self.almost(data, question))
        if data.draw(st.integers(0, 2), label="then revoke it") == 0:
            self.revoke(data, grant)

    @precondition(lambda self: self.world.grants)
    @rule(data=st.data())
    def revoke_grant(self, data: st.DataObject) -> None:
        """Revoke; the very next check is held."""
        self.revoke(data, self.choose(data, self._active() or self.world.grants, "grant"))

    @rule(data=st.data(), status=st.sampled_from(["proposed", "active", "exhausted", "expired", "revoked"]))
    def list_grants(self, data: st.DataObject, status: str) -> None:
        """Lists hold what matches, newest first."""
        self.compare_grants(self.tenant(data), status)

    def compare_grants(self, tenant: Tenant, status: str | None = None) -> None:
        """Compare a list of grants."""
        expected = {
            one.id: one
            for one in reversed(self.world.grants)
            if one.tenant == tenant and status in {None, one.state(self.now())}
        }
        filters = {"status": status}
        shown = compare_list(
            self.manage_now, tenant, "/api/grants", filters, Wanted(limit=20, along=True), list(expected)
        )
        for one in shown:
            self.shows_grant(expected[one["id"]], one)

    @rule(data=st.data())
    def change_role(self, data: st.DataObject) -> None:
        """Somebody loses the right to decide, or regains it; their words count or no longer do, at once."""
        person = self.choose(data, self.people(self.tenants[0])[1:], "person")
        self.turn_role(person)
        mine = [one for one in self.world.approvals if person in one.voters and one.id in self.questions]
        if mine:
            self.put(*self.questions[self.choose(data, mine, "voted on").id])

    @rule(data=st.data())
    def do_jobs(self, data: st.DataObject) -> None:
        """What has run out is marked, who must decide is reminded: nothing that is shown changes."""
        self.run_jobs()
        self.look(data)

    @rule(data=st.data(), chance=st.integers(0, 1))
    def restart(self, data: st.DataObject, chance: int) -> None:
        """The gateway ends and begins anew; nothing is forgotten."""
        if chance == 0:
            self.begin_anew()
            self.look(data)

    def _active(self) -> list[Grant]:
        return [
            one
            for one in self.world.grants
            if one.state(self.now()) == "active" and one.approval_id in self.questions
        ]
