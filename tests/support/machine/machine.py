"""All the rules together, with time."""

import sys
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from support.machine.logs import LogRules
from support.machine.paging import Wanted
from support.reference.facts import Approval

#: around the moments at which something ends
PASSING = st.sampled_from(
    [
        timedelta(seconds=20),
        timedelta(minutes=2),
        timedelta(minutes=5),
        timedelta(minutes=10),
        timedelta(minutes=59),
        timedelta(hours=1),
        timedelta(hours=23),
        timedelta(hours=24),
    ]
)
#: tokens end after seven days
LONGEST = timedelta(days=6)


class GatewayMachine(LogRules):
    """Everything that may be done, in any order."""

    def teardown(self) -> None:
        """At the end, whatever every tenant has is what it should have."""
        if sys.exc_info()[0] is not None:
            # There was a disagreement already, and this must not hide it.
            return
        for tenant in self.tenants:
            nothing = dict.fromkeys(("status", "action", "agent_id"))
            self.compare_approvals(tenant, nothing, Wanted(limit=20, along=True))
            self.compare_grants(tenant)
            self.compare_logs(tenant, nothing, Wanted(limit=20, along=True))

    @invariant()
    def count_steps(self) -> None:
        """Count."""
        self.counts.steps += 1

    @precondition(lambda self: self.clock.settable and self.now() - self.began < LONGEST)
    @rule(data=st.data(), by=PASSING)
    def time_passes(self, data: st.DataObject, by: timedelta) -> None:
        """Let time pass."""
        self.clock.advance(by)
        self.counts.seen["time passed"] += 1
        self.look(data)

    @precondition(lambda self: self.clock.settable and self._ends())
    @rule(
        data=st.data(),
        early=st.sampled_from([timedelta(0), timedelta(milliseconds=1), timedelta(milliseconds=2)]),
    )
    def something_is_about_to_end(self, data: st.DataObject, early: timedelta) -> None:
        """Go to where an approval ends, or just before; then look at it."""
        approval = self.choose(data, self._ends(), "ending")
        self.clock.advance(approval.until - self.now() - early)
        self.counts.seen["time passed"] += 1
        self.put(*self.questions[approval.id])

    def _ends(self) -> list[Approval]:
        soon = [one for one in self.world.approvals if one.state(self.now()) in {"pending", "approved"}]
        return soon if self.now() - self.began < LONGEST else []
