"""The requests for approval behind a held check: found, made, used up (decisions §5)."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import bindparam
from sqlmodel import col, literal, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.ending import make_way
from toolgate_service.approvals.models import CONSUMED, Approval
from toolgate_service.approvals.telling import tell
from toolgate_service.approvals.terms import current_terms, store_terms, stored_terms
from toolgate_service.checks.question import Question
from toolgate_service.counts.folding import count_request
from toolgate_service.grants.ending import end_proposal
from toolgate_service.grants.models import Grant
from toolgate_service.hotpath.standing import Standing
from toolgate_service.ids import new_id
from toolgate_service.permissions.models import Permission
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now

#: equal requests looked at: older ones are long decided, and one pending or approved one is always among the newest
RECENT = 20


_OF_RUN = (
    col(Approval.organization_id) == bindparam("organization_id"),
    col(Approval.environment) == bindparam("environment"),
    col(Approval.agent_id) == bindparam("agent_id"),
    col(Approval.action) == bindparam("action"),
    col(Approval.run_id) == bindparam("run_id"),
)

#: what makes a request one of a check, whatever call it was made for (decisions §5); `bound_to` has the values
BOUND = (
    *_OF_RUN,
    col(Approval.digest) == bindparam("digest"),
    col(Approval.permission_id) == bindparam("permission_id"),
)

_EQUAL = (
    select(Approval)
    .where(
        *BOUND,
        or_(
            col(Approval.call_id) == bindparam("call_id"),
            col(Approval.id) == bindparam("approval_id"),
        ),
    )
    .order_by(
        (col(Approval.id) == bindparam("approval_id")).desc(),
        col(Approval.created_at).desc(),
        col(Approval.id).desc(),
    )
    .limit(RECENT)
)
_EQUAL_TO_SETTLE = _EQUAL.with_for_update()

#: two queries, for each its index: the call that asked, and the call that used an approval by its id
_LET_THROUGH = tuple(
    # Whatever its context was: one call happens once.
    select(Approval.id).where(
        *_OF_RUN,
        call_id == bindparam("call_id"),
        # Written out: only then SQLite uses the index.
        col(Approval.status) == literal(CONSUMED, literal_execute=True),
    )
    for call_id in (col(Approval.call_id), col(Approval.consumed_call_id))
)

_PERMISSION = (
    select(Permission, Agent)
    .join(Agent, col(Agent.id) == Permission.agent_id)
    .where(col(Permission.id) == bindparam("id"))
)


def bound_to(standing: Standing, question: Question) -> dict[str, str | None]:
    """Return the values that `BOUND` has for a check."""
    return {
        "organization_id": standing.organization_id,
        "environment": standing.environment,
        "agent_id": standing.agent_id,
        "action": question.action,
        "digest": question.digest,
        "permission_id": standing.permission_id,
        "run_id": question.run_id or "",
    }


async def equal_requests(session: AsyncSession, standing: Standing, question: Question) -> Sequence[Approval]:
    """Return the requests that this check may speak of: the one it names, then the newest.

    A request made with a `call_id` answers only to that `call_id` or to its own id.
    """
    values = bound_to(standing, question)
    values |= {"call_id": question.call_id or "", "approval_id": question.approval_id or ""}
    # A dry run only reads: on PostgreSQL a lock would make it wait for whoever settles the same check, then fail.
    query = _EQUAL if question.dry_run else _EQUAL_TO_SETTLE
    return (await session.exec(query, params=values)).all()


async def already_let_through(session: AsyncSession, standing: Standing, question: Question) -> bool:
    """Say whether a call has used up an approval before."""
    values = bound_to(standing, question) | {"call_id": question.call_id}
    for query in _LET_THROUGH:
        if (await session.exec(query, params=values)).first() is not None:
            return True
    return False


async def use_up(session: AsyncSession, approval: Approval, question: Question) -> str:
    """Let an approved request through, this once, and return the decision's id."""
    decision_id = new_id()
    approval.status, approval.consumed_at, approval.decision_id = CONSUMED, now(session), decision_id
    approval.consumed_call_id = question.call_id or ""
    session.add(approval)
    await tell(session, "consumed", approval)
    return decision_id


async def use_grant(
    session: AsyncSession, standing: Standing, question: Question, grant: Grant, pending: Approval | None
) -> str:
    """Let a check through by what was allowed for a while, and return the decision's id.

    Each use is a request that was made, approved and used up at once: so it is listed and told of like any other, and a
    `call_id` that was let through stays so. The request that waits for this very check, if there is one, becomes it.
    """
    grant.uses_left -= 1
    session.add(grant)
    if pending is not None:
        await end_proposal(session, pending)
    approval = pending or _request(session, standing, question, waits=0)
    terms = stored_terms(grant)
    store_terms(approval, terms.stricter(stored_terms(pending)) if pending else terms)
    approval.grant_id = grant.id
    approval.decided_at, approval.remind_at = now(session), None
    return await use_up(session, approval, question)


async def ask(session: AsyncSession, settings: Settings, standing: Standing, question: Question) -> str:
    """Make a request and return its id; it waits as long as its permission says, or else the settings."""
    permission, agent = (await session.exec(_PERMISSION, params={"id": standing.permission_id})).one()
    waits = permission.approval_ttl_seconds or settings.approval_ttl_seconds
    approval = _request(session, standing, question, waits=waits)
    store_terms(approval, current_terms(permission, agent))
    approval.max_amount, approval.amount_required = permission.max_amount, permission.amount_required
    # A request that lives shorter than people are reminded before its end is reminded of in its last quarter.
    ahead = min(settings.approval_reminder_seconds, waits / 4)
    approval.remind_at = approval.expires_at - timedelta(seconds=ahead)
    await make_way(session, approval)
    session.add(approval)
    await session.flush()
    of = (approval.organization_id, approval.environment)
    await count_request(session, of, approval.agent_id, approval.action, approval.created_at)
    await tell(session, "requested", approval)
    return approval.id


async def tighten(session: AsyncSession, standing: Standing, approval: Approval) -> None:
    """Store the stricter of a request's terms and the current ones: it is asked again under these."""
    permission, agent = (await session.exec(_PERMISSION, params={"id": standing.permission_id})).one()
    before = (stored_terms(approval), approval.max_amount, bool(approval.amount_required))
    limits = [limit for limit in (approval.max_amount, permission.max_amount) if limit is not None]
    after = (
        current_terms(permission, agent).stricter(before[0]),
        min(limits, default=None),
        before[2] or permission.amount_required,
    )
    if after != before:
        store_terms(approval, after[0])
        _, approval.max_amount, approval.amount_required = after
        session.add(approval)


def _request(session: AsyncSession, standing: Standing, question: Question, *, waits: int) -> Approval:
    if standing.agent_id is None or standing.permission_id is None:
        raise RuntimeError("a check without agent or permission is blocked before anybody is asked")
    moment = now(session)
    return Approval(
        id=new_id(),
        organization_id=standing.organization_id,
        environment=standing.environment,
        agent_id=standing.agent_id,
        permission_id=standing.permission_id,
        action=question.action,
        context=question.canonical,
        digest=question.digest,
        run_id=question.run_id or "",
        call_id=question.call_id or "",
        key_id=standing.key_id,
        reason=question.reason,
        last_asked_at=moment,
        created_at=moment,
        expires_at=moment + timedelta(seconds=waits),
    )
