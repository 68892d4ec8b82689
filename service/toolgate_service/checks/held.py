"""Settling a check that a person must approve, inside one write transaction (decisions §5).

The fast road found that the action needs approval. Here everything is read and decided again under the writer's lock:
whatever was switched off, deleted or lowered since wins, and of many equal checks exactly one uses up an approval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import APPROVED, DENIED, PENDING, Approval
from toolgate_service.approvals.rights import why_not
from toolgate_service.approvals.service import state_of
from toolgate_service.checks import requests
from toolgate_service.checks.attempts import Attempt, remember, remembered
from toolgate_service.checks.decide import Blocked, Permitted, decide
from toolgate_service.checks.question import Question
from toolgate_service.checks.unasked import denied, why_nobody_is_asked
from toolgate_service.hotpath.standing import Standing, standing_in
from toolgate_service.ids import new_id
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now


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
        settings: how long requests wait, and what stands against asking.
        key_digest: the API key that asks.
        question: the check.
        idempotency_key: repeats an answer that used up an approval to the same attempt.
        raw: the body as it came, to tell an honest repetition.
    """
    standing = await standing_in(session, key_digest, question.agent_id, question.action)
    if standing is None or not standing.organization_is_active:
        return Blocked("The API key stopped working while the check was under way")
    verdict = decide(standing, question.agent_id, question.action, question.context)
    if isinstance(verdict, Blocked) or (isinstance(verdict, Permitted) and question.approval_id is None):
        return verdict
    attempt = Attempt.of(idempotency_key, raw)
    earlier = await remembered(session, standing, attempt, now(session))
    if earlier is not None:
        return LetThrough(earlier)
    equal = await requests.equal_requests(session, standing, question)
    if question.approval_id is not None:
        equal = [approval for approval in equal if approval.id == question.approval_id]
        if not equal:
            return _not_of_this_check(question.approval_id)
    if isinstance(verdict, Permitted):
        return verdict
    return await _settle_by(session, settings, standing, question, verdict.reason, equal, attempt)


def _not_of_this_check(approval_id: str) -> Blocked:
    return Blocked(
        f"Approval {approval_id!r} does not belong to this agent, action and context; check again without approval_id"
    )


async def _settle_by(
    session: AsyncSession,
    settings: Settings,
    standing: Standing,
    question: Question,
    reason: str,
    equal: Sequence[Approval],
    attempt: Attempt | None,
) -> Blocked | LetThrough | Held:
    moment = now(session)
    if question.call_id and await requests.already_let_through(session, standing, question):
        return Blocked(f"Call {question.call_id!r} was already let through once")
    states = [(approval, state_of(approval, moment)) for approval in equal]
    for approval in (approval for approval, state in states if state == APPROVED):
        lost = await why_not(session, approval, approval.decided_by)
        if lost is None:
            return await _let_through(session, standing, question, approval, attempt)
        if question.approval_id is not None:
            return Blocked(
                f"Approval {approval.id!r} no longer counts: {lost}; check again without approval_id"
            )
    answer = _answer_by_state(question, reason, states)
    if answer is not None:
        return answer
    why = await why_nobody_is_asked(session, settings, standing, question)
    if why is not None:
        return Blocked(why)
    if question.dry_run:
        return Held(reason, None)
    return Held(reason, await requests.ask(session, settings, standing, question))


async def _let_through(
    session: AsyncSession, standing: Standing, question: Question, approval: Approval, attempt: Attempt | None
) -> LetThrough:
    if question.dry_run:
        return LetThrough(new_id())
    decision_id = requests.use_up(session, approval, question)
    await remember(session, standing, attempt, decision_id, now(session))
    return LetThrough(decision_id)


def _answer_by_state(
    question: Question, reason: str, states: Sequence[tuple[Approval, str]]
) -> Blocked | Held | None:
    for approval, state in states:
        if state == PENDING:
            return Held(reason, approval.id)
    if question.approval_id is None:
        return None
    approval, state = states[0]
    if state == DENIED:
        return Blocked(denied(approval))
    return Blocked(f"Approval {approval.id!r} is {state}; check again without approval_id")
