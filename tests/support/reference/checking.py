"""The decision of a check, sentence by sentence as the decisions have it (§4, §5)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from support.reference.facts import (
    Agent,
    Approval,
    ApprovalTerms,
    Grant,
    Permission,
    Tenant,
    digits,
    meaning,
    read,
)
from support.reference.matching import covers
from support.reference.world import CheckAnswer, World

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
        decision_id: the decision that is repeated.
    """

    kind: str
    why: str = ""
    named: tuple[str, ...] = ()
    approval: Approval | None = None
    used: Approval | None = None
    decision_id: str | None = None


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
    permission = agent.permissions.get(question.action)
    if permission is None:
        return Outcome("blocked", "no permission", (question.action,))
    too_much = _amount(permission, question.facts)
    if too_much is not None:
        return too_much
    if not permission.requires_approval and question.approval_id is None:
        return Outcome("allowed")
    return _with_approval(world, agent, permission, question, now)


def keep_answer(world: World, tenant: Tenant, question: Question, decision_id: str, now: datetime) -> None:
    """Remember the answer that used up an approval, for whoever repeats the attempt."""
    if question.idempotency_key is not None:
        answer = CheckAnswer(question.body, decision_id, now + ANSWER_HOLDS)
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


def _with_approval(
    world: World, agent: Agent, permission: Permission, question: Question, now: datetime
) -> Outcome:
    # A lost answer must not cost a second approval.
    earlier = world.check_answers.get((agent.tenant, question.idempotency_key))
    if earlier is not None and earlier.body == question.body and now < earlier.until:
        return Outcome("allowed", decision_id=earlier.decision_id)
    equal = list(_equal(world, agent, permission, question))[::-1]
    if question.approval_id is not None:
        mine = [approval for approval in equal if approval.id == question.approval_id]
        if not mine:
            return Outcome("blocked", "does not belong")
    else:
        mine = [approval for approval in equal if approval.call_id == question.call_id]
    if not permission.requires_approval:
        return Outcome("allowed")
    if question.call_id and _call(agent, question, question.call_id) in world.let_through:
        return Outcome("blocked", "has already been allowed once", (question.call_id,))
    settled = _by_approved(mine, agent, question, world, now) or _edited(mine, question, now)
    if settled is not None:
        return settled
    held = _pending(mine, agent, permission, question, now)
    waits = held and Outcome("held", "needs human approval", (question.action,), held)
    if question.approval_id is not None:
        return waits or _closed(mine[0], now)
    # What an approver made of another call waits on; what was asked for this one becomes its use.
    own = held if held is not None and held.replaces is None else None
    grant = _usable(world, agent, permission, question, own, now)
    if grant is None:
        return (
            waits
            or _refused(world, agent, question, mine, equal, now)
            or _ask_or_full(world, agent, question, now)
        )
    # A person's no goes before what another allowed for a while.
    no = _refused(world, agent, question, mine, equal, now)
    if no is not None:
        return waits or no
    return _use_grant(world, agent, permission, question, grant, own, now)


def _pending(
    mine: list[Approval], agent: Agent, permission: Permission, question: Question, now: datetime
) -> Approval | None:
    pending = next((approval for approval in mine if approval.state(now) == "pending"), None)
    if pending is not None and not question.dry_run:
        # A request that is asked again stores the stricter of its terms and the current ones.
        pending.terms = pending.terms.stricter(agent.terms(permission))
    return pending


def _edited(mine: list[Approval], question: Question, now: datetime) -> Outcome | None:
    # A call by name waits for what a person made of it.
    if not question.call_id or question.approval_id is not None:
        return None
    edited = next((approval for approval in mine if approval.state(now) == "replaced"), None)
    return None if edited is None else Outcome("held", approval=edited)


def _by_approved(
    mine: list[Approval], agent: Agent, question: Question, world: World, now: datetime
) -> Outcome | None:
    for approval in mine:
        named = question.approval_id is not None
        # What an approver made of a call answers to its id alone.
        if approval.state(now) != "approved" or (approval.replaces is not None and not named):
            continue
        if still_counts(world, approval):
            return _let_through(world, agent, question, approval, now)
        if named:
            return Outcome("blocked", "is no longer valid")
    return None


def still_counts(world: World, approval: Approval) -> bool:
    """Say whether what was approved would be approved now."""
    grant = approval.grant
    if grant is not None and not (grant.status == "active" and world.enough(grant, grant.voters)):
        return False
    return world.enough(approval, approval.voters)


def _usable(
    world: World,
    agent: Agent,
    permission: Permission,
    question: Question,
    own: Approval | None,
    now: datetime,
) -> Grant | None:
    usable = [
        one
        for one in world.grants
        if (one.agent_id, one.permission_id) == (agent.id, permission.id)
        and one.state(now) == "active"
        and covers(one.facts, question.facts, one.free)
        and world.enough(one, one.voters)
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


def _ask_or_full(world: World, agent: Agent, question: Question, now: datetime) -> Outcome:
    waiting = [one for one in world.approvals if one.agent_id == agent.id and one.state(now) == "pending"]
    if len(waiting) >= MOST_PENDING:
        return Outcome("blocked", "wait for approval")
    if question.dry_run:
        return Outcome("held", "needs human approval", (question.action,))
    approval = _new(agent, agent.permissions[question.action], question, now)
    world.approvals.append(approval)
    return Outcome("held", "needs human approval", (question.action,), approval)


def _equal(world: World, agent: Agent, permission: Permission, question: Question) -> Iterator[Approval]:
    """Yield what was asked for the same: agent, permission, action, run and the context's meaning."""
    same = (agent.id, permission.id, question.action, question.run_id, meaning(question.facts))
    for one in world.approvals:
        if (one.agent_id, one.permission_id, one.action, one.run_id, one.context) == same:
            yield one


def _call(agent: Agent, question: Question, call_id: str) -> tuple[str, str, str | None, str]:
    return (agent.id, question.action, question.run_id, call_id)


def _let_through(
    world: World, agent: Agent, question: Question, approval: Approval, now: datetime
) -> Outcome:
    if question.dry_run:
        return Outcome("allowed")
    approval.status, approval.consumed = "consumed", now
    for call_id in (approval.call_id, question.call_id):
        if call_id is not None:
            world.let_through.add(_call(agent, question, call_id))
    return Outcome("allowed", used=approval)


def _closed(approval: Approval, now: datetime) -> Outcome:
    state = approval.state(now)
    return _denied(approval) if state == "denied" else Outcome("blocked", f"is {state}")


def _denied(approval: Approval) -> Outcome:
    return Outcome("blocked", "denied by a person", (approval.note,) if approval.note else ())


def _since(moment: datetime | None, now: datetime) -> timedelta:
    assert moment is not None
    return now - moment


def _new(agent: Agent, permission: Permission, question: Question, now: datetime) -> Approval:
    return Approval(
        agent.tenant,
        agent.id,
        permission.id,
        question.action,
        question.run_id,
        question.call_id,
        meaning(question.facts),
        created=now,
        until=now + (timedelta(seconds=permission.waits) if permission.waits else WAITS),
        terms=agent.terms(permission),
        facts=question.facts,
    )


def _use_grant(
    world: World,
    agent: Agent,
    permission: Permission,
    question: Question,
    grant: Grant,
    own: Approval | None,
    now: datetime,
) -> Outcome:
    if question.dry_run:
        return Outcome("allowed")
    if own is None:
        own = _new(agent, permission, question, now)
        own.until, own.terms = now, grant.terms
        world.approvals.append(own)
    world.end_proposal(own)
    grant.left -= 1
    own.grant, own.terms, own.decided = grant, own.terms.stricter(grant.terms), now
    return _let_through(world, agent, question, own, now)
