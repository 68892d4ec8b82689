"""The values that the gateway's secret encrypts at rest, and the check that the secret opens them."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection
from sqlmodel import col, select

from toolgate_service.errors import StorageError
from toolgate_service.organizations.models import ApiKey
from toolgate_service.secret_file import secret_path
from toolgate_service.settings import Settings
from toolgate_service.storage.database import Database, is_embedded
from toolgate_service.vault import Vault
from toolgate_service.webhooks.models import WebhookSecret

SealedModel: TypeAlias = ApiKey | WebhookSecret
#: the models with a `ciphertext` column; the name of the model, the row's id and the organization are its associated data
SEALED_MODELS: Sequence[type[SealedModel]] = (ApiKey, WebhookSecret)
#: values looked at from either end of each table: enough to find one that the secret opens, quick in any database
SAMPLE = 20


def has_no_secret(settings: Settings) -> bool:
    """Return whether the secret would have to be created first: the embedded database's file is not there."""
    return settings.secret is None and is_embedded(settings.database_url) and not secret_path().exists()


def opens_sealed(connection: Connection, vault: Vault | None) -> bool:
    """Return whether a secret opens any of the values sealed in a database; True where nothing is sealed.

    Args:
        connection: to a database whose schema is up to date.
        vault: made of the secret; None where there is no secret.
    """
    found = False
    for model, row, organization, sealed in _sample(connection):
        place = {"table": model, "row": str(row), "organization": str(organization)}
        if vault is not None and vault.open(bytes(sealed), **place) is not None:
            return True
        found = True
    return not found


async def verified_vault(database: Database, settings: Settings) -> Vault | None:
    """Return the vault of the settings, if its secret opens the database's values.

    None means that the secret does not exist yet and may be created: nothing is sealed.

    Raises:
        StorageError: No secret is set where one must be, or it is not the one that sealed the values.
    """
    missing = has_no_secret(settings)
    vault = None if missing else Vault.of(settings)
    await refuse_other_secret(database, settings, vault)
    return vault


async def refuse_other_secret(database: Database, settings: Settings, vault: Vault | None) -> None:
    """Refuse a secret that opens none of the values sealed in the database.

    Raises:
        StorageError: It is not the one that sealed them; the message says how to restore it.
    """
    async with database.reading() as session:
        connection = await session.connection()
        if await connection.run_sync(opens_sealed, vault):
            return
    says, cure = other_secret(settings, missing=vault is None)
    raise StorageError(f"{says}; {cure}")


def other_secret(settings: Settings, *, missing: bool = False) -> tuple[str, str]:
    """Return an error that names the wrong secret and the fix."""
    if settings.secret is None and is_embedded(settings.database_url):
        path = repr(str(secret_path()))
        state = (
            f"the secret file {path} is missing" if missing else f"the secret in {path} is a different one"
        )
        restore = f"restore that secret to {path}, or set TOOLGATE_SECRET to it"
    else:
        state = "TOOLGATE_SECRET is a different one"
        restore = "set TOOLGATE_SECRET to that secret"
    cure = (
        f"{restore}, or TOOLGATE_SECRET_PREVIOUS if it was changed; if it is lost, run "
        "'toolgate admin rotate-secret --discard-unreadable'"
    )
    return f"this database's API keys were sealed with another secret: {state}", cure


def _sample(connection: Connection) -> Iterator[tuple[str, Any, Any, bytes]]:
    for model in SEALED_MODELS:
        columns = (model.id, model.organization_id, model.ciphertext)
        # A discarded value is empty.
        query = select(*columns).where(col(model.ciphertext) != b"").limit(SAMPLE)
        for order in (col(model.id).desc(), col(model.id).asc()):
            for row, organization, sealed in connection.execute(query.order_by(order)):
                yield model.__name__, row, organization, sealed
