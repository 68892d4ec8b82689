"""Permissions: listing, creation, changes and deletion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import ACTIVE, Agent
from toolgate_service.approvals.service import cancel_open
from toolgate_service.audit import service as audit
from toolgate_service.context import KeyCaller
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page, find_page, newest_first
from toolgate_service.permissions.models import Permission, loosening_users
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView
from toolgate_service.webhooks.events import emit

_ONE = select(Permission).where(col(Permission.id) == bindparam("id"))
_SAME = select(Permission.id).where(
    *(
        col(getattr(Permission, name)) == bindparam(name)
        for name in ("organization_id", "environment", "agent_id", "action")
    )
)


async def list_permissions(session: AsyncSession, agent: Agent, page: Page) -> Found[Permission]:
    """Return the agent's permissions, newest first."""
    return await find_page(session, _select_permissions_of(agent), Permission, page)


async def list_by_key(session: AsyncSession, caller: KeyCaller, agent_id: str) -> Sequence[Permission]:
    """Return the permissions of an agent for a request with an API key; an inactive agent has none.

    Raises:
        ApiError: 404 if the agent is unknown or belongs to another organization, or the key belongs to another agent.
    """
    standing = caller.context
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
    return (await session.exec(newest_first(_select_permissions_of(agent), Permission, None))).all()


async def create_permission(
    session: AsyncSession, caller: Caller, agent: Agent, new: NewPermission
) -> Permission:
    """Create a permission for an action.

    Raises:
        ApiError: 400 if the agent already has a permission for the action.
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
    await _emit(session, "permission.created", permission)
    return permission


async def find_permission(session: AsyncSession, permission_id: str) -> Permission:
    """Return the permission with this id, from any organization. The caller must check the organization.

    Raises:
        ApiError: 404 if there is no permission with this id.
    """
    permission = (await session.exec(_ONE, params={"id": permission_id})).first()
    if permission is None:
        raise not_found("Permission")
    return permission


async def change_permission(
    session: AsyncSession, caller: Caller, permission: Permission, change: PermissionChange
) -> Permission:
    """Change the fields that the request contains.

    When an approval request is consumed, it must satisfy both its original terms and the permission's current terms.
    For separation of duties, a user who changes the permission to allow more counts as one of its creators.
    """
    changes = change.model_dump(exclude_unset=True)
    if _loosens(permission, changes):
        permission.loosened_by = json.dumps(sorted({*loosening_users(permission), caller.user_id}))
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
    await _emit(session, "permission.updated", permission)
    return permission


def _loosens(permission: Permission, changes: Mapping[str, Any]) -> bool:
    """Return whether the changes make the permission less strict than it is now."""
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
    """Delete a permission and cancel its pending approval requests. The next check of the action is denied."""
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
    await _emit(session, "permission.deleted", permission)


async def _emit(session: AsyncSession, kind: str, permission: Permission) -> None:
    view = PermissionView.model_validate(permission, from_attributes=True)
    await emit(session, permission.organization_id, permission.environment, kind, view)


def _select_permissions_of(agent: Agent) -> SelectOfScalar[Permission]:
    return select(Permission).where(
        Permission.agent_id == agent.id,
        Permission.organization_id == agent.organization_id,
        Permission.environment == agent.environment,
    )
