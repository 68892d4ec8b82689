"""Settling a check that a person must approve, inside one write transaction (decisions §5).

The fast road found that the action needs approval. Here everything is read and decided again under the writer's lock:
whatever was switched off, deleted or lowered since wins, and of many equal checks exactly one uses up an approval.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlmodel import col, or_, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.approvals.models import (
    APPROVED,
    CONSUMED,
    DENIED,
    EXPIRED,
    PENDING,
    Approval,
)
from toolgate_service.approvals.service import state_of
from toolgate_service.checks.decide import Blocked, Permitted, decide
from toolgate_service.checks.question import Question
from toolgate_service.clock import utcnow
from toolgate_service.hotpath.standing import STANDING, Standing
from toolgate_service.ids import new_id
from toolgate_service.logs.models import IdempotencyKey
from toolgate_service.settings import Settings

#: how long the answer of a check that used up an approval is repeated to the same key (decisions §4)
REPEATED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class LetThrough:
    """An approval was used up: this once, the action may happen."""

    decision_id: str


@dataclass(frozen=True, slots=True)
class Held:
    """The action waits for a person. Only a dry run makes no request, and has no id to name."""

    reason: str
    approval_id: str | None


async def settle(
    session: AsyncSession,
    settings: Settings,
    key_digest: str,
    question: Question,
    idempotency_key: str | None,
    raw: bytes,
) -> Permitted | Blocked | LetThrough | Held:
    """Decide again, then use up an approval, or find or make a request for one.

    Args:
        session: a write transaction; a dry run needs no more than a read.
        settings: how long requests wait and approvals last.
        key_digest: the API key that asks.
        question: the check.
        idempotency_key: repeats an answer that used up an approval to the same attempt.
        raw: the body as it came, to tell an honest repetition.
    """
    values = {"key_digest": key_digest, "agent_id": question.agent_id, "action": question.action}
    rows = (await session.execute(text(STANDING), values)).fetchall()
    if not rows or not rows[0].is_active:
        return Blocked("The API key stopped working while the check was under way")
    standing = Standing._make(rows[0])
    verdict = decide(standing, question.agent_id, question.action, question.context)
    if isinstance(verdict, Blocked) or (isinstance(verdict, Permitted) and question.approval_id is None):
        return verdict
    now = utcnow()
    attempt = _Attempt(idempotency_key, hashlib.sha256(raw).hexdigest()) if idempotency_key else None
    if attempt is not None:
        repeated = await _repeated(session, standing, attempt, now)
        if repeated is not None:
            return repeated
    equal = await _equal_requests(session, standing, question)
    if question.approval_id is not None:
        equal = [approval for approval in equal if approval.id == question.approval_id]
        if not equal:
            return _not_of_this_check(question.approval_id)
    if isinstance(verdict, Permitted):
        return verdict
    return await _settle_by(session, settings, standing, question, verdict.reason, equal, attempt, now)


def _not_of_this_check(approval_id: str) -> Blocked:
    return Blocked(
        f"Approval {approval_id!r} does not belong to this agent, action and context; check again without approval_id"
    )


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt of a caller's, that its retries repeat."""

    key: str
    fingerprint: str


async def _settle_by(
    session: AsyncSession,
    settings: Settings,
    standing: Standing,
    question: Question,
    reason: str,
    equal: Sequence[Approval],
    attempt: _Attempt | None,
    now: datetime,
) -> Blocked | LetThrough | Held:
    states = [(approval, state_of(approval, now)) for approval in equal]
    if question.call_id and await _already_let_through(session, standing, question):
        return Blocked(f"Call {question.call_id!r} was already let through once")
    for approval, state in states:
        if state == APPROVED and await _approver_still_may(session, approval):
            if question.dry_run:
                return LetThrough(new_id())
            return await _consume(session, approval, attempt, now)
    for approval, state in states:
        if state == PENDING:
            return Held(reason, approval.id)
    for approval, state in states:
        if state == DENIED and (question.approval_id is not None or _fresh(settings, approval, now)):
            return Blocked(f"Denied by a person: {approval.note}" if approval.note else "Denied by a person")
    if question.approval_id is not None:
        approval, state = states[0]
        return Blocked(f"Approval {approval.id!r} is {state}; check again without approval_id")
    return Held(reason, None if question.dry_run else await _ask(session, settings, standing, question, now))


async def _already_let_through(session: AsyncSession, standing: Standing, question: Question) -> bool:
    # Whatever its context was: one call happens once.
    query = select(Approval.id).where(
        Approval.organization_id == standing.organization_id,
        Approval.environment == standing.environment,
        Approval.agent_id == standing.agent_id,
        Approval.action == question.action,
        Approval.run_id == (question.run_id or ""),
        Approval.call_id == question.call_id,
        Approval.status == CONSUMED,
    )
    return (await session.exec(query)).first() is not None


async def _equal_requests(
    session: AsyncSession, standing: Standing, question: Question
) -> Sequence[Approval]:
    """Return the requests that this check may speak of: the one it names, then the newest.

    A request made with a `call_id` answers only to that `call_id` or to its own id.
    """
    query = (
        select(Approval)
        .where(
            Approval.organization_id == standing.organization_id,
            Approval.environment == standing.environment,
            Approval.agent_id == standing.agent_id,
            Approval.action == question.action,
            Approval.digest == question.digest,
            Approval.permission_id == standing.permission_id,
            Approval.run_id == (question.run_id or ""),
            or_(
                Approval.call_id == (question.call_id or ""),
                Approval.id == (question.approval_id or ""),
            ),
        )
        .order_by(
            (col(Approval.id) == (question.approval_id or "")).desc(),
            col(Approval.created_at).desc(),
            col(Approval.id).desc(),
        )
        .limit(RECENT)
        .with_for_update()
    )
    return (await session.exec(query)).all()


#: equal requests looked at: older ones are long decided, and one pending or approved one is always among the newest
RECENT = 20


def _fresh(settings: Settings, approval: Approval, now: datetime) -> bool:
    memory = timedelta(seconds=settings.denial_memory_seconds)
    return approval.decided_at is not None and now < approval.decided_at + memory


async def _approver_still_may(session: AsyncSession, approval: Approval) -> bool:
    query = select(User.id).where(
        User.id == approval.decided_by, User.role != VIEWER, col(User.removed_at).is_(None)
    )
    return (await session.exec(query)).first() is not None


async def _consume(
    session: AsyncSession, approval: Approval, attempt: _Attempt | None, now: datetime
) -> LetThrough:
    decision_id = new_id()
    approval.status, approval.consumed_at, approval.decision_id = CONSUMED, now, decision_id
    session.add(approval)
    if attempt is not None:
        # merge, not add: the same key may have been used before, more than ten minutes ago.
        await session.merge(
            IdempotencyKey(
                organization_id=approval.organization_id,
                environment=approval.environment,
                surface="check",
                key=attempt.key,
                fingerprint=attempt.fingerprint,
                answer=decision_id.encode(),
                created_at=now,
                expires_at=now + REPEATED,
            )
        )
    return LetThrough(decision_id)


async def _repeated(
    session: AsyncSession, standing: Standing, attempt: _Attempt, now: datetime
) -> LetThrough | None:
    query = select(IdempotencyKey.answer).where(
        IdempotencyKey.organization_id == standing.organization_id,
        IdempotencyKey.environment == standing.environment,
        IdempotencyKey.surface == "check",
        IdempotencyKey.key == attempt.key,
        IdempotencyKey.fingerprint == attempt.fingerprint,
        IdempotencyKey.expires_at > now,
    )
    answer = (await session.exec(query)).first()
    return None if answer is None else LetThrough(answer.decode())


async def _ask(
    session: AsyncSession, settings: Settings, standing: Standing, question: Question, now: datetime
) -> str:
    if standing.agent_id is None or standing.permission_id is None:
        raise RuntimeError("a check without agent or permission is blocked before anybody is asked")
    approval = Approval(
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
        created_at=now,
        expires_at=now + timedelta(seconds=settings.approval_ttl_seconds),
    )
    await _let_expire(session, approval)
    session.add(approval)
    await session.flush()
    return approval.id


async def _let_expire(session: AsyncSession, successor: Approval) -> None:
    # Whatever still says "pending" here has run out by the clock, and stands in the unique index's way.
    bound = ("organization_id", "environment", "agent_id", "permission_id", "digest", "run_id", "call_id")
    await session.exec(
        update(Approval)
        .where(*(col(getattr(Approval, name)) == getattr(successor, name) for name in bound))
        .where(col(Approval.status) == PENDING)
        .values(status=EXPIRED)
    )
