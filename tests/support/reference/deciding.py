"""What people decide about requests, sentence by sentence as the decisions have it (§5)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from support.reference.checking import amount_is_within
from support.reference.facts import Approval, Grant, meaning
from support.reference.matching import covers
from support.reference.world import World

USABLE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is to be allowed for a while."""

    uses: int
    seconds: int
    free: tuple[str, ...] = ()


def refusal(
    world: World,
    approval: Approval,
    user: str,
    now: datetime,
    *,
    edit: dict[str, object] | None = None,
    terms: Terms | None = None,
) -> int | None:
    """Return the status with which an approval is refused, nothing changed; None when it is not."""
    if user in world.viewers:
        return 403
    if approval.state(now) != "pending":
        return 409
    if not world.may_approve(approval, user):
        return 403
    if edit is not None and meaning(edit) != approval.context:
        return _refused_edit(world, approval, edit, now)
    if user in approval.votes and (terms is not None or not world.enough(approval, approval.voters)):
        return 409
    earlier = [one for one in world.grants if one.approval_id == approval.id]
    if terms is not None and earlier:
        [proposed] = earlier
        same = Terms(proposed.uses, proposed.seconds, proposed.free) == terms
        return None if same and proposed.status == "proposed" else 409
    return None


def _refused_edit(world: World, approval: Approval, edit: dict[str, object], now: datetime) -> int | None:
    owner = world.owner_of(approval.permission_id)
    limits = [approval.terms] if owner is None else [owner[1], approval.terms]
    if not all(amount_is_within(limit, edit) for limit in limits):
        return 400
    bound = (
        approval.agent_id,
        approval.action,
        approval.permission_id,
        approval.run_id,
        approval.call_id,
        meaning(edit),
    )
    for one in world.approvals:
        if (
            one.state(now) == "pending"
            and (one.agent_id, one.action, one.permission_id, one.run_id, one.call_id, one.context) == bound
        ):
            return 409
    return None


def approve(
    world: World,
    approval: Approval,
    user: str,
    note: str | None,
    now: datetime,
    *,
    edit: dict[str, object] | None = None,
    terms: Terms | None = None,
) -> Approval:
    """Approve what is not refused, and return what was approved: the request, or the edited one in its place."""
    asked = approval
    if edit is not None and meaning(edit) != approval.context:
        asked = _replace(world, approval, edit, now)
    asked.votes[user] = "approved"
    if world.enough(asked, asked.voters):
        asked.status, asked.note = "approved", note
        asked.decided, asked.decided_by, asked.until = now, user, now + USABLE
    if terms is not None:
        _propose(world, asked, user, terms, now)
    if asked.status == "approved":
        world.end_proposal(asked)
    return asked


def deny(world: World, approval: Approval, user: str, note: str | None, now: datetime) -> int | None:
    """Deny what is pending; return the status of the refusal if it is refused."""
    if user in world.viewers:
        return 403
    if approval.state(now) != "pending":
        return 409
    approval.status, approval.note = "denied", note
    approval.decided, approval.decided_by = now, user
    approval.votes[user] = "denied"
    world.end_proposal(approval)
    return None


def _replace(world: World, approval: Approval, edit: dict[str, object], now: datetime) -> Approval:
    successor = Approval(
        approval.tenant,
        approval.agent_id,
        approval.permission_id,
        approval.action,
        approval.run_id,
        approval.call_id,
        meaning(edit),
        created=now,
        until=approval.until,
        terms=approval.terms,
        facts=edit,
        over_budget=approval.over_budget,
        replaces=approval,
    )
    approval.status, approval.successor = "replaced", successor
    world.end_proposal(approval)
    world.approvals.append(successor)
    return successor


def _propose(world: World, approval: Approval, user: str, terms: Terms, now: datetime) -> None:
    grant = next((one for one in world.grants if one.approval_id == approval.id), None)
    if grant is None:
        grant = Grant(
            approval.tenant,
            approval.agent_id,
            approval.permission_id,
            approval.id,
            approval.action,
            approval.facts,
            terms.free,
            terms.uses,
            terms.uses,
            terms.seconds,
            approval.terms,
            approval.until,
        )
        world.grants.append(grant)
    grant.voters.append(user)
    if world.enough(grant, grant.voters):
        grant.status, grant.until = "active", now + timedelta(seconds=terms.seconds)
        _approve_what_waits(world, grant, user, now)


def _approve_what_waits(world: World, grant: Grant, user: str, now: datetime) -> None:
    for one in world.approvals:
        waits = one.state(now) == "pending" and (
            (one.agent_id, one.action, one.permission_id)
            == (grant.agent_id, grant.action, grant.permission_id)
        )
        if (
            waits
            and one.id != grant.approval_id
            and not one.over_budget
            and one.terms.required <= grant.terms.required
            and world.enough(one, grant.voters)
            and grant.left
            and covers(grant.facts, one.facts, grant.free)
        ):
            one.status, one.grant = "approved", grant
            one.decided, one.decided_by, one.until = now, user, min(now + USABLE, grant.until)
            grant.left -= 1
            world.end_proposal(one)
