"""Why nobody is asked about a held check: a denial of late, too many of them, or too much that waits (decisions §5)."""

from datetime import timedelta

from sqlalchemy import bindparam
from sqlmodel import case, col, func, literal, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.denials import blocks
from toolgate_service.approvals.models import DENIED, PENDING, Approval
from toolgate_service.checks.decide import Blocked
from toolgate_service.checks.question import Question
from toolgate_service.checks.requests import BOUND, bound_to
from toolgate_service.checks.steps import Hear, Step
from toolgate_service.clock import wire
from toolgate_service.hotpath.standing import Standing
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now

_DENIED = (
    select(Approval)
    .where(
        *BOUND,
        col(Approval.status) == literal(DENIED, literal_execute=True),
        col(Approval.decided_at) > bindparam("since"),
    )
    .order_by(col(Approval.decided_at).desc())
    .limit(1)
)

_WAITING = select(
    # Not in the condition: SQLite would then read whatever waits in any organization, by its time.
    func.count(case((col(Approval.expires_at) > bindparam("now"), 1)))
).where(
    col(Approval.organization_id) == bindparam("organization_id"),
    col(Approval.environment) == bindparam("environment"),
    col(Approval.agent_id) == bindparam("agent_id"),
    # Written out: only then SQLite uses the index of what is pending.
    col(Approval.status) == literal(PENDING, literal_execute=True),
)


async def why_refused(
    session: AsyncSession, settings: Settings, standing: Standing, question: Question, hear: Hear
) -> Blocked | None:
    """Return why a check is refused that nothing approved answers: people said no, of late or again and again."""
    denial = await _recent_denial(session, settings, standing, question)
    if denial is not None:
        return Blocked(denied(denial), Step.DENIED)
    hear(Step.DENIED, "")
    blocked = await _blocked_pair(session, settings, standing, question)
    if blocked is not None:
        return Blocked(blocked, Step.DENIALS)
    hear(Step.DENIALS, "")
    return None


def denied(denial: Approval) -> str:
    """Return a denial's reason, in the person's words if there are any."""
    return f"Denied by a person: {denial.note}" if denial.note else "Denied by a person"


async def _recent_denial(
    session: AsyncSession, settings: Settings, standing: Standing, question: Question
) -> Approval | None:
    # Whatever call it was asked for: a new `call_id` is no way around a person's word.
    since = now(session) - timedelta(seconds=settings.denial_memory_seconds)
    return (await session.exec(_DENIED, params=bound_to(standing, question) | {"since": since})).first()


async def _blocked_pair(
    session: AsyncSession, settings: Settings, standing: Standing, question: Question
) -> str | None:
    if standing.agent_id is None:
        return None
    agent = (standing.organization_id, standing.environment, standing.agent_id)
    until = (await blocks(session, settings, agent, question.action)).get(question.action)
    if until is None:
        return None
    return (
        f"Action '{question.action}' of this agent was denied {settings.denials_before_block} times in a short time "
        f"and is blocked until {wire(until)}; an admin may clear the block"
    )


async def why_full(session: AsyncSession, settings: Settings, standing: Standing) -> Blocked | None:
    """Return why an agent may make no further request: too many of its wait already."""
    values = {
        "organization_id": standing.organization_id,
        "environment": standing.environment,
        "agent_id": standing.agent_id,
        "now": now(session),
    }
    if (await session.exec(_WAITING, params=values)).one() < settings.pending_per_agent:
        return None
    return Blocked(
        f"{settings.pending_per_agent} requests of this agent wait for approval, and no more may "
        "(TOOLGATE_PENDING_PER_AGENT); have some of them decided or cancelled, then check again",
        Step.ROOM,
    )
