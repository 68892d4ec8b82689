"""Reasons to deny a check without creating an approval request: recent denials, and too many pending requests."""

from datetime import timedelta

from sqlalchemy import bindparam
from sqlmodel import case, col, func, literal, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.denial_blocks import load_denial_blocks
from toolgate_service.approvals.models import DENIED, PENDING, Approval
from toolgate_service.checks.approval_requests import MATCHES, match_values
from toolgate_service.checks.decide import Blocked, Step, StepObserver
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.core.clock import wire
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now

_DENIED = (
    select(Approval)
    .where(
        *MATCHES,
        col(Approval.status) == literal(DENIED, literal_execute=True),
        col(Approval.decided_at) > bindparam("since"),
    )
    .order_by(col(Approval.decided_at).desc())
    .limit(1)
)

_COUNT_PENDING = select(
    # The expiry is not compared in WHERE, because SQLite would then scan the expiry index of all organizations.
    func.count(case((col(Approval.expires_at) > bindparam("now"), 1)))
).where(
    col(Approval.organization_id) == bindparam("organization_id"),
    col(Approval.environment) == bindparam("environment"),
    col(Approval.agent_id) == bindparam("agent_id"),
    # SQLite uses the partial index only if the statement contains the value as a literal.
    col(Approval.status) == literal(PENDING, literal_execute=True),
)


async def denial_block(
    session: AsyncSession,
    settings: Settings,
    auth: AuthContext,
    request: CheckRequest,
    on_step: StepObserver,
) -> Blocked | None:
    """Deny a check if an approver recently denied the same call, or if a denial block is active for its action.

    Returns:
        The denial, or None if neither applies.
    """
    denial = await _recent_denial(session, settings, auth, request)
    if denial is not None:
        return Blocked(denial_reason(denial), Step.DENIED)
    on_step(Step.DENIED, "")
    blocked = await _denial_block_reason(session, settings, auth, request)
    if blocked is not None:
        return Blocked(blocked, Step.DENIALS)
    on_step(Step.DENIALS, "")
    return None


def denial_reason(approval: Approval) -> str:
    """Return the reason that the agent receives for a denied request, including the approver's note."""
    return f"Denied by a person: {approval.note}" if approval.note else "Denied by a person"


async def _recent_denial(
    session: AsyncSession, settings: Settings, auth: AuthContext, request: CheckRequest
) -> Approval | None:
    # The search ignores `call_id`, so that an agent cannot avoid the denial by sending a new one.
    since = now(session) - timedelta(seconds=settings.denial_memory_seconds)
    return (await session.exec(_DENIED, params=match_values(auth, request) | {"since": since})).first()


async def _denial_block_reason(
    session: AsyncSession, settings: Settings, auth: AuthContext, request: CheckRequest
) -> str | None:
    if auth.agent_id is None:
        return None
    agent = (auth.organization_id, auth.environment, auth.agent_id)
    end = (await load_denial_blocks(session, settings, agent, request.action)).get(request.action)
    if end is None:
        return None
    return (
        f"Action '{request.action}' of this agent was denied {settings.denials_before_block} times in a short time "
        f"and is blocked until {wire(end)}; an admin may clear the block"
    )


async def pending_limit_reached(
    session: AsyncSession, settings: Settings, auth: AuthContext
) -> Blocked | None:
    """Deny a check if its agent has too many pending requests; return the denial, or None."""
    values = {
        "organization_id": auth.organization_id,
        "environment": auth.environment,
        "agent_id": auth.agent_id,
        "now": now(session),
    }
    if (await session.exec(_COUNT_PENDING, params=values)).one() < settings.pending_per_agent:
        return None
    return Blocked(
        f"{settings.pending_per_agent} requests of this agent wait for approval, and no more may "
        "(TOOLGATE_PENDING_PER_AGENT); have some of them decided or cancelled, then check again",
        Step.ROOM,
    )
