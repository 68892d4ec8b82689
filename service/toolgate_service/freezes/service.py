"""Freezes: list, create and lift.

A freeze denies tool calls from the next check on, on every gateway. When a freeze is created or lifted, a database
trigger increments the version number (epoch) of both environments of the organization, so that each gateway discards
cached data from before the change.
"""

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.agents.models import Agent
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.models import ENVIRONMENTS
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.freezes.models import Freeze
from toolgate_service.freezes.schemas import FreezeView, NewFreeze
from toolgate_service.webhooks.events import emit

_ONE = select(Freeze).where(
    col(Freeze.id) == bindparam("id"), col(Freeze.organization_id) == bindparam("organization_id")
)
_AGENT = select(Agent.id).where(
    col(Agent.id) == bindparam("id"),
    col(Agent.organization_id) == bindparam("organization_id"),
    col(Agent.deleted_at).is_(None),
)


async def list_freezes(session: AsyncSession, caller: Caller, page: Page, *, active: bool) -> Found[Freeze]:
    """Return the active freezes of the organization, or the lifted ones, newest first."""
    lifted = col(Freeze.lifted_at)
    query = select(Freeze).where(
        Freeze.organization_id == caller.organization_id, lifted.is_(None) if active else lifted.is_not(None)
    )
    return await find_page(session, query, Freeze, page)


async def get_freeze(session: AsyncSession, caller: Caller, freeze_id: str) -> Freeze:
    """Return the freeze with this id.

    Raises:
        ApiError: 404 if the caller's organization has no freeze with this id.
    """
    values = {"id": freeze_id, "organization_id": caller.organization_id}
    freeze = (await session.exec(_ONE, params=values)).first()
    if freeze is None:
        raise not_found("Freeze")
    return freeze


async def create_freeze(context: AppContext, caller: Caller, new: NewFreeze) -> FreezeView:
    """Deny matching calls in both environments until the freeze is lifted.

    Pending approval requests stay pending, and approved calls are denied too while the freeze is active.

    Raises:
        ApiError: 404 if the organization has no agent with the id `agent_id`.
    """
    async with transaction_as(context, caller) as session:
        if new.agent_id is not None:
            values = {"id": new.agent_id, "organization_id": caller.organization_id}
            if (await session.exec(_AGENT, params=values)).first() is None:
                raise not_found("Agent")
        freeze = Freeze(
            id=new_id(),
            organization_id=caller.organization_id,
            created_by=caller.user_id,
            created_at=now(session),
            **new.model_dump(),
        )
        session.add(freeze)
        await session.flush()
        return await _record(session, caller, "freeze.created", freeze)


async def lift_freeze(context: AppContext, caller: Caller, freeze_id: str) -> FreezeView:
    """End a freeze. From the next check on, it denies no calls; permissions, rules and other freezes still apply.

    Raises:
        ApiError: 404 if the freeze does not exist; 409 if it was already lifted.
    """
    async with transaction_as(context, caller) as session:
        freeze = await get_freeze(session, caller, freeze_id)
        if freeze.lifted_at is not None:
            raise ApiError(409, "Freeze was already lifted")
        freeze.lifted_by, freeze.lifted_at = caller.user_id, now(session)
        session.add(freeze)
        return await _record(session, caller, "freeze.lifted", freeze)


async def _record(session: AsyncSession, caller: Caller, kind: str, freeze: Freeze) -> FreezeView:
    view = FreezeView.model_validate(freeze, from_attributes=True)
    changes = view.model_dump(include={"agent_id", "action", "reason"})
    audit.record(session, caller, kind, freeze.id, changes=changes)
    for environment in ENVIRONMENTS:
        await emit(session, freeze.organization_id, environment, kind, view)
    return view
