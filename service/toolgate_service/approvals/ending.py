"""How requests end without anybody's decision: withdrawn, cancelled with what they belong to, run out (decisions §5)."""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.models import CANCELLED, EXPIRED, OPEN, PENDING, Approval
from toolgate_service.approvals.states import state_of
from toolgate_service.approvals.telling import tell
from toolgate_service.errors import ApiError, not_found
from toolgate_service.grants.ending import end_proposal, revoke_with
from toolgate_service.organizations.key_caller import KeyCaller
from toolgate_service.organizations.keys import still_works
from toolgate_service.permissions.models import Permission
from toolgate_service.storage.database import now

#: what makes two requests one while they wait, as the unique index has it
_BOUND = ("organization_id", "environment", "agent_id", "permission_id", "digest", "run_id", "call_id")

#: finds the one request that says "pending" and stands where another would wait; `place_of` has the values
ALIKE = (
    *(col(getattr(Approval, name)) == bindparam(name) for name in _BOUND),
    col(Approval.status) == PENDING,
)
_RUN_OUT = select(Approval).where(*ALIKE, col(Approval.expires_at) <= bindparam("now"))


#: why a request was cancelled: its call stays denied, also when an earlier state of the run is resumed
REJECTED = "rejected in the agent's framework"


async def withdraw(
    session: AsyncSession, caller: KeyCaller, approval_id: str, *, rejected: bool = False
) -> Approval:
    """Cancel an open request by whoever asked, for good.

    Args:
        session: a write transaction.
        caller: who asks.
        approval_id: the request.
        rejected: a user of the agent's framework rejected the call, so its `call_id` stays denied.

    Raises:
        ApiError: 401 the key was revoked meanwhile, 404 not the key's to cancel, 409 no longer open.
    """
    if not await still_works(session, caller.key_digest):
        raise ApiError(401, "Invalid API key")
    standing = caller.standing
    approval = await find_approval(session, standing.organization_id, standing.environment, approval_id)
    if not caller.may_act_as(approval.agent_id):
        raise not_found("Approval")
    state = state_of(approval, now(session))
    if state not in OPEN:
        raise ApiError(409, f"Approval is no longer open: it is {state}")
    await cancel(session, [approval], REJECTED if rejected else "withdrawn by whoever asked")
    await end_proposal(session, approval)
    return approval


async def cancel_open(session: AsyncSession, of: Agent | Permission, reason: str) -> None:
    """Cancel whatever waits, or waits to be used, for an agent or a permission; nothing revives it.

    What was allowed for a while ends as well.
    """
    owner = col(Approval.agent_id) if isinstance(of, Agent) else col(Approval.permission_id)
    query = select(Approval).where(
        owner == of.id,
        col(Approval.organization_id) == of.organization_id,
        col(Approval.status).in_(OPEN),
        # What has run out stays expired.
        col(Approval.expires_at) > now(session),
    )
    await cancel(session, (await session.exec(query)).all(), reason)
    await revoke_with(session, of)


async def cancel(session: AsyncSession, approvals: Sequence[Approval], reason: str) -> None:
    """Cancel open requests of one organization and environment."""
    for approval in approvals:
        approval.status, approval.cancelled_at, approval.remind_at = CANCELLED, now(session), None
        approval.cancel_reason = reason
        session.add(approval)
    await tell(session, "cancelled", *approvals)


async def expire(session: AsyncSession, approvals: Sequence[Approval]) -> None:
    """Write down that requests of one organization and environment have run out."""
    for approval in approvals:
        approval.status, approval.remind_at = EXPIRED, None
        session.add(approval)
    await tell(session, "expired", *approvals)


def place_of(approval: Approval) -> dict[str, str]:
    """Return the values that `ALIKE` has for the place of a request."""
    return {name: getattr(approval, name) for name in _BOUND}


async def make_way(session: AsyncSession, successor: Approval) -> None:
    """Let an equal request that still says "pending" expire: it has run out, and stands in the unique index's way."""
    values: dict[str, object] = {**place_of(successor), "now": now(session)}
    await expire(session, (await session.exec(_RUN_OUT, params=values)).all())
    await session.flush()
