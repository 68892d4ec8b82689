"""Permissions of agents: list, create, change and delete."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.agents.models import ACTIVE, Agent
from toolgate_service.agents.schemas import NewAgent
from toolgate_service.agents.service import add_agent, get_agent
from toolgate_service.approvals.service import cancel_open
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext, KeyCaller
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page, find_page, newest_first
from toolgate_service.permissions.models import Permission, loosening_users
from toolgate_service.permissions.schemas import NewPermission, PermissionChange, PermissionView
from toolgate_service.webhooks.events import emit

#: environment and id of an agent, as they appear in the path of a request
AgentPath: TypeAlias = tuple[str, str]

_ONE = select(Permission).where(col(Permission.id) == bindparam("id"))
_SAME = select(Permission.id).where(
    *(
        col(getattr(Permission, name)) == bindparam(name)
        for name in ("organization_id", "environment", "agent_id", "action")
    )
)


async def list_permissions(session: AsyncSession, agent: Agent, page: Page) -> Found[Permission]:
    """Return the permissions of an agent, newest first."""
    return await find_page(session, _select_permissions_of(agent), Permission, page)


async def list_by_key(session: AsyncSession, caller: KeyCaller, agent_id: str) -> Sequence[Permission]:
    """Return the permissions of an agent to a client with an API key. The list is empty for a disabled agent.

    Raises:
        ApiError: 404 if the agent does not exist or belongs to another organization, or if the API key belongs to
            another agent.
    """
    auth = caller.context
    query = select(Agent).where(
        Agent.id == agent_id,
        Agent.organization_id == auth.organization_id,
        Agent.environment == auth.environment,
        col(Agent.deleted_at).is_(None),
    )
    agent = (await session.exec(query)).first()
    if agent is None or not caller.may_act_as(agent.id):
        raise not_found("Agent")
    if agent.status != ACTIVE:
        return ()
    return (await session.exec(newest_first(_select_permissions_of(agent), Permission, None))).all()


async def create_permission(
    context: AppContext, caller: Caller, environment: str, agent_id: str, new: NewPermission
) -> PermissionView:
    """Create a permission of an agent for an action.

    Raises:
        ApiError: 404 if the agent does not exist; 400 if it already has a permission for the action.
    """
    async with transaction_as(context, caller) as session:
        agent = await get_agent(session, caller, environment, agent_id)
        permission = await add_permission(session, caller, agent, new)
        return PermissionView.model_validate(permission, from_attributes=True)


async def create_agent_with_permission(
    context: AppContext, caller: Caller, environment: str, new: NewAgent, permission: NewPermission
) -> str:
    """Create an agent and its first permission in one transaction, and return the id of the agent.

    Raises:
        PlanLimitExceeded: The plan allows no further agents in the production environment. Disabled agents also count.
    """
    async with transaction_as(context, caller) as session:
        agent = await add_agent(session, context.plans, caller, environment, new)
        await add_permission(session, caller, agent, permission)
        return agent.id


async def add_permission(
    session: AsyncSession, caller: Caller, agent: Agent, new: NewPermission
) -> Permission:
    """Create a permission as `create_permission` does, but in the open transaction of `session`."""
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


async def change_permission(
    context: AppContext,
    caller: Caller,
    permission_id: str,
    change: PermissionChange,
    *,
    agent: AgentPath | None = None,
) -> PermissionView:
    """Change those fields of a permission that the request contains.

    A call can use an approved request only if the call satisfies the conditions that the permission has now, and those
    that it had when the request was created. For the separation of duties, a user who changes a permission to allow
    more counts as one of its creators.

    Raises:
        ApiError: 404 if the permission does not exist in the organization or, if `agent` is given, does not belong to
            this agent.
    """
    async with transaction_as(context, caller) as session:
        permission = await _find_permission(session, caller, permission_id, agent)
        if permission.organization_id != caller.organization_id:
            raise not_found("Permission")
        await update_permission(session, caller, permission, change)
        return PermissionView.model_validate(permission, from_attributes=True)


async def delete_permission(
    context: AppContext, caller: Caller, permission_id: str, *, agent: AgentPath | None = None
) -> None:
    """Delete a permission and cancel its pending and approved requests.

    Later calls of the agent with the action of the permission are denied, unless a rule allows them.

    Raises:
        ApiError: 404 if the permission does not exist or does not belong to `agent`; 403 if `agent` is not given and
            the permission belongs to another organization.
    """
    async with transaction_as(context, caller) as session:
        permission = await _find_permission(session, caller, permission_id, agent)
        if permission.organization_id != caller.organization_id:
            # The API specification requires the status 403 for this route; other routes return 404.
            raise ApiError(403, "Permission not found")
        await remove_permission(session, caller, permission)


async def _find_permission(
    session: AsyncSession, caller: Caller, permission_id: str, path: AgentPath | None
) -> Permission:
    """Return the permission with this id.

    `path` restricts the search to one agent. Without it, the permission may belong to any organization.
    """
    agent = None if path is None else await get_agent(session, caller, *path)
    permission = (await session.exec(_ONE, params={"id": permission_id})).first()
    if permission is None or (agent is not None and permission.agent_id != agent.id):
        raise not_found("Permission")
    return permission


async def update_permission(
    session: AsyncSession, caller: Caller, permission: Permission, change: PermissionChange
) -> None:
    """Change a permission as `change_permission` does, but in the open transaction of `session`."""
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


def _loosens(permission: Permission, changes: Mapping[str, Any]) -> bool:
    """Return whether the changes make the permission less strict."""
    maximum, new_maximum = permission.max_amount, changes.get("max_amount", permission.max_amount)
    return (
        any(
            getattr(permission, name) and changes.get(name) is False
            for name in ("requires_approval", "amount_required", "separation_of_duties")
        )
        or changes.get("required_approvals", permission.required_approvals) < permission.required_approvals
        or (maximum is not None and (new_maximum is None or new_maximum > maximum))
    )


async def remove_permission(session: AsyncSession, caller: Caller, permission: Permission) -> None:
    """Delete a permission as `delete_permission` does, but in the open transaction of `session`."""
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
