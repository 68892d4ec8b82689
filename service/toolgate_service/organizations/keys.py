"""API keys: made, found, shown and revoked (spec §5, decisions §9)."""

import hashlib
import secrets
import string
from datetime import datetime
from functools import lru_cache

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.ids import new_id
from toolgate_service.organizations.models import ApiKey
from toolgate_service.storage.base import PRODUCTION, TEST
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault

LENGTH = 40
PREFIXES = {PRODUCTION: "ak_", TEST: "test_"}
_ALPHABET = string.ascii_lowercase + string.digits


def key_digest(key: str) -> str:
    """Return what the key is looked up by; of keys in use it is remembered."""
    # What is longer is no key of ours, and would only take room.
    return _remembered(key) if len(key) <= LENGTH else _digest(key)


def may_be_key(key: str) -> bool:
    """Say whether a text has the form of a key; anything else need not be looked up."""
    return len(key) == LENGTH and key.startswith(tuple(PREFIXES.values()))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


_remembered = lru_cache(1024)(_digest)


def mint_key(
    vault: Vault,
    organization_id: str,
    environment: str,
    *,
    created_at: datetime,
    created_by: str,
    agent_id: str | None = None,
) -> ApiKey:
    """Make a new key: 40 characters, lower-case letters and digits after the prefix."""
    prefix = PREFIXES[environment]
    key = prefix + "".join(secrets.choice(_ALPHABET) for _ in range(LENGTH - len(prefix)))
    row_id = new_id()
    return ApiKey(
        id=row_id,
        organization_id=organization_id,
        environment=environment,
        agent_id=agent_id,
        digest=key_digest(key),
        ciphertext=vault.seal(key, table=ApiKey.__name__, row=row_id, organization=organization_id),
        last_four=key[-4:],
        created_by=created_by,
        created_at=created_at,
    )


def shown_key(vault: Vault, key: ApiKey) -> str | None:
    """Return a key in full; None when it was sealed under another secret."""
    return vault.open(key.ciphertext, table=ApiKey.__name__, row=key.id, organization=key.organization_id)


def masked_key(key: ApiKey) -> str:
    """Return a key for those who may not see it."""
    return f"{PREFIXES[key.environment]}…{key.last_four}"


async def organization_key(session: AsyncSession, organization_id: str, environment: str) -> ApiKey:
    """Return the organization's own key in an environment."""
    query = select(ApiKey).where(
        ApiKey.organization_id == organization_id,
        ApiKey.environment == environment,
        col(ApiKey.agent_id).is_(None),
        col(ApiKey.revoked_at).is_(None),
    )
    return (await session.exec(query)).one()


async def replace_organization_key(
    session: AsyncSession, vault: Vault, organization_id: str, environment: str, *, created_by: str
) -> ApiKey:
    """Revoke the organization's key and put a new one in its place; the old one stops working at once."""
    await session.exec(
        update(ApiKey)
        .where(
            col(ApiKey.organization_id) == organization_id,
            col(ApiKey.environment) == environment,
            col(ApiKey.agent_id).is_(None),
            col(ApiKey.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )
    key = mint_key(vault, organization_id, environment, created_at=now(session), created_by=created_by)
    session.add(key)
    await session.flush()
    return key


async def still_works(session: AsyncSession, digest: str) -> bool:
    """Say whether a key has not been revoked meanwhile."""
    query = select(ApiKey.id).where(ApiKey.digest == digest, col(ApiKey.revoked_at).is_(None))
    return (await session.exec(query)).first() is not None


async def revoke_agent_keys(
    session: AsyncSession, organization_id: str, environment: str, agent_id: str
) -> None:
    """Revoke every key that acts as an agent; they stop working at once."""
    await session.exec(
        update(ApiKey)
        .where(
            col(ApiKey.organization_id) == organization_id,
            col(ApiKey.environment) == environment,
            col(ApiKey.agent_id) == agent_id,
            col(ApiKey.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )
