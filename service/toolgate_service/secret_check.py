"""Verification that the gateway's secret decrypts the values stored in the database."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection
from sqlmodel import col, select

from toolgate_service.core.crypto import Vault, secret_path
from toolgate_service.core.errors import StorageError
from toolgate_service.core.settings import Settings, is_embedded
from toolgate_service.db.database import Database, open_database
from toolgate_service.organizations.models import ApiKey
from toolgate_service.transparency.models import TransparencyLog
from toolgate_service.webhooks.models import WebhookSecret

SealedModel: TypeAlias = ApiKey | WebhookSecret | TransparencyLog
#: models with an encrypted column `ciphertext`; a value can be decrypted only together with the model's name, the id of
#: its row and the id of the organization
SEALED_MODELS: Sequence[type[SealedModel]] = (ApiKey, WebhookSecret, TransparencyLog)
#: number of values that the check decrypts at each end of a table, in the order of the ids
SAMPLE = 20


def has_no_secret(settings: Settings) -> bool:
    """Return whether the gateway is embedded and has no secret, neither in the settings nor in a file."""
    return settings.secret is None and is_embedded(settings.database_url) and not secret_path().exists()


def opens_sealed(connection: Connection, vault: Vault | None) -> bool:
    """Return whether a vault decrypts at least one of the sampled values; also True if no encrypted value exists.

    The database schema must be current. `vault` is None if there is no secret.
    """
    found = False
    for model, row, organization, sealed in _sample(connection):
        place = {"table": model, "row": str(row), "organization": str(organization)}
        if vault is not None and vault.open(bytes(sealed), **place) is not None:
            return True
        found = True
    return not found


async def prepare_database(settings: Settings) -> None:
    """Migrate the database or check its schema, and verify that the secret decrypts the values in it.

    Raises:
        StorageError: The database cannot be used, or the secret is missing or is not the one that encrypted the values.
    """
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        await verified_vault(database, settings)
    finally:
        await database.close()


async def verified_vault(database: Database, settings: Settings) -> Vault | None:
    """Return the vault for the secret in the settings, after verifying that it decrypts the values in the database.

    None means that there is no secret yet. A new secret may be created, because the database has no encrypted values.

    Raises:
        StorageError: A required secret is not set, or the values were encrypted with another secret.
    """
    missing = has_no_secret(settings)
    vault = None if missing else Vault.of(settings)
    await refuse_other_secret(database, settings, vault)
    return vault


async def refuse_other_secret(database: Database, settings: Settings, vault: Vault | None) -> None:
    """Verify that the secret decrypts the values in the database.

    Raises:
        StorageError: The values were encrypted with another secret. The message contains the fix.
    """
    async with database.reading() as session:
        connection = await session.connection()
        if await connection.run_sync(opens_sealed, vault):
            return
    raise StorageError("; ".join(other_secret(settings, missing=vault is None)))


def other_secret(settings: Settings, *, missing: bool = False) -> tuple[str, str]:
    """Return the error message for a wrong or missing secret, and the fix, as a pair."""
    if settings.secret is None and is_embedded(settings.database_url):
        path = repr(str(secret_path()))
        state = f"the secret file {path} is missing" if missing else f"{path} contains a different secret"
        restore = f"restore the former secret in {path}, or set TOOLGATE_SECRET to it"
    else:
        state = "TOOLGATE_SECRET contains a different secret"
        restore = "set TOOLGATE_SECRET to the former secret"
    fix = (
        f"{restore}; if you changed the secret on purpose, set TOOLGATE_SECRET_PREVIOUS to the former secret; if the "
        "former secret is lost, run "
        "'toolgate admin rotate-secret --discard-unreadable'"
    )
    return f"the API keys in this database were encrypted with another secret: {state}", fix


def _sample(connection: Connection) -> Iterator[tuple[str, Any, Any, bytes]]:
    # Skip the keys of transparency logs: an operator cannot discard unreadable ones, so the check could fail forever.
    for model in (ApiKey, WebhookSecret):
        columns = (model.id, model.organization_id, model.ciphertext)
        # Exclude empty values: an operator's command stores an empty value in place of one that cannot be decrypted.
        query = select(*columns).where(col(model.ciphertext) != b"").limit(SAMPLE)
        for order in (col(model.id).desc(), col(model.id).asc()):
            for row, organization, sealed in connection.execute(query.order_by(order)):
                yield model.__name__, row, organization, sealed
