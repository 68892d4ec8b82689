"""What a backup cannot hold: the secret that opens what is sealed in it."""

import sqlite3

from toolgate_service.secret_file import secret_path
from toolgate_service.settings import Settings
from toolgate_service.vault import Vault

_SEALED = "SELECT id, organization_id, ciphertext FROM api_keys LIMIT 1"


def keep_the_secret(settings: Settings) -> list[str]:
    """Return what to say of the secret to whoever made a backup."""
    where = "TOOLGATE_SECRET" if settings.secret else f"the file {str(secret_path())!r}"
    return [
        f"keep the secret too, elsewhere ({where}): without it API keys and webhook secrets cannot be shown or used again"
    ]


def opens(settings: Settings, connection: sqlite3.Connection) -> bool | None:
    """Say whether the present secret opens what is sealed in a file; None where nothing is, or no secret is there."""
    if settings.secret is None and not secret_path().exists():
        return None
    found = connection.execute(_SEALED).fetchone()
    if found is None:
        return None
    row, organization, sealed = found
    return Vault.of(settings).open(sealed, table="ApiKey", row=row, organization=organization) is not None
