"""The decision of a check, sentence by sentence as the decisions have it (§4, §5)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from support.reference.facts import (
    Agent,
    Approval,
    ApprovalTerms,
    Budget,
    Grant,
    Permission,
    Reservation,
    Rule,
    Tenant,
    digits,
    meaning,
    read,
)
from support.reference.matching import covers
from support.reference.world import RULED, CheckAnswer, World

WAITS = timedelta(hours=24)
DENIAL_HOLDS = timedelta(minutes=5)
ANSWER_HOLDS = timedelta(minutes=10)
DENIALS_WITHIN = timedelta(minutes=15)
PAIR_BLOCKED = timedelta(minutes=15)
#: these two are settings: as the decisions have them (10 and 100) no run would come so far
DENIALS = 4
MOST_PENDING = 7


@dataclass(frozen=True, slots=True)
class Question:
    """A check as it is sent; `context` is JSON text, None when it is left out."""

    agent_id: str
    action: str
    context: str | None = None
    approval_id: str | None = None
    call_id: str | None = None
    run_id: str | None = None
    dry_run: bool = False
    idempotency_key: str | None = None

    @property
    def body(self) -> bytes:
        """The request's body."""
        parts = [f'"agent_id":"{self.agent_id}","action":"{self.action}"']
        parts += [f'"context":{self.context}'] if self.context is not None else []
        for name in ("approval_id", "call_id", "run_id"):
            if (value := getattr(self, name)) is not None:
                parts.append(f'"{name}":"{value}"')
        parts += ['"dry_run":true'] if self.dry_run else []
        return f"{{{','.join(parts)}}}".encode()

    @property
    def facts(self) -> dict[str, object]:
        """The context as it was meant; absent, null and ``{}`` are equal."""
        facts = read(self.context or "null") or {}
        assert isinstance(facts, dict)
        return facts


@dataclass(frozen=True, slots=True)
class Outcome:
    """What should be answered.

    Attributes:
        kind: ``allowed``, ``blocked`` or ``held``.
        why: which kind of reason is given.
        named: what the reason must name.
        approval: the request that a held check waits for; None for a dry run that makes none.
        used: the approval that was used up.
        reserved: what the call adds to the totals of budgets, under the decision that is told.
        decision_id: the decision that is repeated.
    """

    kind: str
    why: str = ""
    named: tuple[str, ...] = ()
    approval: Approval | None = None
    used: Approval | None = None
    reserved: tuple[Reservation, ...] = ()
    decision_id: str | None = None


@dataclass(slots=True)
class _Call:
    """A call that nothing forbids.

    Attributes:
        permission: Permission of the call; `RULED` if there is none.
        held_by: Rules that require an approval.
        allowed: True if there is no permission, and a rule allows the call.
    """

    world: World
    agent: Agent
    permission: Permission
    question: Question
    now: datetime
    held_by: list[Rule] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    #: the budget that an otherwise allowed call would exceed, and that asks for an approval then
    over: Budget | None = None
    allowed: bool = False

    @property
    def requires_approval(self) -> bool:
        by_permission = self.permission.requires_approval and not self.allowed
        return bool(self.held_by) or by_permission or self.over is not None

    @property
    def why(self) -> str:
        if self.over is not None:
            return "does not cover"
        by_permission = self.permission is not RULED and self.permission.requires_approval
        return "needs human approval" if by_permission else "requires approval for action"

    @property
    def more(self) -> ApprovalTerms:
        """Terms of the rules."""
        terms = ApprovalTerms(1, False, frozenset(), None, False)
        for rule in self.held_by:
            terms = terms.stricter(rule.terms)
        return terms

    @property
    def terms(self) -> ApprovalTerms:
        """Current terms of the permission and of the rules."""
        return self.agent.terms(self.permission).stricter(self.more)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """What the call adds to the totals of budgets."""
        return tuple(
            Reservation(
                one,
                one.subject(self.agent, self.question.run_id),
                self.agent.id,
                self.question.action,
                one.amount(self.question.facts) or Decimal(0),
                self.now,
            )
            for one in self.budgets
        )

    def exceeded(self, at_limit: str | None = None) -> Budget | None:
        """Return the first budget that does not cover the call, if it does something at its limit."""
        for one in self.reservations:
            total = self.world.total(one.budget, one.subject, self.now)
            if total + one.amount > one.budget.limit and at_limit in {None, one.budget.at_limit}:
                return one.budget
        return None

    @property
    def waits(self) -> timedelta:
        """Time after which a new request expires."""
        own = timedelta(seconds=self.permission.waits) if self.permission.waits else WAITS
        return min([own, *(timedelta(seconds=one.waits) for one in self.held_by if one.waits)])


def check(world: World, tenant: Tenant, question: Question, now: datetime) -> Outcome:
    """Decide a check, and change the world as the gateway should."""
    agent = world.agent(tenant, question.agent_id)
    if agent is None:
        return Outcome("blocked", "agent not found")
    freeze = world.freeze_of(agent, question.action)
    if freeze is not None:
        return Outcome("blocked", "frozen", (freeze.reason,))
    if not agent.active:
        return Outcome("blocked", "inactive")
    matching = [one for one in world.rules if one.matches(agent, question.action, question.facts)]
    forbidding = next((one for one in matching if one.effect == "forbid"), None)
    if forbidding is not None:
        return Outcome("blocked", "forbids action", (question.action,))
    requiring = [one for one in matching if one.effect == "require_approval"]
    permission = agent.permissions.get(question.action)
    if permission is None and not matching:
        return Outcome("blocked", "no permission", (question.action,))
    # No rule lifts the maximum of a permission.
    too_much = None if permission is None else _amount(permission, question.facts)
    if too_much is not None:
        return too_much
    call = _Call(world, agent, permission or RULED, question, now, requiring)
    call.allowed = permission is None and not requiring
    call.budgets = [one for one in world.budgets if one.counts(agent, question.action)]
    if not call.requires_approval and question.approval_id is None and not call.budgets:
        return Outcome("allowed")
    return _with_approval(call)


def keep_answer(
    world: World, tenant: Tenant, question: Question, outcome: Outcome, decision_id: str, now: datetime
) -> None:
    """Remember the answer that used up an approval or reserved something, for whoever repeats the attempt."""
    if question.idempotency_key is not None:
        used = outcome.used is not None
        answer = CheckAnswer(question.body, decision_id, now + ANSWER_HOLDS, used, outcome.reserved)
        world.check_answers[tenant, question.idempotency_key] = answer


def amount_is_within(limit: Permission | ApprovalTerms, facts: dict[str, object]) -> bool:
    """Report whether the amount of a context is within the limit of a permission or of stored terms."""
    return _amount(limit, facts) is None


def _amount(limit: Permission | ApprovalTerms, facts: dict[str, object]) -> Outcome | None:
    maximum = limit.maximum
    if maximum is None:
        return None
    if "amount" not in facts:
        return Outcome("blocked", "is required", (digits(maximum),)) if limit.amount_required else None
    amount = facts["amount"]
    if not isinstance(amount, Decimal) or amount < 0:
        return Outcome("blocked", "must be a non-negative number", (digits(maximum),))
    if amount > maximum:
        return Outcome("blocked", "is above", (digits(amount), digits(maximum)))
    return None


def _with_approval(call: _Call) -> Outcome:
    world, agent, question, now = call.world, call.agent, call.question, call.now
    # A lost answer must not cost a second approval.
    earlier = world.check_answers.get((agent.tenant, question.idempotency_key))
    if (
        earlier is not None
        and earlier.body == question.body
        and now < earlier.until
        and (earlier.used or not call.requires_approval)
        and all(one.state == "unsettled" for one in earlier.reserved)
    ):
        return Outcome("allowed", decision_id=earlier.decision_id)
    equal = list(_equal(world, agent, call.permission, question))[::-1]
    if question.approval_id is not None:
        mine = [approval for approval in equal if approval.id == question.approval_id]
        if not mine:
            return Outcome("blocked", "does not belong")
    else:
        mine = [approval for approval in equal if approval.call_id == question.call_id]
    stopped = _by_budgets(call)
    if stopped is not None:
        return stopped
    if not call.requires_approval:
        return Outcome("allowed", reserved=() if question.dry_run else call.reservations)
    if call.over is not None and question.approval_id is None:
        mine = [one for one in equal if one.call_id == question.call_id]
    return _by_approvers(call, mine, equal)


def _by_approvers(call: _Call, mine: list[Approval], equal: list[Approval]) -> Outcome:
    world, agent, question, now = call.world, call.agent, call.question, call.now
    if question.call_id and _call(agent, question, question.call_id) in world.let_through:
        return Outcome("blocked", "has already been allowed once", (question.call_id,))
    settled = _by_approved(mine, call) or _edited(mine, question, now)
    if settled is not None:
        return settled
    held = _pending(mine, call)
    named = question.action if call.over is None else call.over.name
    waits = held and Outcome("held", call.why, (named,), held)
    if question.approval_id is not None:
        return waits or _closed(mine[0], now)
    # What an approver made of another call waits on; what was asked for this one becomes its use.
    own = held if held is not None and held.replaces is None else None
    grant = _usable(call, own)
    if grant is None:
        return waits or _refused(world, agent, question, mine, equal, now) or _ask_or_full(call)
    # A person's no goes before what another allowed for a while.
    no = _refused(world, agent, question, mine, equal, now)
    over = call.exceeded() if call.exceeded("deny") is None else None
    if over is not None:
        # Whoever allowed it for a while did not see that it exceeds a budget.
        still = waits and replace(waits, why="does not cover", named=(over.name,))
        return still or no or _ask_or_full(call, over)
    return (waits or no) if no is not None else _use_grant(call, grant, own)


def _by_budgets(call: _Call) -> Outcome | None:
    for one in call.budgets:
        if one.amount(call.question.facts) is None:
            missing = one.argument not in call.question.facts
            return Outcome(
                "blocked", "is required" if missing else "must be a non-negative number", (one.name,)
            )
    if not call.requires_approval:
        denying = call.exceeded("deny")
        if denying is not None:
            return Outcome("blocked", "does not cover", (denying.name,))
        call.over = call.exceeded()
    return None


def _pending(mine: list[Approval], call: _Call) -> Approval | None:
    pending = next((approval for approval in mine if approval.state(call.now) == "pending"), None)
    if pending is not None and not call.question.dry_run:
        # A request that is asked again stores the stricter of its terms and the current ones.
        pending.terms = pending.terms.stricter(call.terms)
        for one in call.held_by:
            if one.waits is not None:
                pending.until = min(pending.until, pending.created + timedelta(seconds=one.waits))
    return pending


def _edited(mine: list[Approval], question: Question, now: datetime) -> Outcome | None:
    # A call by name waits for what a person made of it.
    if not question.call_id or question.approval_id is not None:
        return None
    edited = next((approval for approval in mine if approval.state(now) == "replaced"), None)
    return None if edited is None else Outcome("held", approval=edited)


def _by_approved(mine: list[Approval], call: _Call) -> Outcome | None:
    for approval in mine:
        named = call.question.approval_id is not None
        # What an approver made of a call answers to its id alone.
        if approval.state(call.now) != "approved" or (approval.replaces is not None and not named):
            continue
        # Whoever allowed it for a while did not see that it exceeds a budget.
        over = approval.grant is not None and call.exceeded() and call.exceeded("deny") is None
        if not over and _still_counts(call.world, approval, call.more):
            return _let_through(call, approval)
        if named:
            return Outcome("blocked", "is no longer valid")
    return None


def _still_counts(world: World, approval: Approval, more: ApprovalTerms) -> bool:
    """Say whether what was approved would be approved now."""
    grant = approval.grant
    if grant is not None and not (grant.status == "active" and world.enough(grant, grant.voters, more)):
        return False
    return world.enough(approval, approval.voters, more)


def _usable(call: _Call, own: Approval | None) -> Grant | None:
    world, more = call.world, call.more
    usable = [
        one
        for one in world.grants
        if (one.agent_id, one.permission_id, one.action)
        == (call.agent.id, call.permission.id, call.question.action)
        and one.state(call.now) == "active"
        and covers(one.facts, call.question.facts, one.free)
        and more.required <= one.terms.required
        and world.enough(one, one.voters, more)
        and (own is None or _meets_terms(world, one, own))
    ]
    return min(usable, key=lambda one: (one.until, one.id), default=None)


def _meets_terms(world: World, grant: Grant, request: Approval) -> bool:
    terms = world.terms(request)
    assert terms is not None
    return terms.required <= grant.terms.required and world.enough(request, grant.voters)


def _refused(
    world: World, agent: Agent, question: Question, mine: list[Approval], equal: list[Approval], now: datetime
) -> Outcome | None:
    # The denial of a call with an id does not expire: a paused run may resume at any time.
    if question.call_id:
        denial = next((approval for approval in mine if approval.status == "denied"), None)
        if denial is not None:
            return _denied(denial)
    return _by_denial(equal, now) or _by_denials(world, agent, question.action, now)


def _by_denial(equal: list[Approval], now: datetime) -> Outcome | None:
    recent = [one for one in equal if one.status == "denied" and _since(one.decided, now) < DENIAL_HOLDS]
    return _denied(min(recent, key=lambda one: _since(one.decided, now))) if recent else None


def _by_denials(world: World, agent: Agent, action: str, now: datetime) -> Outcome | None:
    denials = world.denials(agent, action)
    # Newest first: so many of them close together block for a while after the last of them.
    for last, first in zip(denials, denials[DENIALS - 1 :], strict=False):
        if last - first <= DENIALS_WITHIN:
            if now < last + PAIR_BLOCKED:
                return Outcome("blocked", "times in a short time", (action,))
            break
    return None


def _ask_or_full(call: _Call, over: Budget | None = None) -> Outcome:
    world, question, now = call.world, call.question, call.now
    waiting = [
        one for one in world.approvals if one.agent_id == call.agent.id and one.state(now) == "pending"
    ]
    if len(waiting) >= MOST_PENDING:
        return Outcome("blocked", "wait for approval")
    over = over or call.over
    why, named = (call.why, (question.action,)) if over is None else ("does not cover", (over.name,))
    if question.dry_run:
        return Outcome("held", why, named)
    approval = _new(call)
    world.approvals.append(approval)
    return Outcome("held", why, named, approval)


def _equal(world: World, agent: Agent, permission: Permission, question: Question) -> Iterator[Approval]:
    """Yield what was asked for the same: agent, permission, action, run and the context's meaning."""
    same = (agent.id, permission.id, question.action, question.run_id, meaning(question.facts))
    for one in world.approvals:
        if (one.agent_id, one.permission_id, one.action, one.run_id, one.context) == same:
            yield one


def _call(agent: Agent, question: Question, call_id: str) -> tuple[str, str, str | None, str]:
    return (agent.id, question.action, question.run_id, call_id)


def _let_through(call: _Call, approval: Approval) -> Outcome:
    world, agent, question, now = call.world, call.agent, call.question, call.now
    denying = call.exceeded("deny")
    if denying is not None:
        return Outcome("blocked", "does not cover", (denying.name,))
    if question.dry_run:
        return Outcome("allowed")
    approval.status, approval.consumed = "consumed", now
    for call_id in (approval.call_id, question.call_id):
        if call_id is not None:
            world.let_through.add(_call(agent, question, call_id))
    return Outcome("allowed", used=approval, reserved=call.reservations)


def _closed(approval: Approval, now: datetime) -> Outcome:
    state = approval.state(now)
    return _denied(approval) if state == "denied" else Outcome("blocked", f"is {state}")


def _denied(approval: Approval) -> Outcome:
    return Outcome("blocked", "denied by a person", (approval.note,) if approval.note else ())


def _since(moment: datetime | None, now: datetime) -> timedelta:
    assert moment is not None
    return now - moment


def _new(call: _Call) -> Approval:
    question = call.question
    return Approval(
        call.agent.tenant,
        call.agent.id,
        call.permission.id,
        question.action,
        question.run_id,
        question.call_id,
        meaning(question.facts),
        created=call.now,
        until=call.now + call.waits,
        terms=call.terms,
        facts=question.facts,
        over_budget=call.over is not None or (call.exceeded() is not None and call.exceeded("deny") is None),
    )


def _use_grant(call: _Call, grant: Grant, own: Approval | None) -> Outcome:
    denying = call.exceeded("deny")
    if denying is not None:
        return Outcome("blocked", "does not cover", (denying.name,))
    if call.question.dry_run:
        return Outcome("allowed")
    terms = grant.terms.stricter(call.more)
    if own is None:
        own = _new(call)
        own.until, own.terms = call.now, terms
        call.world.approvals.append(own)
    call.world.end_proposal(own)
    grant.left -= 1
    own.grant, own.terms, own.decided = grant, own.terms.stricter(terms), call.now
    return _let_through(call, own)
