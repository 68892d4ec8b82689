"""Deciding from end to end, for the API and for the console: one transaction, then whoever waits is woken."""

from toolgate_service.accounts.caller import Caller, acting
from toolgate_service.approvals import deciding
from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.schemas import ApprovalDecision, ApprovalView
from toolgate_service.approvals.views import view
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway


async def approve(
    gateway: Gateway,
    caller: Caller,
    environment: str,
    approval_id: str,
    decision: ApprovalDecision,
    *,
    shown: str | None = None,
) -> ApprovalView:
    """Let an action happen once: as it was asked, or with an edited context; or, with a grant, for a while.

    Args:
        gateway: the gateway.
        caller: who approves, and may decide.
        environment: where the request is.
        approval_id: which request.
        decision: a note, an edited context, or what to allow for a while.
        shown: the digest of what the caller was shown, where they were shown something.

    Raises:
        ApiError: 404 there is no such request; 409 it is not what was shown; and as for `deciding.approve`.
    """
    async with acting(gateway, caller) as session:
        approval = await find_approval(session, caller.organization_id, environment, approval_id)
        _demand_what_was_shown(approval, shown)
        changed = await deciding.approve(session, gateway.settings, caller, approval, decision)
        result = await view(session, approval, credentials=caller.is_admin)
    for one in changed:
        gateway.hub.tell(one.id)
    return result


async def deny(
    gateway: Gateway,
    caller: Caller,
    environment: str,
    approval_id: str,
    note: str | None,
    *,
    shown: str | None = None,
) -> ApprovalView:
    """Refuse an action; the note is told to whoever asks again.

    Args:
        gateway: the gateway.
        caller: who denies, and may decide.
        environment: where the request is.
        approval_id: which request.
        note: why.
        shown: the digest of what the caller was shown, where they were shown something.

    Raises:
        ApiError: 404 there is no such request; 409 it is not what was shown, or no longer pending.
    """
    async with acting(gateway, caller) as session:
        approval = await find_approval(session, caller.organization_id, environment, approval_id)
        _demand_what_was_shown(approval, shown)
        await deciding.deny(session, caller, approval, note)
        result = await view(session, approval, credentials=caller.is_admin)
    gateway.hub.tell(approval_id)
    return result


def _demand_what_was_shown(approval: Approval, shown: str | None) -> None:
    if shown is not None and approval.digest != shown:
        raise ApiError(409, "The request is not the one that was shown; look at it again")
