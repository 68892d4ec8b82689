"""Revoking from end to end, for the API and for the console: one transaction, then whoever waits is woken."""

from toolgate_service.accounts.caller import Caller, acting
from toolgate_service.gateway import Gateway
from toolgate_service.grants import service
from toolgate_service.grants.schemas import GrantView


async def revoke(gateway: Gateway, caller: Caller, environment: str, grant_id: str) -> GrantView:
    """Allow it no longer; the very next check is held again.

    Raises:
        ApiError: 404, there is no such grant; 409, it lets nothing through any more.
    """
    async with acting(gateway, caller) as session:
        grant = await service.find_grant(session, caller, environment, grant_id)
        cancelled = await service.revoke(session, caller, grant)
        [view] = await service.views(session, [grant], credentials=caller.is_admin)
    for approval in cancelled:
        gateway.hub.tell(approval.id)
    return view
