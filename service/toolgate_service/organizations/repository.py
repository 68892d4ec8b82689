"""Database queries for API keys: create, find, display and revoke them."""

import hashlib
import secrets
import string
from datetime import datetime
from functools import lru_cache

from sqlalchemy import ColumnElement
from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.crypto import Vault
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.models import PRODUCTION, TEST
from toolgate_service.organizations.models import ApiKey

KEY_LENGTH = 40
KEY_PREFIXES = {PRODUCTION: "ak_", TEST: "test_"}
_PREFIXES = tuple(KEY_PREFIXES.values())
_ALPHABET = string.ascii_lowercase + string.digits


def key_digest(key: str) -> str:
    """Return the SHA-256 digest by which the database identifies an API key. Digests of recent keys are cached."""
    # Do not cache the digest of a longer text, because it cannot be a key.
    return _cached_digest(key) if len(key) <= KEY_LENGTH else _hash_key(key)


def may_be_key(key: str) -> bool:
    """Return whether a text has the format of an API key. The gateway rejects other texts without a query."""
    return len(key) == KEY_LENGTH and key.startswith(_PREFIXES)


def _hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


_cached_digest = lru_cache(1024)(_hash_key)


def mint_key(
    vault: Vault,
    organization_id: str,
    environment: str,
    *,
    created_at: datetime,
    created_by: str,
    agent_id: str | None = None,
    advisory: bool = False,
) -> ApiKey:
    """Create a random API key and return its row, which the caller must add to the database session.

    The key has 40 characters: a prefix for the environment, then random lower-case letters and digits.
    """
    prefix = KEY_PREFIXES[environment]
    key = prefix + "".join(secrets.choice(_ALPHABET) for _ in range(KEY_LENGTH - len(prefix)))
    row_id = new_id()
    return ApiKey(
        id=row_id,
        organization_id=organization_id,
        environment=environment,
        agent_id=agent_id,
        digest=key_digest(key),
        ciphertext=vault.seal(key, table=ApiKey.__name__, row=row_id, organization=organization_id),
        last_four=key[-4:],
        advisory=advisory,
        created_by=created_by,
        created_at=created_at,
    )


def shown_key(vault: Vault, key: ApiKey) -> str | None:
    """Return the decrypted API key; None if it was encrypted with a different secret of the gateway."""
    return vault.open(key.ciphertext, table=ApiKey.__name__, row=key.id, organization=key.organization_id)


def masked_key(key: ApiKey) -> str:
    """Return the masked form of an API key: its prefix and its last four characters."""
    return f"{KEY_PREFIXES[key.environment]}…{key.last_four}"


async def organization_key(session: AsyncSession, organization_id: str, environment: str) -> ApiKey:
    """Return the valid API key of an organization in an environment. Keys of single agents are ignored."""
    query = select(ApiKey).where(*valid_keys(organization_id, environment, None))
    return (await session.exec(query)).one()


def valid_keys(
    organization_id: str, environment: str, agent_id: str | None
) -> tuple[ColumnElement[bool], ...]:
    """Return the SQL conditions that select unrevoked API keys.

    They select the keys of one agent, or the key of the organization if `agent_id` is None.
    """
    return (
        col(ApiKey.organization_id) == organization_id,
        col(ApiKey.environment) == environment,
        col(ApiKey.agent_id) == agent_id,
        col(ApiKey.revoked_at).is_(None),
    )


async def replace_organization_key(
    session: AsyncSession, vault: Vault, organization_id: str, environment: str, *, created_by: str
) -> ApiKey:
    """Revoke the organization's API key and create a new one. The old key stops working immediately."""
    await revoke_keys(session, organization_id, environment, None)
    key = mint_key(vault, organization_id, environment, created_at=now(session), created_by=created_by)
    session.add(key)
    await session.flush()
    return key


async def is_key_valid(session: AsyncSession, digest: str) -> bool:
    """Return whether an API key with this digest exists and was not revoked."""
    query = select(ApiKey.id).where(ApiKey.digest == digest, col(ApiKey.revoked_at).is_(None))
    return (await session.exec(query)).first() is not None


async def revoke_keys(
    session: AsyncSession, organization_id: str, environment: str, agent_id: str | None
) -> None:
    """Revoke all API keys of an agent, or of the organization if `agent_id` is None. They stop working immediately."""
    await session.exec(
        update(ApiKey)
        .where(*valid_keys(organization_id, environment, agent_id))
        .values(revoked_at=now(session))
    )
