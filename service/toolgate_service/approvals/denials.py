"""Denial blocks: after many denials of one agent's action nobody is asked for a while (decisions §5)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam
from sqlmodel import col, delete, literal, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import DENIED, Approval, DenialClearance
from toolgate_service.audit import service as audit
from toolgate_service.errors import not_found
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now

_DENIALS = (
    select(Approval.action, Approval.decided_at)
    .outerjoin(
        DenialClearance,
        (col(DenialClearance.agent_id) == Approval.agent_id)
        & (col(DenialClearance.action) == Approval.action),
    )
    .where(
        col(Approval.organization_id) == bindparam("organization_id"),
        col(Approval.environment) == bindparam("environment"),
        col(Approval.agent_id) == bindparam("agent_id"),
        # Written out: only then SQLite uses the index of denials.
        col(Approval.status) == literal(DENIED, literal_execute=True),
        col(Approval.decided_at) > bindparam("since"),
        or_(
            col(DenialClearance.cleared_at).is_(None),
            col(Approval.decided_at) > col(DenialClearance.cleared_at),
        ),
    )
    .order_by(col(Approval.decided_at).desc())
)
_DENIALS_OF_ACTION = _DENIALS.where(col(Approval.action) == bindparam("action"))


def blocked_until(
    denials: Sequence[datetime], many: int, window: timedelta, lasts: timedelta
) -> datetime | None:
    """Return until when denials block what they denied; None when they never did.

    Args:
        denials: their moments, newest first.
        many: so many of them block ...
        window: ... when they lie no further apart than this ...
        lasts: ... for so long after the last of them.
    """
    for last, first in zip(denials, denials[many - 1 :], strict=False):
        if last - first <= window:
            return last + lasts
    return None


async def blocks(
    session: AsyncSession, settings: Settings, agent: tuple[str, str, str], action: str | None = None
) -> Mapping[str, datetime]:
    """Return which of an agent's actions are blocked at this moment, and until when.

    Args:
        session: a transaction.
        settings: how many denials block, and for how long.
        agent: organization, environment and agent.
        action: look at this one alone.
    """
    moment = now(session)
    window = timedelta(seconds=settings.denial_window_seconds)
    lasts = timedelta(seconds=settings.denial_block_seconds)
    denials = await _denials(session, agent, action, moment - window - lasts)
    ends = {
        which: blocked_until(moments, settings.denials_before_block, window, lasts)
        for which, moments in denials.items()
    }
    return {which: until for which, until in sorted(ends.items()) if until is not None and until > moment}


async def _denials(
    session: AsyncSession, agent: tuple[str, str, str], action: str | None, since: datetime
) -> Mapping[str, Sequence[datetime]]:
    organization_id, environment, agent_id = agent
    values = {
        "organization_id": organization_id,
        "environment": environment,
        "agent_id": agent_id,
        "since": since,
        "action": action,
    }
    found: defaultdict[str, list[datetime]] = defaultdict(list)
    query = _DENIALS if action is None else _DENIALS_OF_ACTION
    for which, moment in (await session.exec(query, params=values)).all():
        if moment is not None:
            found[which].append(moment)
    return found


async def clear(session: AsyncSession, settings: Settings, caller: Caller, agent: Agent, action: str) -> None:
    """End a block: what was denied up to now no longer counts towards one.

    A denial still answers the equal check for its five minutes: that was a person's word about that very call.

    Raises:
        ApiError: 404, the action is not blocked.
    """
    whose = (agent.organization_id, agent.environment, agent.id)
    if not await blocks(session, settings, whose, action):
        raise not_found("Denial block")
    earlier = delete(DenialClearance).where(
        col(DenialClearance.agent_id) == agent.id, col(DenialClearance.action) == action
    )
    await session.exec(earlier)
    session.add(
        DenialClearance(
            agent_id=agent.id,
            action=action,
            organization_id=agent.organization_id,
            environment=agent.environment,
            cleared_by=caller.user_id,
            cleared_at=now(session),
        )
    )
    audit.record(
        session,
        caller,
        "agent.denial_block_cleared",
        agent.id,
        environment=agent.environment,
        changes={"action": action},
    )
