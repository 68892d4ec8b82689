"""Everything that exists, and the changes that people and agents make of it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from support.reference.facts import (
    NO_PERMISSION,
    OPEN,
    Agent,
    Approval,
    ApprovalTerms,
    Budget,
    Entry,
    Freeze,
    Grant,
    Permission,
    Reservation,
    Rule,
    Tenant,
)

KEY_HOLDS = timedelta(hours=24)


#: what stands for the permission of a call that only rules cover
RULED = Permission(NO_PERMISSION, "", True, None, False)


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """An answer that used up an approval or reserved something, kept for whoever repeats the attempt."""

    body: bytes
    decision_id: str
    until: datetime
    #: whether it used up an approval
    used: bool
    reserved: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """An entry that was stored under a key, and the body that it was stored for."""

    body: bytes
    entry: Entry
    until: datetime


@dataclass(slots=True)
class World:
    """Two organizations and whatever they have, in the order in which it was made."""

    agents: list[Agent] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    #: oldest first
    rules: list[Rule] = field(default_factory=list)
    #: oldest first
    budgets: list[Budget] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    #: active freezes, oldest first
    freezes: list[Freeze] = field(default_factory=list)
    #: users who may decide nothing
    viewers: set[str] = field(default_factory=set)
    #: agent, action, run and call of every call that used up an approval
    let_through: set[tuple[str, str, str | None, str]] = field(default_factory=set)
    check_answers: dict[tuple[Tenant, str | None], CheckAnswer] = field(default_factory=dict)
    log_answers: dict[tuple[Tenant, str], LogAnswer] = field(default_factory=dict)

    def agent(self, tenant: Tenant, agent_id: str) -> Agent | None:
        """Return a tenant's agent, unless it was deleted."""
        for agent in self.agents:
            if agent.id == agent_id and agent.tenant == tenant and not agent.deleted:
                return agent
        return None

    def freeze_of(self, agent: Agent, action: str) -> Freeze | None:
        """Return the oldest active freeze that denies a call, or None."""
        return next((one for one in self.freezes if one.covers(agent, action)), None)

    def named(self, agent_id: str) -> Agent:
        """Return an agent, deleted or not."""
        return next(agent for agent in self.agents if agent.id == agent_id)

    def agents_of(self, tenant: Tenant) -> list[Agent]:
        """Return a tenant's agents, the newest first."""
        return [one for one in reversed(self.agents) if one.tenant == tenant and not one.deleted]

    def approval(self, tenant: Tenant, approval_id: str) -> Approval | None:
        """Return a tenant's approval."""
        for approval in self.approvals:
            if approval.id == approval_id and approval.tenant == tenant:
                return approval
        return None

    def owner_of(self, permission_id: str) -> tuple[Agent, Permission] | None:
        """Return whichever agent has a permission."""
        for agent in self.agents:
            for permission in agent.permissions.values():
                if permission.id == permission_id:
                    return agent, permission
        return None

    def switch(self, agent: Agent, *, active: bool, now: datetime) -> None:
        """Switch an agent on or off; off cancels what is open, for good."""
        if agent.active and not active:
            self._cancel([one for one in self.approvals if one.agent_id == agent.id], now)
            self._revoke([one for one in self.grants if one.agent_id == agent.id], now)
        agent.active = active

    def delete_agent(self, agent: Agent, now: datetime) -> None:
        """Delete an agent with its permissions; its entries stay."""
        self._cancel([one for one in self.approvals if one.agent_id == agent.id], now)
        self._revoke([one for one in self.grants if one.agent_id == agent.id], now)
        agent.permissions.clear()
        agent.deleted = True

    def delete_permission(self, agent: Agent, permission: Permission, now: datetime) -> None:
        """Delete a permission; what is open for it is cancelled."""
        self._cancel([one for one in self.approvals if one.permission_id == permission.id], now)
        self._revoke([one for one in self.grants if one.permission_id == permission.id], now)
        del agent.permissions[permission.action]

    def withdraw(self, approval: Approval, now: datetime) -> bool:
        """Cancel what is open; return whether it was."""
        return bool(self._cancel([approval], now))

    def end_proposal(self, approval: Approval) -> None:
        """Revoke what was proposed with a request that waits no longer."""
        for grant in self.grants:
            if grant.approval_id == approval.id and grant.status == "proposed":
                grant.status = "revoked"

    def revoke(self, grant: Grant, user: str, now: datetime) -> bool:
        """Revoke by a person, with what it approved and was not used; return whether there was anything to revoke."""
        unused = [one for one in self.approvals if one.grant is grant and one.state(now) == "approved"]
        if grant.state(now) == "revoked" or (grant.state(now) in {"expired", "exhausted"} and not unused):
            return False
        grant.status, grant.revoked_by = "revoked", user
        self._cancel(unused, now)
        return True

    def _revoke(self, grants: list[Grant], now: datetime) -> None:
        for grant in grants:
            if grant.state(now) in {"proposed", "active"}:
                grant.status = "revoked"

    def terms(self, of: Approval | Grant) -> ApprovalTerms | None:
        """Return the stricter of the stored and the current terms; None if the permission was deleted."""
        if of.permission_id == NO_PERMISSION:
            return of.terms.stricter(self.named(of.agent_id).terms(RULED))
        owner = self.owner_of(of.permission_id)
        if owner is None:
            return None
        agent, permission = owner
        return of.terms.stricter(agent.terms(permission))

    def may_approve(self, of: Approval | Grant, user: str, more: ApprovalTerms | None = None) -> bool:
        """Report whether a user may approve a request or a temporary approval now; `more` are terms of rules."""
        terms = self._terms(of, more)
        if terms is None or user in self.viewers:
            return False
        if terms.approvers is not None and user not in terms.approvers:
            return False
        return not (terms.separated and user in terms.makers)

    def enough(self, of: Approval | Grant, voters: list[str], more: ApprovalTerms | None = None) -> bool:
        """Report whether enough distinct users voted who may still approve; `more` are terms of rules."""
        terms = self._terms(of, more)
        if terms is None:
            return False
        return len({one for one in voters if self.may_approve(of, one, more)}) >= terms.required

    def _terms(self, of: Approval | Grant, more: ApprovalTerms | None) -> ApprovalTerms | None:
        terms = self.terms(of)
        return terms if terms is None or more is None else terms.stricter(more)

    def total(self, budget: Budget, subject: str, now: datetime) -> Decimal:
        """Return what calls have added to a total of a budget, within its window."""
        return sum(
            (
                one.counted
                for one in self.reservations
                if (one.budget.id, one.subject) == (budget.id, subject) and budget.contains(one.created, now)
            ),
            Decimal(0),
        )

    def settle(self, tenant: Tenant, decision_id: str, entry: Entry, facts: object) -> None:
        """Settle or release what a decision reserved, by a log entry of the same call."""
        state = {"success": "settled", "failed": "released", "denied": "released"}.get(entry.status)
        for one in self.reservations:
            same = (one.decision_id, one.agent_id, one.action) == (decision_id, entry.agent_id, entry.action)
            if state is None or not same or one.budget.tenant != tenant:
                continue
            one.state = state
            real = one.budget.amount(facts) if isinstance(facts, dict) else None
            if state == "settled" and real is not None:
                one.amount = real

    def _cancel(self, approvals: list[Approval], now: datetime) -> list[Approval]:
        cancelled = [one for one in approvals if one.state(now) in OPEN]
        for approval in cancelled:
            approval.status, approval.cancelled = "cancelled", now
            self.end_proposal(approval)
        return cancelled

    def denials(self, agent: Agent, action: str) -> list[datetime]:
        """Return when an agent's action was denied, newest first."""
        denied = [one for one in self.approvals if (one.agent_id, one.action) == (agent.id, action)]
        return sorted((one.decided for one in denied if one.status == "denied" and one.decided), reverse=True)

    def repeat(self, tenant: Tenant, key: str | None, now: datetime) -> LogAnswer | None:
        """Return what was stored under a key of a log entry, within its time."""
        answer = None if key is None else self.log_answers.get((tenant, key))
        return answer if answer is not None and now < answer.until else None

    def log(self, entry: Entry, key: str | None, body: bytes) -> None:
        """Keep an entry."""
        self.entries.append(entry)
        if key is not None:
            self.log_answers[entry.tenant, key] = LogAnswer(body, entry, entry.created + KEY_HOLDS)
