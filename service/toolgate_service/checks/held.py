"""Settling a check that a person must approve, inside one write transaction (decisions §5).

The fast road found that the action needs approval. Here everything is read and decided again under the writer's lock:
whatever was switched off, deleted or lowered since wins, and of many equal checks exactly one uses up an approval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.ending import REJECTED
from toolgate_service.approvals.models import APPROVED, CANCELLED, DENIED, PENDING, REPLACED, Approval
from toolgate_service.approvals.states import state_of
from toolgate_service.checks import requests
from toolgate_service.checks.attempts import Attempt, remember, remembered
from toolgate_service.checks.decide import Blocked, Permitted, decide
from toolgate_service.checks.question import Question
from toolgate_service.checks.steps import Hear, Step, nobody
from toolgate_service.checks.unasked import denied, why_full, why_refused
from toolgate_service.grants.models import Grant
from toolgate_service.grants.using import find_usable
from toolgate_service.grants.votes import why_no_longer
from toolgate_service.hotpath.standing import Standing, standing_in
from toolgate_service.ids import new_id
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now


@dataclass(frozen=True, slots=True)
class LetThrough:
    """An approval was used up: this once, the action may happen, as was found `at` a step, `by` what is named."""

    decision_id: str
    at: Step
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The action waits for a person, as was found `at` a step. Only a dry run makes no request, and has no id to name."""

    reason: str
    approval_id: str | None
    at: Step


async def settle(
    session: AsyncSession,
    settings: Settings,
    key_digest: str,
    question: Question,
    idempotency_key: str | None,
    raw: bytes,
    hear: Hear = nobody,
) -> Permitted | Blocked | LetThrough | Held:
    """Decide again, then use up an approval, or find or make a request for one.

    Args:
        session: a write transaction; a dry run needs no more than a read.
        settings: how long requests wait, and what stands against asking.
        key_digest: the API key that asks.
        question: the check.
        idempotency_key: repeats an answer that used up an approval to the same attempt.
        raw: the body as it came, to tell an honest repetition.
        hear: is told of every step that is passed.
    """
    standing = await standing_in(session, key_digest, question.agent_id, question.action)
    if standing is None or not standing.organization_is_active:
        return Blocked("The API key stopped working while the check was under way", Step.KEY)
    verdict = decide(standing, question.agent_id, question.action, question.context)
    if isinstance(verdict, Blocked) or (isinstance(verdict, Permitted) and question.approval_id is None):
        return verdict
    attempt = Attempt.of(idempotency_key, question.identity(raw))
    earlier = await remembered(session, standing, attempt, now(session))
    if earlier is not None:
        return LetThrough(earlier, Step.ATTEMPT)
    equal = await requests.equal_requests(session, standing, question)
    if question.approval_id is not None:
        equal = [approval for approval in equal if approval.id == question.approval_id]
        if not equal:
            return _not_of_this_check(question.approval_id)
        hear(Step.NAMED, equal[0].id)
    if isinstance(verdict, Permitted):
        return verdict
    return await _settle_by(session, settings, standing, question, verdict.reason, equal, attempt, hear)


def _not_of_this_check(approval_id: str) -> Blocked:
    return Blocked(
        f"Approval {approval_id!r} does not belong to this agent, action and context; check again without approval_id",
        Step.NAMED,
    )


async def _settle_by(
    session: AsyncSession,
    settings: Settings,
    standing: Standing,
    question: Question,
    reason: str,
    equal: Sequence[Approval],
    attempt: Attempt | None,
    hear: Hear,
) -> Blocked | LetThrough | Held:
    moment = now(session)
    if question.call_id:
        if await requests.already_let_through(session, standing, question):
            return Blocked(
                f"Call {question.call_id!r} was already let through once", Step.CALL, let_through=True
            )
        hear(Step.CALL, question.call_id)
    states = [(approval, state_of(approval, moment)) for approval in equal]
    by_approval = await _by_approval(session, standing, question, states, attempt, hear)
    if by_approval is not None:
        return by_approval
    edited = _edited(states, question)
    if edited is not None:
        return Held(reason, edited.id, Step.CHANGED)
    pending = await _pending(session, standing, states, question)
    if question.approval_id is not None:
        return Held(reason, pending.id, Step.WAITING) if pending else _ended(*states[0])
    # What an approver made of another call waits for that one, and is not used up by this.
    own = pending if pending and _answers(pending, question) else None
    grant = await find_usable(session, standing, question, own)
    # A person's no to the very call, or to this action again and again, goes before what another allowed for a while.
    refusal = None
    if grant or not pending:
        refusal = _denied_call(states, question)
        refusal = refusal or await why_refused(session, settings, standing, question, hear)
    if grant is not None and refusal is None:
        return await _let_through(session, standing, question, grant, attempt, own)
    if pending is not None:
        return Held(reason, pending.id, Step.WAITING)
    refusal = refusal or await why_full(session, settings, standing)
    if refusal is not None:
        return refusal
    hear(Step.ROOM, "")
    asked = None if question.dry_run else await requests.ask(session, settings, standing, question)
    return Held(reason, asked, Step.ASKED)


async def _pending(
    session: AsyncSession,
    standing: Standing,
    states: Sequence[tuple[Approval, str]],
    question: Question,
) -> Approval | None:
    pending = next((approval for approval, state in states if state == PENDING), None)
    if pending is not None and not question.dry_run:
        pending.last_asked_at = now(session)
        session.add(pending)
        await requests.tighten(session, standing, pending)
    return pending


async def _by_approval(
    session: AsyncSession,
    standing: Standing,
    question: Question,
    states: Sequence[tuple[Approval, str]],
    attempt: Attempt | None,
    hear: Hear,
) -> Blocked | LetThrough | None:
    for approval in (one for one, state in states if state == APPROVED and _answers(one, question)):
        lost = await why_no_longer(session, approval)
        if lost is None:
            return await _let_through(session, standing, question, approval, attempt)
        if question.approval_id is not None:
            return Blocked(
                f"Approval {approval.id!r} no longer counts: {lost}; check again without approval_id",
                Step.APPROVED,
            )
        hear(Step.APPROVED, lost)
    return None


def _edited(states: Sequence[tuple[Approval, str]], question: Question) -> Approval | None:
    # This very call was changed by a person: it waits for what became of that, and is not asked for anew.
    if not question.call_id or question.approval_id is not None:
        return None
    return next((approval for approval, state in states if state == REPLACED), None)


def _denied_call(states: Sequence[tuple[Approval, str]], question: Question) -> Blocked | None:
    # A paused run may resume after any time: the denial of a call that has a name does not end with the denial memory.
    if not question.call_id:
        return None
    for approval, state in states:
        if state == DENIED:
            return Blocked(denied(approval), Step.DENIED)
        if state == CANCELLED and approval.cancel_reason == REJECTED:
            return Blocked(f"Call {question.call_id!r} was {REJECTED}", Step.DENIED)
    return None


def _answers(approval: Approval, question: Question) -> bool:
    # What an approver made of a call is no answer to whoever happens to ask for just that.
    return approval.replaces is None or question.approval_id == approval.id


async def _let_through(
    session: AsyncSession,
    standing: Standing,
    question: Question,
    by: Approval | Grant,
    attempt: Attempt | None,
    pending: Approval | None = None,
) -> LetThrough:
    at = Step.APPROVED if isinstance(by, Approval) else Step.ALLOWED
    if question.dry_run:
        return LetThrough(new_id(), at, by.id)
    if isinstance(by, Approval):
        decision_id = await requests.use_up(session, by, question)
    else:
        decision_id = await requests.use_grant(session, standing, question, by, pending)
    await remember(session, standing, attempt, decision_id, now(session))
    return LetThrough(decision_id, at, by.id)


def _ended(approval: Approval, state: str) -> Blocked:
    if state == DENIED:
        return Blocked(denied(approval), Step.DENIED)
    return Blocked(f"Approval {approval.id!r} is {state}; check again without approval_id", Step.OPEN)
