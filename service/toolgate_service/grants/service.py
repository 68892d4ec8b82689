"""Revocation of temporary approvals (grants)."""

from sqlmodel import col, select

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.approvals.models import APPROVED, Approval
from toolgate_service.approvals.service import cancel
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import now
from toolgate_service.grants.models import EXHAUSTED, EXPIRED, REVOKED, state_of
from toolgate_service.grants.repository import find_grant
from toolgate_service.grants.schemas import GrantView, serialize_grants


async def revoke(context: AppContext, caller: Caller, environment: str, grant_id: str) -> GrantView:
    """Revoke a temporary approval, and cancel the unused requests that it approved.

    Calls that are checked after the commit need an approval again.

    Raises:
        ApiError: 404, the temporary approval does not exist; 409, it was already revoked, or it has ended (expired or
            exhausted) and no request that it approved can still be used.
    """
    async with transaction_as(context, caller) as session:
        grant = await find_grant(session, caller, environment, grant_id)
        moment = now(session)
        query = select(Approval).where(
            Approval.grant_id == grant.id, Approval.status == APPROVED, col(Approval.expires_at) > moment
        )
        unused = (await session.exec(query)).all()
        state = state_of(grant, moment)
        if state == REVOKED or (state in {EXPIRED, EXHAUSTED} and not unused):
            raise ApiError(409, f"Grant is no longer active: it is {state}")
        grant.status, grant.revoked_at, grant.revoked_by = REVOKED, moment, caller.user_id
        session.add(grant)
        await cancel(session, unused, "the temporary approval was revoked")
        audit.record(
            session,
            caller,
            "grant.revoked",
            grant.id,
            environment=grant.environment,
            changes={"approval_id": grant.approval_id, "uses_left": grant.uses_left},
        )
        [view] = await serialize_grants(session, [grant], credentials=caller.is_admin)
    for approval in unused:
        context.notifier.notify(approval.id)
    return view
