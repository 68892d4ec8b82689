"""What is done beside asking and deciding: requests withdrawn, roles changed, jobs run, the gateway begun anew."""

from copy import copy
from decimal import Decimal
from typing import Any

from sqlmodel import col, update

from support.machine.deciding import Deciding
from support.machine.driver import refused, told
from support.machine.showing import compare_permission
from support.reference.facts import Agent, Approval, Permission, Tenant
from toolgate_service.accounts.models import User
from toolgate_service.approvals.service import expire_approvals, remind
from toolgate_service.db.database import Database


class Keeping(Deciding):
    """The machine without its rules, able to do whatever else is done."""

    def withdraw_by(self, caller: Tenant, approval: Approval) -> bool:
        """Cancel at both by a key; return whether it was open and the key's to cancel."""
        answer = self.call("POST", caller, f"/sdk/approvals/{approval.id}/cancel")
        state = approval.state(self.now())
        if caller != approval.tenant:
            refused(answer, 404, "Approval not found")
            return False
        if not self.world.withdraw(approval, self.now()):
            refused(answer, 409, f"Approval is no longer open: it is {state}")
            return False
        self.counts.seen["withdrawn"] += 1
        self.shows_approval(approval, told(answer), for_people=False)
        return True

    def change_conditions(
        self, person: str, agent: Agent, permission: Permission, conditions: dict[str, Any]
    ) -> None:
        """Change a permission at both as one of the users, who becomes one of its makers by loosening it."""
        path = f"/api/permissions/{permission.id}"
        answer = self.manage_everywhere("PUT", agent.tenant, path, conditions, person=person)
        before = copy(permission)
        if "max_amount" in conditions:
            maximum = conditions["max_amount"]
            permission.maximum = None if maximum is None else Decimal(repr(maximum))
        permission.requires_approval = conditions.get("requires_approval", permission.requires_approval)
        permission.amount_required = conditions.get("amount_required", permission.amount_required)
        permission.required = conditions.get("required_approvals", permission.required)
        permission.separated = conditions.get("separation_of_duties", permission.separated)
        permission.waits = conditions.get("approval_ttl_seconds", permission.waits)
        if permission.is_looser_than(before):
            permission.makers.add(person)
        compare_permission(agent, permission, told(answer))
        self.counts.seen["permission: changed"] += 1

    def turn_role(self, person: str) -> None:
        """Take the right to decide from a person, or give it back."""
        role = "admin" if person in self.world.viewers else "viewer"

        async def change(database: Database) -> None:
            async with database.writing() as session:
                await session.exec(update(User).where(col(User.id) == person).values(role=role))

        self.gateway.within(change)
        self.world.viewers ^= {person}
        self.counts.seen[f"became {role}"] += 1

    def run_jobs(self) -> None:
        """Let the gateway mark what has run out, and remind who must decide."""
        self.gateway.within(lambda database: expire_approvals(database, 3))
        self.gateway.within(lambda database: remind(database, 3))
        self.counts.seen["jobs"] += 1

    def begin_anew(self) -> None:
        """End the gateway and begin it anew."""
        self.gateway.restart()
        self.counts.seen["restarted"] += 1
