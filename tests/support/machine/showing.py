"""Comparing what is shown of approvals and grants with the reference."""

from datetime import datetime
from typing import Any

from support.machine.driver import Driver
from support.reference.facts import Agent, Approval, Grant, Permission, meaning


class Showing(Driver):
    """The machine without its rules, able to compare."""

    def shows_approval(self, approval: Approval, shown: Any, *, for_people: bool) -> None:
        """Compare an approval with how it is shown."""
        for name in ("id", "agent_id", "action", "run_id", "call_id", "note"):
            assert shown[name] == getattr(approval, name), (name, shown)
        assert shown["status"] == approval.state(self.now())
        assert meaning(shown["context"]) == approval.context
        assert shown["replaced_by"] == (approval.successor and approval.successor.id)
        self._shows_edit(approval, shown["approved_context"])
        moments = {
            "created_at": approval.created,
            "expires_at": approval.until,
            "decided_at": approval.decided,
        }
        if for_people:
            self._shows_people(approval, shown)
            moments |= {"consumed_at": approval.consumed, "cancelled_at": approval.cancelled}
        else:
            assert not {"decided_by", "agent_name", "votes", "grant_id"} & set(shown)
        for name, moment in moments.items():
            self._same_moment(shown[name], moment)

    def _shows_edit(self, approval: Approval, shown: Any) -> None:
        edited = approval.successor or approval
        stands = edited.replaces is not None and edited.state(self.now()) in {"approved", "consumed"}
        assert (None if shown is None else meaning(shown)) == (edited.context if stands else None)

    def _shows_people(self, approval: Approval, shown: Any) -> None:
        assert shown["decided_by"] == approval.decided_by
        assert shown["agent_name"] == self.world.named(approval.agent_id).name
        assert shown["permission_id"] == approval.permission_id
        stored = (approval.terms.required, approval.terms.separated)
        assert (shown["required_approvals"], shown["separation_of_duties"]) == stored
        assert {one["user_id"]: one["decision"] for one in shown["votes"]} == approval.votes
        assert len(shown["votes"]) == len(approval.votes)
        assert shown["replaces"] == (approval.replaces and approval.replaces.id)
        assert shown["grant_id"] == (approval.grant and approval.grant.id)

    def shows_grant(self, grant: Grant, shown: Any) -> None:
        """Compare a grant with how it is shown."""
        for name in ("id", "agent_id", "action", "permission_id", "approval_id", "uses", "seconds"):
            assert shown[name] == getattr(grant, name), (name, shown)
        assert (shown["status"], shown["uses_left"]) == (grant.state(self.now()), grant.left)
        assert (shown["except_fields"], shown["required_approvals"]) == (
            list(grant.free),
            grant.terms.required,
        )
        assert meaning(shown["context"]) == meaning(grant.facts)
        assert sorted(one["user_id"] for one in shown["votes"]) == sorted(grant.voters)
        assert shown["revoked_by"] == grant.revoked_by
        self._same_moment(shown["expires_at"], grant.until)

    def _same_moment(self, shown: str | None, moment: datetime | None) -> None:
        assert (shown is None) == (moment is None)
        if shown is not None and self.clock.settable:
            assert datetime.fromisoformat(shown) == moment


def compare_permission(agent: Agent, permission: Permission, shown: Any) -> None:
    """Compare a permission with how it is shown."""
    assert shown["agent_id"] == agent.id
    for name in ("id", "action", "requires_approval", "amount_required"):
        assert shown[name] == getattr(permission, name)
    assert shown["max_amount"] == permission.maximum
    own = (permission.required, permission.separated, permission.waits)
    assert (
        shown["required_approvals"],
        shown["separation_of_duties"],
        shown["approval_ttl_seconds"],
    ) == own
