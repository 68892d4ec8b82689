"""API keys of agents. A request with such a key acts as this agent and cannot act as another one."""

from collections.abc import Sequence

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import AgentKeyView
from toolgate_service.audit import service as audit
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.db.database import now
from toolgate_service.organizations.keys import masked_key, mint_key, shown_key
from toolgate_service.organizations.models import ApiKey

#: maximum number of valid keys per agent; it stops scripts that create keys and never delete them
MAX_KEYS = 100


async def list_keys(
    session: AsyncSession, vault: Vault, caller: Caller, agent: Agent, *, whole: bool = True
) -> Sequence[AgentKeyView]:
    """Return the agent's valid keys, newest first.

    Keys are masked unless `whole` is set and the caller may see full keys. If full keys are returned, an audit event is
    added, so the session must be a write transaction.
    """
    query = _select_valid_keys(agent).order_by(col(ApiKey.created_at).desc(), col(ApiKey.id).desc())
    keys = (await session.exec(query)).all()
    shown = {key.id: text for key in keys if whole and caller.sees_keys and (text := shown_key(vault, key))}
    if shown:
        _record(session, caller, agent, "agent.keys_shown", keys=list(shown))
    return [_view(agent, key, shown.get(key.id)) for key in keys]


async def create_key(session: AsyncSession, vault: Vault, caller: Caller, agent: Agent) -> AgentKeyView:
    """Create an API key for one agent, in the agent's environment.

    Raises:
        ApiError: 409 if the agent already has the maximum number of keys.
    """
    valid = select(func.count()).select_from(_select_valid_keys(agent).subquery())
    if (await session.exec(valid)).one() >= MAX_KEYS:
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
    """Revoke a key; it stops working immediately.

    Raises:
        ApiError: 404 if the agent has no valid key with this id.
    """
    key = (await session.exec(_select_valid_keys(agent).where(ApiKey.id == key_id))).first()
    if key is None:
        raise not_found("Key")
    key.revoked_at = now(session)
    session.add(key)
    _record(session, caller, agent, "agent.key_deleted", key=key.id)


def _select_valid_keys(agent: Agent) -> SelectOfScalar[ApiKey]:
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
