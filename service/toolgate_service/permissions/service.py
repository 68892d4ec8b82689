"""The rules of permissions (spec §2-4)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import ACTIVE, Agent
from toolgate_service.approvals.ending import cancel_open
from toolgate_service.approvals.terms import loosened_by
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, not_found
from toolgate_service.ids import new_id
from toolgate_service.organizations.key_caller import KeyCaller
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView
from toolgate_service.storage.database import now
from toolgate_service.web.paging import Found, Page, find_page, newest_first
from toolgate_service.webhooks.outbox import emit

_ONE = select(Permission).where(col(Permission.id) == bindparam("id"))
_SAME = select(Permission.id).where(
    *(
        col(getattr(Permission, name)) == bindparam(name)
        for name in ("organization_id", "environment", "agent_id", "action")
    )
)


async def list_permissions(session: AsyncSession, agent: Agent, page: Page) -> Found[Permission]:
    """Return an agent's permissions, newest first."""
    return await find_page(session, _of(agent), Permission, page)


async def list_by_key(session: AsyncSession, caller: KeyCaller, agent_id: str) -> Sequence[Permission]:
    """Return what an agent may do, asked with an API key; an inactive agent may do nothing.

    Raises:
        ApiError: 404, the same for an unknown and a foreign agent and for one the key does not act as.
    """
    standing = caller.standing
    query = select(Agent).where(
        Agent.id == agent_id,
        Agent.organization_id == standing.organization_id,
        Agent.environment == standing.environment,
        col(Agent.deleted_at).is_(None),
    )
    agent = (await session.exec(query)).first()
    if agent is None or not caller.may_act_as(agent.id):
        raise not_found("Agent")
    if agent.status != ACTIVE:
        return ()
    return (await session.exec(newest_first(_of(agent), Permission, None))).all()


async def create_permission(
    session: AsyncSession, caller: Caller, agent: Agent, new: NewPermission
) -> Permission:
    """Grant an action to an agent.

    Raises:
        ApiError: 400, the agent has a permission for that action already.
    """
    same = {
        "organization_id": agent.organization_id,
        "environment": agent.environment,
        "agent_id": agent.id,
        "action": new.action,
    }
    if (await session.exec(_SAME, params=same)).first() is not None:
        raise ApiError(400, "Permission already exists for this action")
    permission = Permission(
        id=new_id(),
        organization_id=agent.organization_id,
        environment=agent.environment,
        agent_id=agent.id,
        created_by=caller.user_id,
        created_at=now(session),
        **new.model_dump(),
    )
    session.add(permission)
    await session.flush()
    audit.record(
        session,
        caller,
        "permission.created",
        permission.id,
        environment=agent.environment,
        changes=new.model_dump() | {"agent_id": agent.id},
    )
    await _tell(session, "permission.created", permission)
    return permission


async def find_permission(session: AsyncSession, permission_id: str) -> Permission:
    """Return a permission of any organization.

    Raises:
        ApiError: 404, there is none of that id.
    """
    permission = (await session.exec(_ONE, params={"id": permission_id})).first()
    if permission is None:
        raise not_found("Permission")
    return permission


async def change_permission(
    session: AsyncSession, caller: Caller, permission: Permission, change: PermissionChange
) -> Permission:
    """Change the fields that were sent.

    What waits for approval is judged again when it is used, by the stricter of the terms it was asked under and the
    current ones. A user who loosens a permission counts as one of its makers from then on.
    """
    changes = change.model_dump(exclude_unset=True)
    if _loosens(permission, changes):
        permission.loosened_by = json.dumps(sorted({*loosened_by(permission), caller.user_id}))
    for name, value in changes.items():
        setattr(permission, name, value)
    permission.updated_at = now(session)
    session.add(permission)
    audit.record(
        session,
        caller,
        "permission.updated",
        permission.id,
        environment=permission.environment,
        changes=changes,
    )
    await _tell(session, "permission.updated", permission)
    return permission


def _loosens(permission: Permission, changes: Mapping[str, Any]) -> bool:
    """Return whether any of the changes allows more than the permission does now."""
    maximum, new_maximum = permission.max_amount, changes.get("max_amount", permission.max_amount)
    return (
        any(
            getattr(permission, name) and changes.get(name) is False
            for name in ("requires_approval", "amount_required", "separation_of_duties")
        )
        or changes.get("required_approvals", permission.required_approvals) < permission.required_approvals
        or (maximum is not None and (new_maximum is None or new_maximum > maximum))
    )


async def delete_permission(session: AsyncSession, caller: Caller, permission: Permission) -> None:
    """Take the action from the agent: the very next check is refused, what waits for it is cancelled."""
    await cancel_open(session, permission, "the permission was deleted")
    await session.delete(permission)
    audit.record(
        session,
        caller,
        "permission.deleted",
        permission.id,
        environment=permission.environment,
        changes={"agent_id": permission.agent_id, "action": permission.action},
    )
    await _tell(session, "permission.deleted", permission)


async def _tell(session: AsyncSession, kind: str, permission: Permission) -> None:
    view = PermissionView.model_validate(permission, from_attributes=True)
    await emit(session, permission.organization_id, permission.environment, kind, view)


def _of(agent: Agent) -> SelectOfScalar[Permission]:
    return select(Permission).where(
        Permission.agent_id == agent.id,
        Permission.organization_id == agent.organization_id,
        Permission.environment == agent.environment,
    )
