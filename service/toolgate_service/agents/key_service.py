"""The rules of keys that act only as one agent (decisions §3, §9)."""

from collections.abc import Sequence

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.key_schemas import AgentKeyView
from toolgate_service.agents.models import Agent
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, not_found
from toolgate_service.organizations.keys import masked_key, mint_key, shown_key
from toolgate_service.organizations.models import ApiKey
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault

#: working keys of one agent: a listing stays small, and a script that forgets to delete is told
MAX_KEYS = 100


async def list_keys(
    session: AsyncSession, vault: Vault, caller: Caller, agent: Agent, *, whole: bool = True
) -> Sequence[AgentKeyView]:
    """Return an agent's working keys, newest first; showing them whole is audited.

    Args:
        session: a write transaction; a snapshot will do where they are masked.
        vault: opens them.
        caller: who asks; only whoever sees keys sees them whole.
        agent: whose.
        whole: whether they are wanted whole.
    """
    query = _working(agent).order_by(col(ApiKey.created_at).desc(), col(ApiKey.id).desc())
    keys = (await session.exec(query)).all()
    shown = {key.id: text for key in keys if whole and caller.sees_keys and (text := shown_key(vault, key))}
    if shown:
        _record(session, caller, agent, "agent.keys_shown", keys=list(shown))
    return [_view(agent, key, shown.get(key.id)) for key in keys]


async def create_key(session: AsyncSession, vault: Vault, caller: Caller, agent: Agent) -> AgentKeyView:
    """Make a key that acts only as an agent, in the agent's environment.

    Raises:
        ApiError: 409, the agent has as many keys as one may have.
    """
    working = select(func.count()).select_from(_working(agent).subquery())
    if (await session.exec(working)).one() >= MAX_KEYS:
        raise ApiError(409, f"The agent has {MAX_KEYS} keys; delete one first")
    key = mint_key(
        vault,
        agent.organization_id,
        agent.environment,
        agent_id=agent.id,
        created_at=now(session),
        created_by=caller.user_id,
    )
    session.add(key)
    _record(session, caller, agent, "agent.key_created", key=key.id)
    return _view(agent, key, shown_key(vault, key))


async def delete_key(session: AsyncSession, caller: Caller, agent: Agent, key_id: str) -> None:
    """Revoke a key; it stops working at once.

    Raises:
        ApiError: 404, the agent has no working key of that id.
    """
    key = (await session.exec(_working(agent).where(ApiKey.id == key_id))).first()
    if key is None:
        raise not_found("Key")
    key.revoked_at = now(session)
    session.add(key)
    _record(session, caller, agent, "agent.key_deleted", key=key.id)


def _working(agent: Agent) -> SelectOfScalar[ApiKey]:
    return select(ApiKey).where(
        ApiKey.organization_id == agent.organization_id,
        ApiKey.environment == agent.environment,
        ApiKey.agent_id == agent.id,
        col(ApiKey.revoked_at).is_(None),
    )


def _view(agent: Agent, key: ApiKey, shown: str | None) -> AgentKeyView:
    return AgentKeyView(
        id=key.id,
        agent_id=agent.id,
        api_key=shown or masked_key(key),
        created_at=key.created_at,
        created_by=key.created_by,
    )


def _record(session: AsyncSession, caller: Caller, agent: Agent, kind: str, **changes: object) -> None:
    audit.record(session, caller, kind, agent.id, environment=agent.environment, changes=changes)
