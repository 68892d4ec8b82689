"""Denial blocks: after approvers repeatedly reject an agent's action, the gateway denies the action for a fixed time.

Blocks are not stored. They are computed from the stored rejections, called denials here, and from the times at which
admins cleared a block.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam
from sqlmodel import col, delete, literal, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import DENIED, Approval, DenialClearance
from toolgate_service.audit import service as audit
from toolgate_service.core.errors import not_found
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now

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
        # SQLite uses the partial index only if the statement contains the value as a literal.
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


def block_end(
    denials: Sequence[datetime], threshold: int, window: timedelta, duration: timedelta
) -> datetime | None:
    """Return the end of the newest block that the denials cause, or None if they cause none.

    If `threshold` denials occur within `window`, a block of length `duration` begins at the time of the last one.

    Args:
        denials: Times of the denials, newest first.
        threshold: Number of denials that cause a block.
        window: Maximum time between the first and the last of these denials.
        duration: Length of the block.
    """
    for last, first in zip(denials, denials[threshold - 1 :], strict=False):
        if last - first <= window:
            return last + duration
    return None


async def load_denial_blocks(
    session: AsyncSession, settings: Settings, agent: tuple[str, str, str], action: str | None = None
) -> Mapping[str, datetime]:
    """Return the current denial blocks of an agent: the end of each block, by action.

    Args:
        session: A database session.
        settings: Settings with the threshold, window and duration of blocks.
        agent: The organization's id, the environment's name and the agent's id.
        action: Return only the block of this action; None for all actions.
    """
    moment = now(session)
    window = timedelta(seconds=settings.denial_window_seconds)
    duration = timedelta(seconds=settings.denial_block_seconds)
    denials = await _load_denials(session, agent, action, moment - window - duration)
    ends = {
        name: block_end(moments, settings.denials_before_block, window, duration)
        for name, moments in denials.items()
    }
    return {name: end for name, end in sorted(ends.items()) if end is not None and end > moment}


async def _load_denials(
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
    for name, moment in (await session.exec(query, params=values)).all():
        if moment is not None:
            found[name].append(moment)
    return found


async def clear_denial_block(
    session: AsyncSession, settings: Settings, caller: Caller, agent: Agent, action: str
) -> None:
    """End the denial block of an action. Earlier denials no longer count towards a block.

    A call that an approver rejected remains denied for `denial_memory_seconds`, even after the block has ended.

    Raises:
        ApiError: 404, the action is not blocked.
    """
    tenant = (agent.organization_id, agent.environment, agent.id)
    if not await load_denial_blocks(session, settings, tenant, action):
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
