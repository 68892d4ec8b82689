"""Looking into a live gateway's database file, and changing what no endpoint changes."""

import sqlite3
from contextlib import closing
from typing import Any

from support.gateway import SECRET, LiveGateway, Owner
from toolgate_service.vault import Vault


def execute(gateway: LiveGateway, statement: str, *values: object) -> int:
    """Change the file and return the number of rows that were changed."""
    with closing(sqlite3.connect(gateway.database, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        return connection.execute(statement, values).rowcount


def rows(gateway: LiveGateway, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Read from the file."""
    with closing(sqlite3.connect(gateway.database, timeout=30)) as connection:
        return connection.execute(query, values).fetchall()


def vault() -> Vault:
    """Return the vault of a gateway that has the tests' secret."""
    return Vault(SECRET.encode())


def key_to_test(gateway: LiveGateway, owner: Owner) -> str:
    """Return an organization's key to its test environment, unsealed from the file."""
    query = (
        "SELECT id, ciphertext FROM api_keys "
        "WHERE organization_id = ? AND environment = 'test' AND revoked_at IS NULL"
    )
    organization = owner.user["organization_id"]
    [(row, sealed)] = rows(gateway, query, organization)
    key = vault().open(sealed, table="ApiKey", row=row, organization=organization)
    assert key is not None
    return key


def set_role(gateway: LiveGateway, owner: Owner, role: str) -> None:
    """Give a user another role."""
    assert execute(gateway, "UPDATE users SET role = ? WHERE id = ?", role, owner.user["id"]) == 1


def set_active(gateway: LiveGateway, owner: Owner, *, active: bool) -> None:
    """Switch an organization off or on, as a failed payment would."""
    organization = owner.user["organization_id"]
    assert execute(gateway, "UPDATE organizations SET is_active = ? WHERE id = ?", active, organization) == 1


def move_into(gateway: LiveGateway, user: Owner, owner: Owner) -> None:
    """Make a user of one organization a user of another's, as an invitation would."""
    with closing(sqlite3.connect(gateway.database, timeout=30, isolation_level=None)) as connection:
        values = (owner.user["organization_id"], user.user["id"])
        connection.execute("UPDATE users SET organization_id = ? WHERE id = ?", values)
        connection.execute("UPDATE sessions SET organization_id = ? WHERE user_id = ?", values)
